"""Generate: from a run to signals, in chunks that are never computed twice, and a picture of the first of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

import gsure
from gsure.data.chunks import Chunks, device, open_folder, write_chunk
from gsure.data.measurements import Signals
from gsure.denoiser import BaseDenoiser
from gsure.display import bar
from gsure.files import record_request
from gsure.plotting import as_picture, draw_rows
from gsure.random import Stream, generators
from gsure.sampling import Clipped, Spacing, ddim, ddpm, dpm, times, unipc
from gsure.training.model import CheckpointName, load_with_config

Sampler = Literal["ddim", "ddpm", "dpm++", "unipc"]


def sample(
    run: str | Path,
    out: str | Path,
    n: int,
    *,
    sampler: Sampler = "ddim",
    steps: int = 50,
    eta: float = 0.0,
    spacing: Spacing | None = None,
    clip: bool = False,
    checkpoint: CheckpointName = "best",
    batch: int = 128,
    seed: int = 0,
    progress: bool = False,
) -> Signals:
    """n signals from the model of a run, into the folder `out`, which `gsure.Signals` reads.

    Sample k depends on (seed, k) alone, up to float error: not on `batch`, `n` or the number of processes. If the folder
    exists and was written with the same settings, sampling resumes there. `eta` is that of ddim; `clip` keeps each estimate
    within -1..1.
    """
    request = record_request("sample", locals())
    if n < 1 or batch < 1:
        raise ValueError(f"n and batch must be at least 1, but are {n} and {batch}.")
    denoiser, config, step, weights = load_with_config(run, checkpoint)
    denoiser.to(device())
    shape, is_complex = config.data_info.shape, config.data_info.is_complex
    draw = make_sampler(sampler, steps, eta, spacing)
    times(denoiser.schedule, steps, spacing or "even")  # refuses before anything is written
    model: BaseDenoiser = Clipped(denoiser) if clip else denoiser
    folder = Path(out)
    made_of = {"step": step, "weights": weights, "sampler": sampler, "steps": steps, "eta": eta, "spacing": spacing}
    made_of |= {"clip": clip, "batch": batch, "seed": seed}
    open_folder(folder, request, made_of, {"run": str(Path(run).resolve())})
    chunks = Chunks(folder, n, batch)
    with bar("sampling", n, progress) as advance:
        for number in chunks.mine():
            indices, path = chunks.indices(number), folder / Chunks.name(number)
            if not chunks.is_done(number, ("",)):
                generator = generators(seed, Stream.SAMPLE, indices=indices, device=device())
                x = denoiser.basis.to_signal(draw(model, (len(indices), *shape), generator)).cpu()
                write_chunk(path, x, [str(index) for index in indices], [1.0] * len(indices), made_of, is_complex)
            advance(len(indices))
    chunks.wait_for_first(("",))
    samples = Signals(folder)
    if len(samples) >= n:  # this process was the last
        title = f"{n:,} samples of {Path(run).name} by {sampler}, {steps} sampling steps"
        draw_grid(folder / "grid.png", samples, title)
    return samples


def make_sampler(
    name: Sampler, steps: int, eta: float, spacing: Spacing | None
) -> Callable[[BaseDenoiser, tuple[int, ...], list[Any]], Tensor]:
    """One call for all samplers; each has its own best spacing."""
    if name not in get_args(Sampler):
        raise ValueError(f"--sampler is one of {', '.join(get_args(Sampler))}, not {name!r}.")
    if not 0 <= eta <= 1:
        raise ValueError(f"--eta lies between 0 (deterministic) and 1 (ancestral), but is {eta}.")
    if eta != 0 and name != "ddim":
        raise ValueError(f"--eta is an option of ddim; {name} has none.")
    options: dict[str, Any] = {"steps": steps} | ({} if spacing is None else {"spacing": spacing})
    if name == "ddim":
        options["eta"] = eta
    function: Any = {"ddim": ddim, "ddpm": ddpm, "dpm++": dpm, "unipc": unipc}[name]
    return lambda denoiser, shape, generator: function(denoiser, shape, **options, generator=generator)


def draw_grid(path: Path, samples: Signals, title: str, rows: int = 8, columns: int = 8) -> None:
    pictures = [as_picture(x, samples.header["complex"]) for x in samples[: min(len(samples), rows * columns)]]
    lines = [("", pictures[first : first + columns]) for first in range(0, len(pictures), columns)]
    draw_rows(path, lines, f"{title} (gsure {gsure.__version__})", width=0.8)
