"""train: the settings come from a preset, from options, and from the run that is resumed."""

import contextlib
import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import SUPPRESS, ArgumentParser, Namespace

from gsure.cli import Command, Options, call, show
from gsure.training.settings import COMMON, GROUPS, Settings, option, preset_names, read_preset, refuse_values


def _options(parser: ArgumentParser) -> None:
    common = Options(parser, "common options")
    common.add("data", str, "measurement file, or a folder of shards")
    common.add("--out", str, "folder of the run", metavar="FOLDER", required=True)
    about = (
        "settings to start from: auto (the default) chooses most of them by the data and prints them; plain takes the "
        "defaults that this help shows; or "
    )
    common.add("--preset", str, about + ", ".join(preset_names()))
    common.add("--clean", str, "clean signals, for --train-on clean or to log the true error", metavar="FILE")
    _add_settings(common, COMMON)
    common.add("--resume", bool, "resume from the latest checkpoint in --out")
    common.add("--force", bool, "move an existing run in --out aside; or resume with changed settings")
    common.add("--dry-run", bool, "check everything, print the settings and the cost, and stop")
    for title, names in GROUPS.items():
        group = Options(parser, title)
        if title == "model":
            group.add("--init", str, "start from the weights of this run", metavar="RUN")
        _add_settings(group, names)
    computing = Options(parser, "computing")
    computing.add("--device", str, "device, such as cpu or cuda:1; by default a GPU if there is one")
    computing.add("--threads", int, "CPU threads of each process, instead of PyTorch's choice")
    computing.add("--tensorboard", bool, "also log for TensorBoard, in the folder of the run")


def _add_settings(options: Options, names: tuple[str, ...]) -> None:
    settings = {setting.name: setting for setting in dataclasses.fields(Settings)}
    for setting in (settings[name] for name in names):
        default = setting.default
        shown = ("yes" if default else "no") if isinstance(default, bool) else _as_yaml(default)
        about = f"{setting.metadata['help']} (default: {shown})"
        metavar = "[N,...]" if isinstance(default, tuple) else None
        kind: Any = setting.type
        options.add(option(setting.name), kind, about, SUPPRESS, metavar)


def _train(options: Namespace) -> None:
    import torch

    from gsure.training.run import Run, inspect
    from gsure.training.setup import refuse_folder
    from gsure.training.train import train

    given = {setting.name: options[setting.name] for setting in dataclasses.fields(Settings) if setting.name in options}
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, but is {options.threads}.")
        torch.set_num_threads(options.threads)
    if options.dry_run:
        _rehearse(options, given)
        return
    refuse_folder(
        Run(Path(options.out)), options.resume, options.force
    )  # before settings are chosen, which takes seconds
    settings = _settings(options, given)
    own = {"network": None, "minutes": None}  # --network and --minutes are settings; train(network=) is a module
    call(train, options, settings=settings, **own)
    if os.environ.get("RANK", "0") == "0":
        show(inspect(options.out), options.json)


def _settings(options: Namespace, given: dict[str, Any], shown: bool = True) -> Settings:
    """Those of the run that is resumed, of a preset, or those that fit the data; with what was given on the command line."""
    from gsure.training.run import Run

    fits_the_time = given.get("steps", 0 if options.preset in (None, "auto") else 1) == 0
    if given.get("minutes") and not fits_the_time and not options.resume:
        where = f"--steps {given['steps']}" if "steps" in given else f"the steps of --preset {options.preset}"
        raise ValueError(f"--minutes has no effect beside {where}: add --steps 0, or omit --minutes.")
    if options.resume and (run := Run(Path(options.out))).exists():
        return dataclasses.replace(run.config.settings, **given)
    if options.preset == "plain":
        return Settings(**given)
    if options.preset not in (None, "auto"):
        return Settings(**read_preset(options.preset, given))
    refuse_values(given)
    import torch

    from gsure.data.measurements import open_measurements
    from gsure.display import say
    from gsure.training.auto import choose_settings

    chosen = choose_settings(open_measurements(options.data), given, options.device)
    if options.threads is None:
        torch.set_num_threads(chosen.threads)
    for choice in chosen.choices if shown and os.environ.get("RANK", "0") == "0" else ():
        say(choice.as_option())
    return chosen.settings


def _rehearse(options: Namespace, given: dict[str, Any]) -> None:
    """Print what would be refused and what the run would cost; an error lists all problems."""
    from gsure.training.run import Run
    from gsure.training.train import dry_run

    run, problems = Run(Path(options.out)), list[str]()
    settings = run.config.settings if options.resume and run.exists() else Settings()
    try:
        settings = _settings(options, given, shown=False)
    except ValueError as error:
        problems += str(error).splitlines()
        for name, value in given.items():  # those that are valid, to see what else is wrong
            with contextlib.suppress(ValueError):
                settings = dataclasses.replace(settings, **{name: value})
    found = call(dry_run, options, settings=settings, network=None)
    if problems := list(dict.fromkeys(problems + found.pop("problems"))):
        count = "One problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ValueError(f"{count} to fix before training:\n" + "\n".join(f"  - {problem}" for problem in problems))
    chosen = {name: _as_yaml(value) for name, value in dataclasses.asdict(settings).items()}
    if options.json:
        show({"settings": chosen} | found, as_json=True)
        return
    sys.stdout.write(yaml.safe_dump(chosen, sort_keys=False) + "\n")
    show(found, as_json=False)


def _as_yaml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


COMMANDS = {
    "train": Command(
        "gsure train DATA --out RUN [options]",
        _options,
        _train,
        (
            "gsure train d.h5 --preset digits --out runs/digits",
            "gsure train d.h5 --out runs/digits --resume",
        ),
    )
}
