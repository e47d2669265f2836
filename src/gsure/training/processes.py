"""The processes that work on one run: one, or as many as torchrun started."""

import atexit
import contextlib
import importlib
import os
import traceback
from collections.abc import Iterator

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState, PartialState


@contextlib.contextmanager
def accelerated(precision: str = "float32") -> Iterator[Accelerator]:
    """An `Accelerator` for a block. The process group behind it serves all blocks of a process, and ends with the process.

    A group whose threads outlive the interpreter aborts the process. Two things would keep it alive: `torch.distributed.nn`,
    which holds the group in its default arguments if it is first imported while there is one (the constructor of
    `DistributedDataParallel` does that), and a network that is still wrapped. So import the one before the group is created,
    and let go of the other before this block is left.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1 and not torch.distributed.is_initialized():
        importlib.import_module("torch.distributed.nn")
        atexit.register(_end_group)
    AcceleratorState._reset_state()  # otherwise a process could use one precision only
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),  # torchrun's processes find each other only so; and MPS has no float64
        mixed_precision="bf16" if precision == "bf16" else "no",
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],  # forward passes may differ in number
    )
    if launched != accelerator.num_processes:
        raise ValueError(
            f"{launched} processes were launched, but accelerate sees {accelerator.num_processes}: on CPUs, use torchrun."
        )
    try:
        yield accelerator
        accelerator.wait_for_everyone()
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames that failed inside of a wrapped network hold it
        raise
    finally:
        accelerator.free_memory()


def _end_group() -> None:
    if torch.distributed.is_initialized():
        PartialState().destroy_process_group()
