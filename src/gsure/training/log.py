"""What is written down while a run goes on: metrics.jsonl, and TensorBoard if asked for."""

import contextlib
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gsure.training.state import TrainState


class Log:
    """Times are of this process alone and count from its start."""

    def __init__(self, state: TrainState, board: Any) -> None:
        self.state, self.board = state, board
        self.began, self.logged = time.monotonic(), state.first

    def close(self) -> None:
        if self.board is not None:
            self.board.close()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Time that does not count as training."""
        left = time.monotonic()
        yield
        self.began += time.monotonic() - left

    def write(self, done: int) -> str:
        """Log the mean loss since the last time; returns it in words."""
        accelerator = self.state.accelerator
        loss = float(np.mean(self.state.losses))
        if accelerator.num_processes > 1:
            loss = float(accelerator.reduce(torch.tensor(loss, device=accelerator.device), "mean"))
        line = {
            "step": done,
            "loss": loss,
            "lr": self.state.optimizer.param_groups[0]["lr"],
            "steps_per_second": (done - self.logged) / (time.monotonic() - self.began),
            "memory_gb": _peak_memory(accelerator.device) / 1e9,
        }
        self._append(line)
        self.state.losses, self.began, self.logged = [], time.monotonic(), done
        return f"loss {loss:.4f}"

    def validation(self, done: int, result: dict[str, Any]) -> str:
        self._append({"step": done, "validation": result})
        told = {"estimate": "held-out error", "true": "true", "full": "on full signals"}
        parts = [
            f"{words} {result[name]['mean']:.5f} ± {result[name]['se']:.5f}"
            for name, words in told.items()
            if name in result
        ]
        best = " (best so far)" if self.state.best is not None and self.state.best["step"] == done else ""
        return f"step {done:,}: {', '.join(parts)}{best}"

    def _append(self, line: dict[str, Any]) -> None:
        if not self.state.accelerator.is_main_process:
            return
        self.state.run.log(line)
        if self.board is not None:
            for name, value in line.get("validation", line).items():
                if name not in ("step", "t_bins"):
                    self.board.add_scalar(name, value["mean"] if isinstance(value, dict) else value, line["step"])


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")  # where there is one: ru_maxrss starts at the peak of the parent process
    if status.exists() and (match := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_board(out: Path) -> Callable[[int], Any]:
    """What opens TensorBoard's file for a run that goes on from a step. Refuses at once if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError("TensorBoard is not installed: pip install 'gsure-diffusion[tensorboard]'.") from error
    return lambda first: SummaryWriter(str(out / "tensorboard"), purge_step=first + 1)
