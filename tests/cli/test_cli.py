"""The command line: what it imports, what it prints, and what it records."""

import dataclasses
import json
import re
import shlex
import shutil
import subprocess
import sys
from typing import get_args

import pytest

from gsure.cli import COMMANDS, main, make_parser, training
from gsure.cli import experiments as demo_command
from gsure.data.convert import Kind
from gsure.data.preparation import Combine
from gsure.experiments.demo import Kind as Demo
from gsure.experiments.plan import Scale
from gsure.files import record_request
from gsure.inference.restore import Method
from gsure.inference.sample import Sampler
from gsure.inference.volumes import Format
from gsure.sampling import Spacing
from gsure.training.settings import COMMON, GROUPS, Settings


def imported_by(*words: str) -> set[str]:
    """The modules that a command line imports, in a process of its own."""
    code = (
        "import json, sys, gsure.cli\n"
        "try: gsure.cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("words", [["--help"], ["corrupt", "--help"], ["train", "--help"], ["nothing"]])
def test_a_command_line_imports_neither_torch_nor_other_commands(words):
    modules = imported_by(*words)
    assert "torch" not in modules
    own = {f"gsure.cli.{COMMANDS[words[0]][0]}"} if words[0] in COMMANDS else set()
    assert {name for name in modules if name.startswith("gsure.cli.")} == own


def test_help_has_a_line_for_each_command_and_all_options_of_the_chosen_one(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"\n    {name} " in listed for name in COMMANDS)
    with pytest.raises(SystemExit):
        main(["diagnose", "--help"])
    assert "--reference-run" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_grouped_ends_with_examples_that_parse_and_prints_no_type_twice(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: gsure {command} ")
    assert "type:" not in text
    assert "null" not in text
    titles = re.findall(r"^(\S[^\n]*):$", text, re.MULTILINE)
    assert titles[-2:] == ["other options", "examples"]
    assert "positional arguments" not in titles
    examples = [shlex.split(line) for line in text.split("examples:\n")[1].splitlines() if line.startswith("  gsure")]
    for words in examples:
        made = [word for word in words[1:] if word != ">" and not word.startswith("~")]
        make_parser([command]).parse_args(made)
    assert len(text.split("examples:\n")[1].strip().splitlines()) >= 2


def test_the_ten_common_options_of_training_come_first(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    first = capsys.readouterr().out.split("common options:")[1].split("\n\n")[0]
    named = re.findall(r"^  (--[\w-]+|data)", first, re.MULTILINE)
    assert named[:3] == ["data", "--out", "--preset"]
    assert 8 <= len(named) <= 12


def test_every_setting_is_in_one_group():
    listed = [*COMMON, *(name for names in GROUPS.values() for name in names)]
    assert sorted(listed) == sorted(setting.name for setting in dataclasses.fields(Settings))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gsure tr", {"train"}),
        ("gsure sample run --sampler ", {"ddim", "ddpm", "dpm++", "unipc"}),
        ("gsure evaluate ", {"samples", "restorations", "denoising"}),
        ("gsure train --resu", {"--resume"}),
        ("gsure inspect some", {"somewhere.h5"}),
    ],
)
def test_the_shell_completes(line, expected, tmp_path, capsys):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "gsure.sh").write_text(capsys.readouterr().out)
    (tmp_path / "somewhere.h5").touch()
    words = [*line.split(), *([""] if line.endswith(" ") else [])]
    script = (
        f"source gsure.sh; COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; _shtab_gsure; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert set(done.stdout.split()) == expected


def test_the_version_is_printed_once(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "gsure 0.1.0\n"


def test_the_complete_parser_knows_the_options_of_all_commands():
    chosen = make_parser().parse_args(["evaluate", "samples", "drawn", "--reference", "c.h5", "--full-reference"])
    assert chosen.evaluate.full_reference is True


def test_requests_are_recorded_with_the_command_line(monkeypatch):
    requests = []

    def run(options):
        requests.append(record_request("demo", {"out": options.out}))

    command = dataclasses.replace(demo_command.COMMANDS["demo"], run=run)
    monkeypatch.setitem(demo_command.COMMANDS, "demo", command)
    words = ["demo", "digits", "--out", "a b"]
    assert main(words) == 0
    monkeypatch.setattr(sys, "argv", ["gsure", *words])
    assert main() == 0
    assert [request["command"] for request in requests] == [["gsure", *words]] * 2
    assert record_request("demo", {})["command"] is None


def choices(command: str, option: str) -> set:
    """What an option of the command line may be."""
    parser = make_parser()._subparsers._group_actions[0].choices[command]
    (action,) = (action for action in parser._actions if action.dest == option)
    return set(get_args(action._typehint))


@pytest.mark.parametrize(
    ("command", "option", "names"),
    [
        ("sample", "sampler", Sampler),
        ("sample", "spacing", Spacing),
        ("restore", "spacing", Spacing),
        ("restore", "method", Method),
        ("restore", "volumes", Format),
        ("import", "kind", Kind),
        ("import", "combine", Combine),
        ("demo", "kind", Demo),
        ("reproduce", "scale", Scale),
    ],
)
def test_the_command_line_names_what_the_modules_name(command, option, names):
    """They are written out in cli/, so that --help need not import torch."""
    assert choices(command, option) == set(get_args(names))


def test_an_interrupted_training_is_resumed_only_if_there_is_a_run(tmp_path, monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(training.COMMANDS, "train", dataclasses.replace(training.COMMANDS["train"], run=interrupt))
    assert main(["train", "d.h5", "--out", str(tmp_path)]) == 130
    assert "run the command again to resume or start over" in capsys.readouterr().err
    (tmp_path / "config.yaml").touch()
    assert main(["train", "d.h5", "--out", str(tmp_path)]) == 130
    assert "run the command again with --resume" in capsys.readouterr().err
