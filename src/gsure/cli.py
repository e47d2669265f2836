"""The command line: names, types and help of options. Everything else is imported when a command runs: --help is quick."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import SUPPRESS, ActionYesNo, ArgumentParser, Namespace

from gsure import __version__
from gsure.run.settings import Settings, option, preset_names, read_preset

# Options of the corruption families and of the sources. They are written out here so that --help need not import torch; a
# test compares them with the classes.
FAMILY_OPTIONS: dict[str, tuple[Any, str]] = {
    "p": (float, "patches, pixels, bands: probability to drop one"),
    "size": (int, "patches: side of a patch"),
    "R": (float, "lines, poisson_disc: acceleration; about one entry in R is kept"),
    "keep": (float, "hadamard: share of the patterns that are measured"),
    "kind": (Literal["gaussian", "motion"], "blur: kind of kernel"),
    "width": (tuple[float, float], "blur: range of widths or lengths in pixels, as [low,high]"),
    "cutoff": (float, "blur: singular values up to this count as lost"),
}
SOURCE_OPTIONS: dict[str, tuple[Any, str]] = {
    "size": (int, "side of the images"),
    "crop": (int | str, "images: centre crop to this side first; celeba: released or centre"),
    "gray": (bool, "images, celeba: mean of the colour channels"),
    "group": (Literal["file", "folder"], "images: what a group is"),
    "split": (str, "celeba: train, valid, test; fastmri: train, val"),
    "partition": (str, "celeba: the split file, if it is elsewhere"),
    "slices": (tuple[int, int], "volumes: first and last slice, as [first,last]"),
    "axis": (int, "nifti, dicom: axis along which to slice"),
    "window": (tuple[float, float], "nifti, dicom: values that become black and white"),
    "complex": (bool, "nifti, dicom: as complex images of phase zero, for MRI masks"),
    "coil": (int, "ismrmrd: which coil"),
    "key": (str, "array: which dataset"),
    "scale": (float, "divide by this"),
    "n": (int, "phantom: how many"),
    "seed": (int, "phantom: which"),
}
FAMILIES = (
    "patches",
    "pixels",
    "noise",
    "lines",
    "gaussian_lines",
    "equispaced_lines",
    "poisson_disc",
    "blur",
    "hadamard",
    "bands",
)


@dataclass(frozen=True)
class Command:
    help: str
    add_options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 2 and one sentence for what the person at the keyboard can mend; 130 when interrupted."""
    try:
        chosen = make_parser().parse_args(arguments)
    except UnicodeDecodeError:
        return _complain("", "the file given by --config is not a text: give YAML.", 2)
    name = chosen.subcommand
    try:
        COMMANDS[name].run(chosen[name])
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(name, f"{where}{error.strerror or error}", 2)
    except ValueError as error:
        return _complain(name, str(error), 2)
    except BrokenProcessPool:
        return _complain(name, "a worker process died, perhaps for want of memory: use fewer --workers.", 1)
    except KeyboardInterrupt:
        again = "with --resume to go on from the last checkpoint" if name == "train" else "to go on or start over"
        return _complain(name, f"interrupted; nothing is left half-written, run it again {again}.", 130)
    return 0


def _complain(name: str, message: str, code: int) -> int:
    rank = os.environ.get("RANK")  # one of many processes: each says what is wrong where it runs
    where = f" (process {rank})" if rank else ""
    sys.stderr.write(f"{f'gsure {name}'.rstrip()}{where}: {message}\n")
    return code


def make_parser() -> ArgumentParser:
    about = "Train diffusion models from noisy, incomplete measurements alone, and use them."
    parser = ArgumentParser(prog="gsure", description=about, version=f"gsure {__version__}", allow_abbrev=False)
    commands = parser.add_subcommands()
    for name, command in COMMANDS.items():
        sub = ArgumentParser(description=command.help, allow_abbrev=False)
        sub.add_argument("--config", action="config", help="a YAML file of these options; --print_config writes one")
        command.add_options(sub)
        sub.add_argument("--json", action="store_true", help="print what was done as JSON, and no progress")
        commands.add_subcommand(name, sub, help=command.help)
    return parser


def _add_writing_options(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, help="only the first so many samples")
    parser.add_argument("--shards", type=int, default=1, help="write a folder of so many files instead of one")
    parser.add_argument("--force", action="store_true", help="replace the output if it exists")


def _corrupt_options(parser: ArgumentParser) -> None:
    parser.add_argument("signals", type=str, help="digits, phantom, a path, or kind:path")
    parser.add_argument("out", type=str, help="the measurement file to write")
    parser.add_argument("--corruption", type=str, required=True, help=f"one of {', '.join(FAMILIES)}")
    for name, (kind, text) in FAMILY_OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind, help=text)
    parser.add_argument(
        "--sigma", type=float | tuple[float, float], required=True, help="noise; a number or [low,high]"
    )
    parser.add_argument("--clean", type=str, help="write the clean signals to this second file")
    for name, (kind, text) in SOURCE_OPTIONS.items():
        parser.add_argument(f"--source.{name}", type=kind, help=text)
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    parser.add_argument("--seed", type=int, default=0, help="of masks and noise")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    _add_writing_options(parser)


def _corrupt(options: Namespace) -> None:
    from gsure import corruption
    from gsure.command.corrupt import corrupt
    from gsure.command.inspect import inspect
    from gsure.source import open_source

    if options.corruption not in FAMILIES:
        raise ValueError(f"There is no corruption {options.corruption!r}; there are {', '.join(FAMILIES)}.")
    family = _make(
        corruption.FAMILIES[options.corruption], _given(options, FAMILY_OPTIONS), f"--corruption {options.corruption}"
    )
    skip_bad = {"skip_bad": True} if options.skip_bad else {}
    source = open_source(options.signals, **_given(options.source, SOURCE_OPTIONS), **skip_bad)
    corrupt(
        source,
        options.out,
        family,
        options.sigma,
        clean=options.clean,
        limit=options.limit,
        shards=options.shards,
        workers=options.workers,
        seed=options.seed,
        force=options.force,
        progress=not options.json,
    )
    summary = inspect(options.out)
    _show(summary, options.json)
    if summary["coverage"]["never covered"] and (advice := family.advice(source.shape)):
        sys.stderr.write(f"{advice}\n")


def _given(options: Namespace, known: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    return {name: options[name] for name in known if options[name] is not None}


def _make(kind: type, options: dict[str, Any], what: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if foreign := [name for name in options if name not in fields]:
        takes = ", ".join(f"--{name}" for name in fields) or "no options"
        raise ValueError(f"{what} has no option --{foreign[0]}; it takes {takes}.")
    needed = [name for name, field in fields.items() if field.default is field.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in options]:
        raise ValueError(f"{what} needs --{missing[0]}.")
    return kind(**options)


def _import_options(parser: ArgumentParser) -> None:
    parser.add_argument("kind", type=Literal["fastmri", "cfl", "array"], help="of the data")
    parser.add_argument("path", type=str, help="file or folder of measured spectra")
    parser.add_argument("out", type=str, help="the measurement file to write")
    sigma = "noise after scaling; or the word estimate; or a .npy or an array beside the data, one for each sample"
    parser.add_argument("--sigma", type=float | str, required=True, help=sigma)
    parser.add_argument("--mask", type=str, help=".npy, .cfl, or an array beside the data; else zeros count as dropped")
    parser.add_argument("--basis", type=str, default="Fourier", help="in which the data was measured")
    parser.add_argument("--scale", type=float, default=1.0, help="divide by this (fastMRI knees: 7e-5)")
    parser.add_argument("--key", type=str, help="dataset of an HDF5 file")
    parser.add_argument("--slices", type=tuple[int, int], help="first and last slice of fastMRI volumes")
    _add_writing_options(parser)


def _import(options: Namespace) -> None:
    from gsure import basis
    from gsure.command.inspect import inspect
    from gsure.command.measured import import_

    names = ["Identity", "Fourier", "Hartley", "Cosine", "Hadamard"]
    if options.basis not in names:
        raise ValueError(f"There is no basis {options.basis!r}; there are {', '.join(names)}; others in Python.")
    import_(
        options.kind,
        options.path,
        options.out,
        options.sigma,
        mask=options.mask,
        basis=getattr(basis, options.basis)(),
        scale=options.scale,
        key=options.key,
        slices=options.slices,
        limit=options.limit,
        shards=options.shards,
        force=options.force,
        progress=not options.json,
    )
    _show(inspect(options.out), options.json)


def _train_options(parser: ArgumentParser) -> None:
    parser.add_argument("data", type=str, help="a measurement file, or a folder of shards")
    parser.add_argument("--out", type=str, required=True, help="folder of the run")
    parser.add_argument("--preset", type=str, help=f"settings made for a purpose: {', '.join(preset_names())}")
    parser.add_argument("--clean", type=str, help="clean signals: an oracle's data; else only to log the true error")
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint in --out")
    parser.add_argument(
        "--force", action="store_true", help="put a run in --out aside; or resume with changed settings"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument("--threads", type=int, help="CPU threads of a process; PyTorch's choice if not given")
    parser.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, in the folder of the run")
    for setting in dataclasses.fields(Settings):
        about = f"{setting.metadata['help']} (default: {_plain(setting.default)})"
        kind = {"action": ActionYesNo(no_prefix="no-")} if setting.type is bool else {"type": setting.type}
        parser.add_argument(option(setting.name), default=SUPPRESS, help=about, **kind)


def _train(options: Namespace) -> None:
    import torch

    from gsure.command.inspect import inspect
    from gsure.command.train import train
    from gsure.run.folder import Run

    given = {setting.name: options[setting.name] for setting in dataclasses.fields(Settings) if setting.name in options}
    if options.preset is not None:
        given = read_preset(options.preset) | given
    run = Run(Path(options.out))
    before = run.config.settings if options.resume and run.exists() else Settings()
    settings = dataclasses.replace(before, **given)
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, but is {options.threads}.")
        torch.set_num_threads(options.threads)
    if options.dry_run:
        chosen = {name: _plain(value) for name, value in dataclasses.asdict(settings).items()}
        sys.stdout.write(json.dumps(chosen) + "\n" if options.json else yaml.safe_dump(chosen, sort_keys=False))
        return
    train(
        options.data,
        options.out,
        settings,
        clean=options.clean,
        resume=options.resume,
        force=options.force,
        tensorboard=options.tensorboard,
        progress=not options.json,
    )
    if os.environ.get("RANK", "0") == "0":
        _show(inspect(options.out), options.json)


def _add_drawing_options(parser: ArgumentParser, batch: int) -> None:
    parser.add_argument("--out", type=str, required=True, help="folder to write; one that was begun is completed")
    parser.add_argument(
        "--which", type=Literal["best", "last"] | int, default="best", help="checkpoint: best, last, a step"
    )
    parser.add_argument("--batch", type=int, default=batch, help="signals that go through the network at once")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")


def _sample_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint")
    parser.add_argument("--n", type=int, required=True, help="how many")
    parser.add_argument(
        "--sampler", type=Literal["ddim", "ddpm", "dpm++", "unipc"], default="ddim", help="docs/sampling.md"
    )
    parser.add_argument("--steps", type=int, default=50, help="network calls for each")
    parser.add_argument("--eta", type=float, default=0.0, help="ddim: 0 deterministic, 1 ancestral")
    parser.add_argument(
        "--spacing", type=Literal["even", "quadratic", "logsnr"], help="of times; the sampler's own if not given"
    )
    parser.add_argument("--clip", action="store_true", help="keep each estimate within -1..1; for images only")
    _add_drawing_options(parser, batch=128)


def _sample(options: Namespace) -> None:
    from gsure.command.sample import sample

    samples = sample(
        options.run,
        options.out,
        options.n,
        sampler=options.sampler,
        steps=options.steps,
        eta=options.eta,
        spacing=options.spacing,
        clip=options.clip,
        which=options.which,
        batch=options.batch,
        seed=options.seed,
        progress=not options.json,
    )
    summary = {"folder": options.out, "samples": len(samples), "shape": list(samples.shape)}
    _show(summary | {"picture": str(Path(options.out) / "grid.png")}, options.json)


def _restore_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, help="folder of a run, or a checkpoint")
    parser.add_argument("measurements", type=str, help="what to restore, a file or a folder of shards")
    parser.add_argument("--draws", type=int, default=8, help="of which mean and standard deviation are taken")
    parser.add_argument(
        "--method", type=Literal["ddrm", "moments"], default="ddrm", help="moments is more accurate, and slower"
    )
    parser.add_argument("--steps", type=int, default=100, help="network calls for each draw")
    parser.add_argument("--eta", type=float, default=0.85, help="0 deterministic, 1 as random as possible")
    parser.add_argument("--spacing", type=Literal["even", "quadratic", "logsnr"], default="even", help="of times")
    parser.add_argument("--eta-b", type=float, default=1.0, help="ddrm: how firmly kept entries are held")
    parser.add_argument("--clean", type=str, help="the clean signals, to tell PSNRs and show errors")
    parser.add_argument("--limit", type=int, help="only the first so many")
    parser.add_argument(
        "--volumes", type=Literal["nifti", "cfl"], help="also write volumes for other tools, one a group"
    )
    parser.add_argument("--panels", type=int, default=8, help="of how many to draw pictures")
    _add_drawing_options(parser, batch=64)


def _restore(options: Namespace) -> None:
    from gsure.command.restore import restore

    summary = restore(
        options.run,
        options.measurements,
        options.out,
        draws=options.draws,
        method=options.method,
        steps=options.steps,
        eta=options.eta,
        eta_b=options.eta_b,
        spacing=options.spacing,
        which=options.which,
        limit=options.limit,
        clean=options.clean,
        panels=options.panels,
        volumes=options.volumes,
        batch=options.batch,
        seed=options.seed,
        progress=not options.json,
    )
    _show(summary, options.json)


def _plain(value: Any) -> Any:
    """As YAML has it."""
    return list(value) if isinstance(value, tuple) else value


def _inspect_options(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=str, help="a measurement file, a folder of shards, clean signals, or a run")
    parser.add_argument("--figure", type=str, help="write a picture of the first samples to this PNG")
    parser.add_argument("--clean", type=str, help="the file of clean signals, to show them in the figure too")
    parser.add_argument("--force", action="store_true", help="replace the figure if it exists")


def _inspect(options: Namespace) -> None:
    from gsure.command.inspect import inspect

    _show(inspect(options.path, options.figure, options.clean, options.force), options.json)


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
        return
    width = max(map(len, summary))
    sys.stdout.writelines(f"{key:<{width}}  {_in_words(value)}\n" for key, value in summary.items())


def _in_words(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key} {_in_words(item)}" for key, item in value.items() if item not in (None, {}))
        case [] | ():
            return "-"
        case list() | tuple():
            return f"[{value[0]:g}, {value[1]:g}]" if isinstance(value[0], float) else " × ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case int():
            return f"{value:,}"
        case None:
            return "-"
    return str(value)


COMMANDS = {
    "corrupt": Command("simulate measurements of clean signals", _corrupt_options, _corrupt),
    "import": Command("make a measurement file of data that is already measured", _import_options, _import),
    "train": Command("learn from measurements alone", _train_options, _train),
    "sample": Command("generate signals with a trained model", _sample_options, _sample),
    "restore": Command("reconstruct measurements, with error bars", _restore_options, _restore),
    "inspect": Command("say what is in a file, and draw it", _inspect_options, _inspect),
}
