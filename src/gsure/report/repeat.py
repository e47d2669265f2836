"""The commands that made what is on the page, put together from what the files say; and those that are still to be given."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from gsure.report.collect import Drawn, Facts, Trained
from gsure.training.settings import Settings, option, preset_names, read_preset


class Step(NamedTuple):
    """A command, with the reason for it."""

    why: str
    command: str


def commands(facts: Facts) -> list[Step]:
    """From nothing to this page, to be given in the root of the report. What another program made is left out."""
    steps = []
    made: set[str] = set()
    for run in facts.runs:
        line = corrupt_command(facts, run)
        if line and line not in made:
            made.add(line)
            steps.append(Step("the measurements", line))
    steps += [
        Step(f"a model: {run.label}", train_command(facts, run)) for run in facts.runs if not run.config.own_network
    ]
    steps += [Step(f"samples: {drawn.label}", _sample_command(facts, drawn)) for drawn in facts.samples]
    steps += [Step(f"restorations: {drawn.label}", _restore_command(facts, drawn)) for drawn in facts.restorations]
    told = [("an evaluation", evaluation.values) for evaluation in facts.evaluations]
    told += [("the diagnosis", diagnosis.values) for diagnosis in facts.diagnoses]
    steps += [Step(why, values["command"]) for why, values in told if isinstance(values.get("command"), str)]
    return [*steps, Step("this page", "gsure report .")]


def missing(facts: Facts) -> list[Step]:
    """What the page would show if it were there, and how to make it."""
    main, data = facts.main, facts.main.config
    name, file = facts.shown(main.path), facts.shown(data.data)
    steps = []
    for run in facts.runs:
        if not run.is_finished:
            line = shlex.join(["gsure", "train", facts.shown(run.config.data), "--out", facts.shown(run.path)])
            far = f"{run.label}: training has come to step {run.step:,} of {run.config.settings.steps:,}"
            steps.append(Step(far, f"{line} --resume"))
    if main.config.own_network:
        return steps
    if main not in [drawn.run for drawn in facts.samples]:
        line = shlex.join(["gsure", "sample", name, "--n", "64", "--out", _join(name, "generated")])
        steps.append(Step("no samples were drawn", line))
    restored = [drawn for drawn in facts.restorations if drawn.run == main]
    if not restored:
        clean = ["--clean", facts.shown(data.clean)] if data.clean else []
        options = ["--limit", "8", *clean, "--out", _join(name, "restored")]
        steps.append(Step("nothing was restored", shlex.join(["gsure", "restore", name, file, *options])))
    kinds = {evaluation.values.get("kind") for evaluation in facts.evaluations if evaluation.run == main}
    drawn = [found for found in facts.samples if found.run == main]
    if drawn and "samples" not in kinds:
        known = ["--reference", facts.shown(data.clean)] if data.clean else ["--measurements", file]
        where = ["samples", facts.shown(drawn[0].path), *known]
        steps.append(Step("the samples were not evaluated", shlex.join(["gsure", "evaluate", *where])))
    if main.role != "clean" and main not in [diagnosis.run for diagnosis in facts.diagnoses]:
        oracle = facts.comparable(main, "clean")
        more = ["--clean", facts.shown(data.clean)] if data.clean else []
        more += ["--oracle", facts.shown(oracle.path)] if data.clean and oracle is not None and oracle != main else []
        steps.append(Step("the assumptions were not checked", shlex.join(["gsure", "diagnose", name, *more])))
    return steps


def corrupt_command(facts: Facts, run: Trained) -> str | None:
    """`gsure corrupt`, if it made the data; what was really measured cannot be made again."""
    made, data_info = run.config.data_info.made_by, run.config.data_info
    source, corruption = dict(made.get("source") or {}), dict(made.get("corruption") or {})
    sigma = dict(made.get("sigma_0") or {}).get("given")
    if "options" not in source or sigma is None:
        return None
    options = dict(source["options"])
    path = options.pop("path", None)
    words = [
        "gsure",
        "corrupt",
        source["kind"] if path is None else f"{source['kind']}:{path}",
        facts.shown(run.config.data),
    ]
    words += ["--corruption", str(corruption.pop("name", "")), *_options("--", corruption), "--sigma", _value(sigma)]
    skip_bad = options.pop("skip_bad", False)
    words += [*_options("--source.", options), *(["--skip-bad"] if skip_bad else [])]
    words += ["--limit", str(data_info.samples)] if data_info.samples < source.get("samples", 0) else []
    words += ["--seed", str(made["seed"])] if made.get("seed") else []
    words += ["--clean", facts.shown(run.config.clean)] if run.config.clean else []
    return shlex.join(words)


def train_command(facts: Facts, run: Trained) -> str:
    """With the preset that leaves the fewest options to be given, if one helps."""
    settings, config = run.config.settings, run.config
    starts: dict[str | None, Settings] = {None: Settings()}
    starts |= {name: Settings(**read_preset(name)) for name in preset_names()}
    changes = {name: _changes(start, settings) for name, start in starts.items()}
    best = min(changes, key=lambda name: len(changes[name]) + (name is not None))
    words = ["gsure", "train", facts.shown(config.data), *(["--preset", best] if best else []), *changes[best]]
    words += ["--clean", facts.shown(config.clean)] if config.clean else []
    return shlex.join([*words, "--out", facts.shown(run.path)])


def _changes(start: Settings, wanted: Settings) -> list[str]:
    words: list[str] = []
    for setting in dataclasses.fields(Settings):
        value = getattr(wanted, setting.name)
        if value == getattr(start, setting.name):
            continue
        if isinstance(value, bool):
            words.append(option(setting.name) if value else option(f"no_{setting.name}"))
        else:
            words += [option(setting.name), _value(value)]
    return words


def _sample_command(facts: Facts, drawn: Drawn) -> str:
    plan = drawn.plan
    words = ["gsure", "sample", _run_of(facts, drawn), "--n", str(len(drawn.signals[""]))]
    words += _given(plan, ("sampler", "steps", "eta", "spacing", "seed"), {"eta": 0.0, "seed": 0})
    words += ["--clip"] if plan.get("clip") else []
    return shlex.join([*words, *_which(drawn), "--out", facts.shown(drawn.path)])


def _restore_command(facts: Facts, drawn: Drawn) -> str:
    plan, known = drawn.plan, {"method": "ddrm", "eta": 0.85, "eta_b": 1.0, "spacing": "even", "seed": 0}
    words = ["gsure", "restore", _run_of(facts, drawn), facts.shown(str(plan.get("data")))]
    words += ["--limit", str(len(drawn.signals["mean"]))]
    words += _given(plan, ("draws", "method", "steps", "eta", "eta_b", "spacing", "seed"), known)
    return shlex.join([*words, *_which(drawn), "--out", facts.shown(drawn.path)])


def _run_of(facts: Facts, drawn: Drawn) -> str:
    return facts.shown(drawn.run.path if drawn.run is not None else str(drawn.plan.get("run")))


def _which(drawn: Drawn) -> list[str]:
    """The checkpoint, unless it is the best, which is taken by itself."""
    step = drawn.plan.get("step")
    best = drawn.run.best_step if drawn.run is not None else step
    return [] if step is None or best in (None, step) else ["--checkpoint", str(step)]


def _given(plan: dict[str, Any], names: tuple[str, ...], usual: dict[str, Any]) -> list[str]:
    chosen = {name: plan[name] for name in names if plan.get(name) not in (None, usual.get(name))}
    return _options("--", chosen)


def _options(prefix: str, values: dict[str, Any]) -> list[str]:
    given = {name: value for name, value in values.items() if value is not None}
    return [word for name, value in given.items() for word in (f"{prefix}{name.replace('_', '-')}", _value(value))]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(_value(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _join(name: str, inner: str) -> str:
    return str(Path(name) / inner)
