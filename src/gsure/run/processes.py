"""The processes that work on one run: one, or as many as torchrun started."""

import contextlib
import importlib
import os
import traceback
from collections.abc import Iterator

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState


@contextlib.contextmanager
def accelerated(precision: str = "float32") -> Iterator[Accelerator]:
    """An `Accelerator` whose process group has really ended when the block is left, normally or by an error.

    `torch.distributed.nn` keeps the group alive in its default arguments if it is first imported while the group exists, as
    the constructor of `DistributedDataParallel` does. The group's threads would then outlive the interpreter, and abort the
    process. For the same reason nothing may hold a wrapped network any longer when the block is left.
    """
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1:
        importlib.import_module("torch.distributed.nn")
    AcceleratorState._reset_state(
        reset_partial_state=True
    )  # otherwise a process could join one group, in one precision, only
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),  # torchrun's processes find each other only so; and MPS has no float64
        mixed_precision="bf16" if precision == "bf16" else "no",
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],  # forward passes may differ in number
    )
    try:
        if launched != accelerator.num_processes:
            raise ValueError(
                f"{launched} processes were launched, but accelerate sees {accelerator.num_processes}: on CPUs, use torchrun."
            )
        yield accelerator
        accelerator.wait_for_everyone()
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames that failed inside of a wrapped network hold it
        raise
    finally:
        accelerator.free_memory()
        accelerator.end_training()
