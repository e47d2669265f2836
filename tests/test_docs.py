"""The pages about data say what is: links lead somewhere, commands parse, options exist, and data.md shows what happens."""

import dataclasses
import importlib.util
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
from conftest import ROOT

from gsure.cli import make_parser
from gsure.corruption import FAMILIES
from gsure.data.convert import Kind
from gsure.data.sources import KINDS
from gsure.training.settings import Settings, option, preset_names

DOCS = ROOT / "docs"
PAGES = {f"sources/{name}": kind for name, kind in KINDS.items()}
PAGES |= {f"corruptions/{name}": family for name, family in FAMILIES.items()}
MARKDOWN = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def figures():
    """docs/make_figures.py, which reads and runs the pages."""
    spec = importlib.util.spec_from_file_location("make_figures", DOCS / "make_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prose(page: Path) -> str:
    """Without blocks of code, in which brackets mean something else."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub names headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_a_page_for_every_kind_and_family_and_for_nothing_else(figures):
    assert set(figures.pages()) == {"data", *PAGES}
    for page in PAGES:
        assert f"({page}.md)" in (DOCS / "data.md").read_text()
        assert "(../data.md)" in (DOCS / f"{page}.md").read_text()


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_has_a_header(page):
    """A blank line inside of a table ends it: its other rows are then shown as text."""
    tables = re.findall(r"^(?<!\|\n)\|.*\n(.*)", prose(page), flags=re.MULTILINE)
    assert [line for line in tables if not re.fullmatch(r"\|[-:| ]+\|", line)] == []


@pytest.mark.parametrize("page", ["data", *PAGES])
def test_every_figure_is_there_small_and_made_by_a_command_of_its_page(page, figures):
    text = (DOCS / f"{page}.md").read_text()
    commands = [step.code for step in figures.steps(page) if "--figure" in step.code]
    made = {shlex.split(command)[-1] for command in commands if command.endswith(".png")}
    shown = {Path(link).name: link for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)}
    assert shown
    assert set(shown) <= made
    for link in shown.values():
        picture = ((DOCS / f"{page}.md").parent / link).resolve()
        assert picture.parent == DOCS / "figures" / Path(page).parent
        assert picture.stat().st_size < 250_000
    assert sum(p.stat().st_size for p in (DOCS / "figures").rglob("*.png")) < 5_000_000


@pytest.mark.parametrize(("page", "described"), PAGES.items())
def test_the_table_of_options_has_those_of_the_class(page, described):
    options = re.findall(r"^\| `--(?:source\.)?([\w-]+)` \|", (DOCS / f"{page}.md").read_text(), flags=re.MULTILINE)
    fields = {field.name for field in dataclasses.fields(described) if field.init} - {"path"}
    assert {option.replace("-", "_") for option in options} == fields


def test_every_command_is_understood(figures):
    parser = make_parser()
    commands = [step.code for page in figures.pages() for step in figures.steps(page) if step.is_command]
    assert len(commands) > 40
    for command in commands:
        parser.parse_args(shlex.split(command)[1:])


def test_data_md_opens_with_commands_that_are_understood():
    """The table "your file, the command" names every kind of measured data."""
    first = (DOCS / "data.md").read_text().split("```")[0]
    commands = re.findall(r"^\| .* \| `(gsure [^`]*)` \|$", first, flags=re.MULTILINE)
    assert len(commands) > 8
    parser = make_parser()
    for command in commands:
        parser.parse_args(shlex.split(command)[1:])
    assert {command.split()[2] for command in commands if " import " in command} == set(get_args(Kind))


def test_data_md_runs_as_printed(figures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step, printed in figures.run_page("data"):
        wrong = figures.differences(step, printed)
        assert [line for line in wrong if not re.match(r"(source|bytes|gsure) {2}", line)] == [], (
            printed
        )  # versions differ
    assert (tmp_path / "digits.png").is_file()
    assert not (tmp_path / "e.h5").exists()


def test_a_page_that_shows_what_was_not_printed_is_caught(figures):
    step = figures.Step("gsure inspect d.h5", ("samples   1,797", "...", "groups 2"), is_command=True)
    assert figures.differences(step, "samples  1,797 \ngroups  1,797\n") == ["groups 2"]


def test_every_writer_makes_what_its_page_reads(figures, tmp_path, monkeypatch):
    """Not the pages with real data, and of the others not the figures: those take a minute, and docs/make_figures.py."""
    from gsure.data.sources import open_source

    for page, write in figures.WRITERS.items():
        folder = tmp_path / page
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        write()
        command = shlex.split(next(step.code for step in figures.steps(page) if step.is_command))
        split = {"split": "train"} if "--source.split" in command else {}
        size = {"size": 64} if page == "sources/images" else {}
        group = {"group": "folder"} if "--source.group" in command else {}
        source = open_source(command[2], **split, **size, **group)
        assert len(source) >= 6
        groups = {source[k].group for k in range(len(source))}
        shown = re.findall(r"^groups +(\S+)$", (DOCS / f"{page}.md").read_text(), flags=re.MULTILINE)
        assert set(shown) <= {str(len(groups))}, page


def test_the_table_of_settings_is_that_of_the_class():
    rows = re.findall(
        r"^\| `(--[\w-]+)`( \*)? \| ([^|]*) \| ([^|]*) \|$", (DOCS / "training.md").read_text(), re.MULTILINE
    )
    documented = {option: (bool(star), meaning) for option, star, _, meaning in rows}
    settings = dataclasses.fields(Settings)
    assert documented == {option(s.name): (s.metadata["free"], s.metadata["help"]) for s in settings}


def test_the_table_of_presets_names_them_all():
    table = (DOCS / "training.md").read_text()
    for name in preset_names():
        base = name.removesuffix("-oracle").removesuffix("-naive")
        assert f"`{base}`" in table or f"`{base[-4:]}`" in table, base


@pytest.mark.parametrize(
    "page", ["training", "sampling", "restoration", "report", "evaluation", "diagnosis", "command-line"]
)
def test_every_command_of_the_pages_about_models_is_understood(figures, page):
    commands = [step.code for step in figures.steps(page) if step.is_command]
    assert commands
    for command in commands:
        words = shlex.split(command)[1:]
        if not {"--print_config", "--config", "--help", ">"} & set(words):
            make_parser().parse_args(words)
