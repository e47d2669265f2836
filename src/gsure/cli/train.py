"""train: the settings come from a preset, from options, and from the run that is resumed."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import SUPPRESS, ActionYesNo, ArgumentParser, Namespace

from gsure.cli import Command, call, show
from gsure.training.settings import Settings, option, preset_names, read_preset


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("data", type=str, help="measurement file, or a folder of shards")
    parser.add_argument("--out", type=str, required=True, help="folder of the run")
    parser.add_argument("--preset", type=str, help=f"settings to start from: {', '.join(preset_names())}")
    parser.add_argument(
        "--clean",
        type=str,
        help="clean signals, for --train-on clean or to log the true error",
    )
    parser.add_argument("--resume", action="store_true", help="resume from the latest checkpoint in --out")
    parser.add_argument(
        "--force", action="store_true", help="move an existing run in --out aside; or resume with changed settings"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the settings and stop")
    parser.add_argument("--threads", type=int, help="CPU threads of each process, instead of PyTorch's choice")
    parser.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, in the folder of the run")
    for setting in dataclasses.fields(Settings):
        about = f"{setting.metadata['help']} (default: {_as_yaml(setting.default)})"
        kind = {"action": ActionYesNo(no_prefix="no-")} if setting.type is bool else {"type": setting.type}
        parser.add_argument(option(setting.name), default=SUPPRESS, help=about, **kind)


def _train(options: Namespace) -> None:
    import torch

    from gsure.training.run import Run, inspect
    from gsure.training.train import train

    given = {setting.name: options[setting.name] for setting in dataclasses.fields(Settings) if setting.name in options}
    if options.preset is not None:
        given = read_preset(options.preset, given)
    run = Run(Path(options.out))
    before = run.config.settings if options.resume and run.exists() else Settings()
    settings = dataclasses.replace(before, **given)
    if options.threads is not None:
        if options.threads < 1:
            raise ValueError(f"--threads must be at least 1, but is {options.threads}.")
        torch.set_num_threads(options.threads)
    if options.dry_run:
        chosen = {name: _as_yaml(value) for name, value in dataclasses.asdict(settings).items()}
        sys.stdout.write(json.dumps(chosen) + "\n" if options.json else yaml.safe_dump(chosen, sort_keys=False))
        return
    call(train, options, settings=settings, network=None)  # --network is a setting; train(network=) a module
    if os.environ.get("RANK", "0") == "0":
        show(inspect(options.out), options.json)


def _as_yaml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


COMMANDS = {"train": Command(_options, _train)}
