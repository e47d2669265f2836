"""The command line: what it imports, what it prints, and what it records."""

import json
import subprocess
import sys
from typing import get_args

import pytest

from gsure.cli import COMMANDS, main, make_parser
from gsure.cli import demo as demo_command
from gsure.data.convert import Kind
from gsure.experiments.demo import Kind as Demo
from gsure.experiments.plan import Scale
from gsure.files import record_request
from gsure.inference.restore import Method
from gsure.inference.sample import Sampler
from gsure.inference.volumes import Format
from gsure.sampling import Spacing


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

    monkeypatch.setitem(demo_command.COMMANDS, "demo", demo_command.Command(demo_command._options, run))
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
        ("demo", "kind", Demo),
        ("reproduce", "scale", Scale),
    ],
)
def test_the_command_line_names_what_the_modules_name(command, option, names):
    """They are written out in cli/, so that --help need not import torch."""
    assert choices(command, option) == set(get_args(names))
