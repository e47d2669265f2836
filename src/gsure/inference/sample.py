"""Generate: from a run to signals, in chunks that are never computed twice, and a picture of the first of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

import gsure
from gsure.basis import Basis, Fourier
from gsure.data.chunks import Chunks, open_folder, write_chunk
from gsure.data.measurements import Signals
from gsure.data.memory import hold_signals
from gsure.denoiser import BaseDenoiser
from gsure.display import bar
from gsure.files import record_request
from gsure.plotting import as_picture, draw_rows
from gsure.random import Stream, generators
from gsure.sampling import Clipped, Spacing, ddim, ddpm, dpm, times, unipc
from gsure.training.checkpoints import Weights
from gsure.training.model import CheckpointName, Loaded, Model, open_model

Sampler = Literal["ddim", "ddpm", "dpm++", "unipc"]


def sample(
    model: Model,
    n: int,
    out: str | Path | None = None,
    *,
    sampler: Sampler = "ddim",
    steps: int = 50,
    eta: float = 0.0,
    spacing: Spacing | None = None,
    clip: bool = False,
    shape: Sequence[int] | None = None,
    checkpoint: CheckpointName = "best",
    weights: Weights | None = None,
    network: nn.Module | None = None,
    basis: Basis | None = None,
    batch: int = 128,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Signals:
    """n signals from a model, which is a run or a denoiser: `samples[:]` is a tensor of them.

    They stay in memory, or go to the folder `out`, where sampling resumes if it was interrupted. Sample k depends on
    (seed, k) alone, up to float error: not on `batch`, `n` or the number of processes.

    sampler     ddim, ddpm, dpm++ or unipc, with this number of `steps` at this `spacing`; `eta` is that of ddim
    clip        keep each estimate within -1..1, for images of that range
    shape       of one signal, for a denoiser that is not of a run
    weights     averaged or raw; by default those that validated best
    network, basis  your own, if the run was trained with such
    device      such as cpu or cuda:1; by default a GPU if there is one
    """
    request = record_request("sample", locals())
    if n < 1 or batch < 1:
        raise ValueError(f"n and batch must be at least 1, but are {n} and {batch}.")
    draw = make_sampler(sampler, steps, eta, spacing)
    loaded = open_model(model, checkpoint, basis, network, device, weights)
    denoiser = loaded.denoiser
    times(denoiser.schedule, steps, spacing or "even")  # refuses before anything is written
    shape, is_complex = _kind_of_signal(loaded, shape)
    seen: BaseDenoiser = Clipped(denoiser) if clip else denoiser
    where = next(denoiser.parameters(), torch.empty(0)).device

    def make(indices: range) -> Tensor:
        generator = generators(seed, Stream.SAMPLE, indices=indices, device=where)
        return denoiser.basis.to_signal(draw(seen, (len(indices), *shape), generator)).cpu()

    made_of: dict[str, Any] = {
        "step": loaded.step,
        "weights": loaded.checksum,
        "sampler": sampler,
        "steps": steps,
        "eta": eta,
    }
    made_of |= {"spacing": spacing, "clip": clip, "batch": batch, "seed": seed}
    with bar("sampling", n, progress) as advance:
        if out is None:
            parts = []
            for first in range(0, n, batch):
                parts.append(make(range(first, min(n, first + batch))))
                advance(len(parts[-1]))
            return hold_signals(torch.cat(parts), made_of, is_complex)
        folder = Path(out)
        open_folder(folder, request, made_of, loaded.inputs)
        chunks = Chunks(folder, n, batch)
        for number in chunks.mine():
            indices, path = chunks.indices(number), folder / Chunks.name(number)
            if not chunks.is_done(number, ("",)):
                write_chunk(path, make(indices), [str(index) for index in indices], made_of, is_complex)
            advance(len(indices))
    chunks.wait_for_first(("",))
    samples = Signals(folder)
    if len(samples) >= n:  # this process was the last
        title = f"{n:,} samples of {loaded.name} by {sampler}, {steps} sampling steps"
        draw_grid(folder / "grid.png", samples, title)
    return samples


def _kind_of_signal(loaded: Loaded, shape: Sequence[int] | None) -> tuple[tuple[int, ...], bool]:
    """The shape of a signal, and whether it is complex."""
    if loaded.config is not None:
        known = loaded.config.data_info
        if shape is not None and tuple(shape) != known.shape:
            raise ValueError(f"The model generates signals of shape {known.shape}, not {tuple(shape)}: omit shape.")
        return known.shape, known.is_complex
    if shape is None:
        raise ValueError("A denoiser does not know the shape of a signal: pass shape=(channels, height, width).")
    return tuple(shape), isinstance(loaded.denoiser.basis, Fourier)


def make_sampler(
    name: Sampler, steps: int, eta: float, spacing: Spacing | None
) -> Callable[[BaseDenoiser, tuple[int, ...], list[Any]], Tensor]:
    """One call for all samplers; each has its own best spacing."""
    if name not in get_args(Sampler):
        raise ValueError(f"sampler is one of {', '.join(get_args(Sampler))}, not {name!r}.")
    if not 0 <= eta <= 1:
        raise ValueError(f"eta lies between 0 (deterministic) and 1 (ancestral), but is {eta}.")
    if eta != 0 and name != "ddim":
        raise ValueError(f"eta is an option of ddim; {name} has none.")
    options: dict[str, Any] = {"steps": steps} | ({} if spacing is None else {"spacing": spacing})
    if name == "ddim":
        options["eta"] = eta
    function: Any = {"ddim": ddim, "ddpm": ddpm, "dpm++": dpm, "unipc": unipc}[name]
    return lambda denoiser, shape, generator: function(denoiser, shape, **options, generator=generator)


def draw_grid(path: Path, samples: Signals, title: str, rows: int = 8, columns: int = 8) -> None:
    first = samples[: min(len(samples), rows * columns)]
    pictures = [as_picture(x, samples.header["complex"], samples.black) for x in first]
    lines = [("", pictures[first : first + columns]) for first in range(0, len(pictures), columns)]
    draw_rows(path, lines, f"{title} (gsure {gsure.__version__})", width=0.8)
