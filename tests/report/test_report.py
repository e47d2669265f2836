"""`gsure report` writes a self-contained page that says what the files say and looks right in a browser."""

import base64
import dataclasses
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import browser
import numpy as np
import pytest
import torch
from PIL import Image
from running import QUICK, make_files

import gsure
from gsure.cli import main, make_parser
from gsure.files import as_request
from gsure.plotting import mosaics
from gsure.report import write_report
from gsure.report.collect import collect
from gsure.report.gallery import Gallery
from gsure.report.tables import errors, validation_table
from gsure.report.words import next_commands, recorded_commands, verdict

ROLES = ("measurements", "clean", "naive")
VOID = {"input", "img", "meta", "link", "br", "line", "path", "use", "rect", "circle"}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Three runs of the same data, samples and restorations by each, evaluations and a diagnosis."""
    folder = tmp_path_factory.mktemp("made")
    make_files(folder)
    for role in ROLES:
        settings = dataclasses.replace(QUICK, train_on=role)
        gsure.train(folder / "d.h5", folder / "runs" / role, settings, clean=folder / "c.h5")
        gsure.sample(folder / "runs" / role, 12, folder / "samples" / role, steps=3)
        options = {"draws": 2, "steps": 3, "clean": folder / "c.h5", "panels": 0}
        gsure.restore(folder / "runs" / role, folder / "d.h5", folder / "restored" / role, limit=5, **options)
    for role, value in zip(ROLES, (4.0, 2.0, 10.0), strict=True):
        evaluate(folder / "samples" / role, value)
    diagnose(folder / "runs" / "measurements")
    return folder


def as_typed(function: str, *words: str, folder: str = "/work") -> dict:
    """A request as `record_request` returns it."""
    return {"function": function, "command": list(words), "folder": folder, "arguments": {}}


def evaluate(folder: Path, value: float, **changes) -> None:
    """As `gsure evaluate` writes it."""
    metric = {"value": value, "floor": 0.5, "se": None, "better": "lower"}
    record = {"kind": "samples", "of": str(folder), "run": None, "n": 20, "features": {"name": "pca-4"}, "seed": 0}
    record |= {
        "reference": {"path": "c.h5", "n": 60},
        "metrics": {"frechet": metric},
        "warnings": [],
        "request": as_typed("evaluate_samples", "gsure", "evaluate", "samples", str(folder)),
    }
    (folder / "evaluation.json").write_text(json.dumps(record | changes))


def diagnose(run: Path, words: str = "It was looked at.", figure: str | None = "figure.png") -> None:
    """As `gsure diagnose` writes it."""
    folder = run / "diagnosis"
    folder.mkdir(exist_ok=True)
    Image.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(folder / "figure.png")
    check = {
        "name": "one",
        "title": "A check",
        "verdict": "doubtful for t < 300",
        "words": words,
        "numbers": {"a": 0.25},
    }
    record = {"run": str(run), "checks": [{**check, "figure": figure}]}
    record["request"] = as_typed("diagnose", "gsure", "diagnose", str(run))
    (folder / "diagnosis.json").write_text(json.dumps(record))


@pytest.fixture(scope="module")
def page(made) -> Path:
    write_report(made, made / "report.html")
    return made / "report.html"


class Parsed(HTMLParser):
    """The elements of a page, its text, and whether every element is closed."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page.read_text())
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def of(self, *tags: str) -> list[dict]:
        return [attributes for tag, attributes in self.elements if tag in tags]


def words(page: Path) -> str:
    return " ".join(Parsed(page).text.split())


# A self-contained page


def test_the_page_is_one_small_file_without_urls_and_with_one_known_script(page):
    text, parsed = page.read_text(), Parsed(page)
    assert len(text) < 3_000_000
    assert not re.search(r"https?://", text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert not re.search(r"fetch|XMLHttp|import|eval|innerHTML", script)
    assert not parsed.of("iframe", "object", "embed", "form")
    for attributes in (attributes for _, attributes in parsed.elements):
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action"):
            assert re.match(r"data:|#", attributes.get(name) or "#")
    assert not re.search(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text  # tells the browser to load nothing


def test_every_picture_has_an_alternative_text(page):
    parsed = Parsed(page)
    images, drawings = parsed.of("img"), [a for a in parsed.of("div") if a.get("role") == "img"]
    assert len(images) > 15
    assert len(drawings) == 3 + 3  # of training, and the reliability of each folder of restorations
    assert all(image["src"].startswith("data:image/png;base64,") and len(image["alt"]) > 20 for image in images)
    assert all(len(drawing["aria-label"]) > 60 for drawing in drawings)
    assert all(svg.get("aria-hidden") == "true" for svg in parsed.of("svg"))


def test_the_page_is_accessible_to_screen_readers(page):
    parsed = Parsed(page)
    assert parsed.of("html") == [{"lang": "en"}]
    for landmark in ("header", "main", "footer", "nav", "h1", "title"):
        assert len(parsed.of(landmark)) == 1
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(parsed.of("caption")) == len(parsed.of("table")) >= 5
    assert all(attributes.get("scope") in ("col", "row") for attributes in parsed.of("th"))
    names = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(set(names)) == len(names)
    assert {attributes["href"][1:] for attributes in parsed.of("a", "use")} <= set(names)


# The content of the files


def test_numbers_equal_those_of_the_files(made, page):
    text = words(page)
    last = [json.loads(line) for line in (made / "runs" / "measurements" / "metrics.jsonl").read_text().splitlines()][
        -1
    ]
    full = last["validation"]["full"]
    decimals = max(0, 1 - int(np.floor(np.log10(full["se"]))))
    assert f"{full['mean']:.{decimals}f} ± {full['se']:.{decimals}f}" in text
    summary = json.loads((made / "restored" / "clean" / "summary.json").read_text())
    assert summary["PSNR of mean"] in text
    assert "doubtful for t < 300" in text


def test_ratio_and_gap_are_shown_with_the_value_and_its_floor(page):
    """The values are 4, 2 and 10: twice the reference, and 6 of the 8 between naive and reference."""
    text = words(page)
    assert re.search(r"0\.5\s*4\s*2 × reference\s*gap closed 75 %\s*2\s*10\s*5 × reference", text)


def test_errors_are_compared_only_on_the_same_data(made, tmp_path):
    shutil.copytree(made, tmp_path / "made")
    for role, value in zip(ROLES, (0.1, 0.08, 0.3), strict=True):
        run = tmp_path / "made" / "runs" / role
        for name, path, times in (("denoising", "d.h5", 1), ("denoising2", "hard.h5", 4)):
            if name == "denoising" or role == "measurements":
                evaluate(
                    run,
                    0.0,
                    kind="denoising",
                    run=str(run),
                    features=None,
                    reference={"path": path, "n": 20},
                    metrics={"full": {"value": times * value, "floor": None, "se": 0.01, "better": "lower"}},
                )
                (run / "evaluation.json").rename(run / f"{name}.json")
    assert sorted(errors(collect(tmp_path / "made")).values()) == [0.08, 0.1, 0.3]


def test_restoration_in_one_call_is_not_compared_with_denoising(made, tmp_path):
    shutil.copytree(made / "runs", tmp_path / "runs")
    for role in ("measurements", "clean"):  # validated as --purpose both is: on hidden entries, at no timestep
        path = tmp_path / "runs" / role / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for validation in (line["validation"] for line in lines if "validation" in line):
            validation["t_bins"] = []
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = collect(tmp_path)
    assert [path.name for path in errors(facts)] == ["naive"]
    assert verdict(facts, errors(facts), {}) == ""
    table = validation_table(facts)
    assert table.rows[0].title == "Error of restorations"
    ours, reference, naive = (cell.text for cell in table.rows[0].cells)
    assert "–" not in (ours, reference)
    assert naive == "–"


def test_several_restorations_by_one_run_are_told_apart(made, tmp_path):
    shutil.copytree(made / "runs" / "measurements", tmp_path / "measurements")
    for name in ("first", "second"):
        shutil.copytree(made / "restored" / "measurements", tmp_path / name)
    facts = collect(tmp_path)
    run, how = facts.main.label, facts.restorations[0].made_of["method"]
    names = [f"{run} ({name}: {how})" for name in ("first", "second")]
    assert [drawn.label for drawn in facts.restorations] == names
    (shown,) = Gallery(facts).restorations()
    assert [row.title for row in shown.rows if row.title.startswith(run)] == names
    shutil.rmtree(tmp_path / "second")
    assert [drawn.label for drawn in collect(tmp_path).restorations] == [run]


def test_imputed_signals_of_a_run_are_skipped(made, tmp_path):
    shutil.copytree(made / "runs" / "measurements", tmp_path / "run")
    inside = tmp_path / "run" / "imputed" / "step-00000000" / "train"
    inside.mkdir(parents=True)
    (inside / "request.json").write_text('{"function": "train"}')
    assert collect(tmp_path / "run").troubles == ()


def test_the_page_describes_the_measurements(page):
    text = words(page)
    assert "120 images (handwritten digits of scikit-learn, grey 8 × 8) were measured incompletely" in text
    assert "each patch of 2 × 2 pixels is missing with probability 40 %" in text
    assert "noise of standard deviation 0.05" in text
    assert "Neither the training nor the choice of the checkpoint used a clean image." in text


def test_the_page_says_how_many_restored_measurements_were_held_out(made, page):
    held_out = gsure.open(made / "d.h5").split(QUICK.held_out, QUICK.seed)[1].indices
    assert f"{(held_out < 5).sum()} of them were held out of training" in words(page)


def test_each_recorded_command_is_shown_once_with_its_folder(made):
    facts = collect(made)
    here, there = str(facts.root), "/elsewhere"
    data = as_typed("corrupt", "gsure", "corrupt", "digits", "d.h5", folder=here)
    configs = [dataclasses.replace(run.config, data_request=data) for run in facts.runs]
    runs = tuple(dataclasses.replace(run, config=config) for run, config in zip(facts.runs, configs, strict=True))
    page = {"function": "write_report", "command": None, "folder": there, "arguments": {"path": "made"}}
    steps, unrecorded = recorded_commands(dataclasses.replace(facts, runs=runs), page)
    assert [step.command for step in steps].count("gsure corrupt digits d.h5") == 1
    assert steps[0].command == "gsure corrupt digits d.h5"
    assert steps[0].folder == ""
    assert steps[-1] == ("this page", "gsure.write_report(path='made')", there)
    kinds = [re.match(r"gsure[ .](\w+)", step.command)[1] for step in steps[:-1]]
    assert kinds == ["corrupt", *["train"] * 3, *["sample"] * 3, *["restore"] * 3, *["evaluate"] * 3, "diagnose"]
    assert not unrecorded


def test_the_commands_on_the_page_make_the_same_again(tmp_path, monkeypatch, capsys):
    small = "--network mlp --width 16 --depth 1 --steps 4 --batch 8 --picture-every 0 --t-bins 2 --validate-on 8"
    lines = [
        "gsure corrupt digits d.h5 --corruption patches --p 0.4 --size 2 --sigma 0.05 --clean c.h5 --limit 60 --seed 3",
        f"gsure train d.h5 --out run {small} --preset digits --train-on naive --mask-conditioned --decay linear",
        "gsure sample run --n 4 --steps 3 --sampler ddpm --seed 2 --checkpoint last --out samples",
        "gsure restore run d.h5 --limit 3 --steps 3 --draws 2 --eta 0.5 --clean c.h5 --panels 0 --out restored",
        "gsure evaluate restorations restored --clean c.h5",
    ]
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for line in lines:
            assert main([*shlex.split(line)[1:], "--json"]) == 0, capsys.readouterr().err
        write_report(".")
        steps, unrecorded = recorded_commands(collect("."), {})
        assert unrecorded == ["this page"]
        shown = [step.command.removesuffix(" --json") for step in steps if step.command.startswith("gsure ")]
        assert [shlex.split(line) for line in shown] == [shlex.split(line) for line in lines]
        assert all(line in words(tmp_path / folder / "report.html") for line in shown)
        lines = shown
    for name in ("samples", "restored/mean"):
        mine, theirs = (gsure.Signals(tmp_path / folder / name) for folder in ("first", "again"))
        assert mine[:].equal(theirs[:])


def test_one_command_that_made_everything_is_shown_once(made):
    facts, demo = collect(made), as_typed("sample", "gsure", "demo", "digits")
    folders = tuple(dataclasses.replace(drawn, request=drawn.request | demo) for drawn in facts.samples)
    steps, _ = recorded_commands(dataclasses.replace(facts, samples=folders), {})
    (demo_step,) = (step for step in steps if step.command == "gsure demo digits")
    assert demo_step.why == "; ".join(f"samples: {drawn.label}" for drawn in folders)


@pytest.mark.parametrize("value", [None, [], "gsure", {"command": "gsure"}, {"command": [1]}, {"function": "sample"}])
def test_a_request_that_cannot_be_shown_counts_as_missing(value):
    assert as_request(value) == {}


def test_a_page_without_requests_says_so(made, tmp_path):
    shutil.copytree(made / "runs" / "measurements", tmp_path / "run")
    file = tmp_path / "run" / "diagnosis" / "diagnosis.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"request": None}))
    write_report(tmp_path / "run")
    assert re.search(
        r"No command is recorded for: .*diagnosis/diagnosis\.json", words(tmp_path / "run" / "report.html")
    )


# Incomplete results


def test_an_unfinished_run_is_reported_with_the_next_commands(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made / "runs" / "measurements", run, ignore=shutil.ignore_patterns("diagnosis"))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(
        "\n".join(line for line in lines if json.loads(line)["step"] <= 8) + '\n{"step": 10, "lo'
    )
    for file in (run / "checkpoints").glob("step-*12.safetensors"):
        file.unlink()
    write_report(run)
    text = words(run / "report.html")
    assert "Training is at step 8 of 12." in text
    lines = [step.command for step in next_commands(collect(run))]
    assert all(" ".join(line.split()) in text for line in lines)
    assert re.match(r"gsure.train\b.*resume", lines[0])
    assert [line.split()[1] for line in lines[1:]] == ["sample", "restore", "diagnose"]
    for line in lines[1:3]:
        make_parser().parse_args(shlex.split(line)[1:])


def test_a_run_without_a_step_is_reported(made, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(made / "runs" / "measurements" / "config.yaml", tmp_path / "run")
    write_report(tmp_path / "run")
    assert "Training is at step 0 of 12." in words(tmp_path / "run" / "report.html")


def test_results_are_found_with_their_runs(made):
    facts = collect(made)
    assert [run.label for run in facts.runs] == ["from measurements", "clean-trained reference", "naive"]
    assert [drawn.label for drawn in facts.samples] == ["from measurements", "clean-trained reference", "naive"]
    assert [drawn.run for drawn in facts.restorations] == list(facts.runs)
    assert [diagnosis.run for diagnosis in facts.diagnoses] == [facts.main]
    assert facts.troubles == ()


def test_runs_of_one_role_have_distinct_labels_and_a_moved_folder_keeps_its_links(made, tmp_path):
    shutil.copytree(made, tmp_path / "moved")
    shutil.copytree(made / "runs" / "measurements", tmp_path / "moved" / "runs" / "second")
    facts = collect(tmp_path / "moved")
    assert [run.label for run in facts.runs][:2] == [
        "from measurements: runs/measurements",
        "from measurements: runs/second",
    ]
    assert [drawn.run for drawn in facts.samples] == [facts.runs[0], *facts.runs[2:]]
    write_report(tmp_path / "moved", force=True)
    assert "from measurements: runs/second" in words(tmp_path / "moved" / "report.html")


def test_without_clean_signals_the_estimate_is_shown(made, tmp_path):
    settings = dataclasses.replace(QUICK, steps=4)
    gsure.train(made / "d.h5", tmp_path / "run", settings)
    gsure.restore(tmp_path / "run", made / "d.h5", tmp_path / "run" / "restored", limit=3, draws=2, steps=3)
    write_report(tmp_path)
    text = words(tmp_path / "report.html")
    assert "Error on measurements, estimated" in text
    assert "measured, restored, one draw, uncertainty" in text
    assert "truth" not in text
    assert "× reference" not in text


def test_vectors_are_reported_without_pictures(tmp_path):
    np.save(tmp_path / "x.npy", np.tanh(np.random.default_rng(0).normal(size=(60, 6))).astype(np.float32))
    source = gsure.open_source(str(tmp_path / "x.npy"))
    gsure.corrupt(source, tmp_path / "d.h5", gsure.corruption.Noise(), 0.1)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", QUICK)
    gsure.sample(tmp_path / "run", 4, tmp_path / "samples", steps=2)
    write_report(tmp_path)
    text = words(tmp_path / "report.html")
    assert "60 signals" in text
    assert "are not images" in text


def test_complete_measurements_and_a_single_draw_are_described_as_what_they_are(tmp_path):
    """Nothing is missing, one draw has no uncertainty, and a run is at its last checkpoint, logged or not."""
    x = np.random.Generator(np.random.PCG64(0)).uniform(-1, 1, (24, 1, 8, 8)).astype(np.float32)
    gsure.save(tmp_path / "d.h5", gsure.from_arrays(x, 1, 0.1, verbose=False))
    settings = dataclasses.replace(QUICK, steps=5, log_every=3, held_out=0.0, checkpoint_every=5)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", settings)
    options = {"calibration": "none", "panels": 1, "limit": 3, "steps": 3}
    gsure.restore(tmp_path / "run", tmp_path / "d.h5", tmp_path / "restored", draws=1, **options)
    write_report(tmp_path)
    text = words(tmp_path / "report.html")
    assert "24 noisy measurements." in text
    assert "incomplete" not in text
    assert "From left to right: measured, restored, one draw." in text
    assert "Uncertainty" not in text
    assert "Training is at step" not in text
    assert "too good" not in text  # there is no verdict that could be
    assert (tmp_path / "restored" / "panels" / "00000.png").is_file()


def test_large_pictures_are_shrunk(tmp_path):
    """Noise does not compress: in full size the page would have 6 MB."""
    phantoms = gsure.open_source("phantom", size=96, n=12)
    gsure.corrupt(phantoms, tmp_path / "d.h5", gsure.corruption.Lines(R=4), 0.01, clean=tmp_path / "c.h5")
    settings = dataclasses.replace(QUICK, width=2, steps=1, checkpoint_every=1, validate_on=2, batch=2)
    gsure.train(tmp_path / "d.h5", tmp_path / "run", settings, clean=tmp_path / "c.h5")
    gsure.sample(tmp_path / "run", 16, tmp_path / "samples", steps=1)
    options = {"limit": 8, "draws": 2, "steps": 1, "panels": 0, "baselines": False}
    gsure.restore(tmp_path / "run", tmp_path / "d.h5", tmp_path / "restored", **options)
    for k in range(6):
        shutil.copytree(tmp_path / "samples", tmp_path / f"samples{k}")
        shutil.copytree(tmp_path / "restored", tmp_path / f"restored{k}")
    summary = write_report(tmp_path)
    assert summary["samples"] == summary["restorations"] == 7
    assert summary["bytes"] < 3_000_000


def test_a_large_png_is_shrunk():
    noise = np.random.default_rng(0).integers(0, 255, (450, 1600, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "PNG")
    shown = mosaics.embed_png(buffer.getvalue(), "noise")
    assert len(shown.url) < len(buffer.getvalue()) / 3
    assert (shown.width, shown.height) == (1100, 309)


# Bad input


def test_names_and_texts_are_escaped(made, tmp_path):
    evil = '<script>alert("1")<&script> $x_{$ ü中 {{ 713*719 }} \'"'
    folder = tmp_path / evil
    shutil.copytree(made / "runs" / "measurements", folder / "a")
    shutil.copytree(made / "runs" / "measurements", folder / evil)
    shutil.copytree(made / "samples" / "measurements", folder / "samples")
    file = folder / "samples" / "request.json"
    request = json.loads(file.read_text())
    request |= {"inputs": {"run": str(folder / evil)}, "made_of": request["made_of"] | {"sampler": evil}}
    file.write_text(json.dumps(request | {"command": ["gsure", evil], "folder": evil}))
    evaluate(folder / "samples", 1.0, warnings=[evil], features={"name": evil}, reference={"path": evil, "n": evil})
    diagnose(folder / evil, words=evil)
    write_report(folder, tmp_path / "page.html")
    parsed = Parsed(tmp_path / "page.html")
    assert not parsed.of("script")
    assert parsed.text.count(evil) > 8
    assert "713*719" in parsed.text
    assert str(713 * 719) not in parsed.text


def test_a_file_name_that_is_not_text_is_shown(made, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/run\xff")
    shutil.copytree(made / "runs" / "measurements", folder)
    write_report(folder, tmp_path / "page.html")
    assert "run?: gsure report" in words(tmp_path / "page.html")


def test_files_that_cannot_be_read_are_named_and_omitted(made, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(made, folder)
    secret = tmp_path / "secret.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(secret)
    (folder / "samples" / "clean" / "request.json").write_text("{")
    (folder / "samples" / "naive" / "evaluation.json").write_text('{"metrics": {"frechet": {"value": "high"}}}')
    (folder / "restored" / "naive" / "std" / "shard-00000.h5").write_bytes(b"nothing")
    (folder / "runs" / "naive" / "config.yaml").write_text("[")
    diagnose(folder / "runs" / "measurements", figure="../../../../secret.png")
    diagnose(folder / "runs" / "clean")
    (folder / "runs" / "clean" / "diagnosis" / "figure.png").write_bytes(b"no PNG")
    summary = write_report(folder, force=True)
    text = words(folder / "report.html")
    for name in ("samples/clean", "samples/naive/evaluation.json", "restored/naive", "runs/naive"):
        assert f"{folder / name} was omitted" in text
        assert str(folder / name) in summary["omitted"]
    assert "figure.png is not shown" in text
    assert mosaics.embed_png(secret.read_bytes(), "").url not in (folder / "report.html").read_text()


def test_missing_data_is_reported_but_not_required(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made / "runs" / "measurements", run)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace(str(made / "d.h5"), str(tmp_path / "gone.h5")))
    write_report(run)
    assert re.search(r"Measurements are not shown: .*gone\.h5", words(run / "report.html"))


def test_errors_are_sentences_and_no_file_is_replaced(made, tmp_path, capsys):
    def refused(*arguments) -> str:
        assert main(["report", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "does not contain a readable run" in refused(tmp_path)
    assert "is not a folder" in refused(made / "d.h5")
    assert "is not a folder" in refused(tmp_path / "nothing")
    (tmp_path / "page.html").write_text("mine")
    assert "with --force" in refused(made, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"
    assert "is a folder" in refused(made, "--out", tmp_path)
    assert main(["report", str(made), "--out", str(tmp_path / "page.html"), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


# In a real browser

LOOK = """(width => {
  const problems = [], box = element => element.getBoundingClientRect();
  const luminance = rgb => rgb.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
  const colour = text => text.match(/[\\d.]+/g).map(Number);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const found = colour(getComputedStyle(element).backgroundColor);
      if (found.length < 4 && getComputedStyle(element).backgroundColor.startsWith('rgb(')) return found;
    }
    return [255, 255, 255];
  };
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth || box(image).width < 40 || box(image).height < 8)
      problems.push('invisible: ' + image.alt);
  for (const drawing of document.querySelectorAll('[role=img] svg'))
    if (box(drawing).width < 200 || box(drawing).height < 100) problems.push('a drawing is too small');
  if (document.documentElement.scrollWidth > width) problems.push('wider than the screen');
  for (const element of document.querySelectorAll('body *')) {
    if (element.closest('svg, .scroll')) continue;
    if (box(element).right > width + 1) problems.push('outside the screen: ' + element.tagName + ' ' + element.className);
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (own) {
      const [a, b] = [colour(getComputedStyle(element).color), ground(element)].map(luminance);
      const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
      if (contrast < 4.5) problems.push('low contrast: ' + element.tagName + ' ' + element.className + ' ' + contrast);
    }
  }
  return problems;
})(%d)"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.find() is None:
        reason = (
            f"no browser on this machine: none of {', '.join(browser.NAMES)} is on the PATH (apt-get install chromium)"
        )
        if os.environ.get("GSURE_NEEDS_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with browser.launch(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_in_a_browser_everything_is_visible_and_nothing_is_loaded(chromium, page, width, dark):
    chromium.open(page, width, dark=dark)
    assert chromium.complaints() == []
    assert {address.split(":")[0] for address in chromium.requests()} == {"file", "data"}
    assert [address for address in chromium.requests() if address.startswith("file:")] == [page.as_uri()]
    assert chromium.find(LOOK % width) == []
    assert chromium.find("document.images.length") > 15


def test_the_dark_page_is_dark_and_the_print_is_light(chromium, page, tmp_path):
    brightness = {}
    for name, options in {"light": {}, "dark": {"dark": True}, "print": {"dark": True, "media": "print"}}.items():
        chromium.open(page, 800, **options)
        chromium.screenshot(tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as shot:
            brightness[name] = np.median(np.asarray(shot.convert("L")))
    assert brightness["light"] > 240
    assert brightness["dark"] < 40
    assert brightness["print"] > 240


def test_in_print_all_details_are_open(chromium, page):
    height = "document.querySelector('#made details table').getBoundingClientRect().height"
    visible = (
        f"document.querySelector('#made details pre').checkVisibility({{contentVisibilityAuto: true}}) && {height}"
    )
    chromium.open(page, 800)
    assert not chromium.find(visible)
    chromium.open(page, 800, media="print")
    assert chromium.find(visible)


@pytest.fixture(scope="module")
def volume_page(tmp_path_factory) -> Path:
    """A volume of 12 slices and one of 4, in raw units of thousands, restored."""
    folder = tmp_path_factory.mktemp("volume")
    generator = torch.Generator().manual_seed(0)
    x = 1000 * (1 + torch.rand(16, 1, 8, 8, generator=generator).cumsum(-1) / 8)
    mask = (torch.rand(16, 1, 8, 8, generator=generator) < 0.6).float()
    data = gsure.from_arrays((mask * x).numpy(), mask.numpy(), 20.0, groups=["head"] * 12 + ["knee"] * 4)
    gsure.save(folder / "d.h5", data)
    gsure.train(
        folder / "d.h5", folder / "run", dataclasses.replace(QUICK, width=4, steps=2, checkpoint_every=2, batch=4)
    )
    gsure.restore(folder / "run", folder / "d.h5", folder / "restored", draws=2, steps=3, panels=0)
    write_report(folder, folder / "page.html")
    return folder / "page.html"


def press(chromium, key: str) -> None:
    code = {"Enter": 13, "Escape": 27, "ArrowRight": 39}[key]
    options = {"key": key, "code": key, "windowsVirtualKeyCode": code} | ({"text": "\r"} if key == "Enter" else {})
    for kind in ("keyDown", "keyUp"):
        chromium.ask("Input.dispatchKeyEvent", type=kind, **options)


PIXELS = "[...document.querySelectorAll('dialog canvas')].map(canvas => canvas.toDataURL()).join()"


def test_a_picture_enlarges_by_keyboard_and_the_slider_shows_other_slices(chromium, volume_page):
    chromium.open(volume_page, 1280)
    assert chromium.complaints() == []
    assert not chromium.find("document.querySelector('dialog').open")
    height = "document.querySelector('img[data-tile]').getBoundingClientRect()"
    assert chromium.find(f"{height}.width / {height}.height") > 7, "the strip shows the first row of slices"
    chromium.find("document.querySelector('.strips img').focus()")
    press(chromium, "Enter")
    assert chromium.find("document.querySelector('dialog').open")
    wide = "document.querySelector('dialog canvas').getBoundingClientRect().width"
    assert chromium.find(wide) > 200
    assert chromium.find("document.querySelector('dialog output').textContent") == "1 of 12"
    assert chromium.find("document.querySelector('dialog label').textContent.trim()") == "Slice"
    first = chromium.find(PIXELS)
    press(chromium, "ArrowRight")
    assert chromium.find("document.querySelector('dialog output').textContent") == "2 of 12"
    assert chromium.find(PIXELS) != first
    assert "units of the raw data" in chromium.find("document.querySelector('dialog .bar').textContent")
    press(chromium, "Escape")
    assert not chromium.find("document.querySelector('dialog').open")
    assert chromium.find("document.activeElement.tagName") == "IMG"
    until = time.monotonic() + 10
    while chromium.find("document.querySelector('dialog .bar') !== null"):  # moves back in an event of its own
        assert time.monotonic() < until
    assert chromium.find(LOOK % 1280) == []
    assert {address.split(":")[0] for address in chromium.requests()} == {"file", "data"}


def test_a_click_enlarges_the_picture_below_it(chromium, page):
    for width in (360, 1280):
        chromium.open(page, width)
        chromium.find("document.querySelector('.strips img').scrollIntoView()")
        box = json.loads(chromium.find("JSON.stringify(document.querySelector('.strips img').getBoundingClientRect())"))
        place = {"x": box["x"] + 0.5 * box["width"], "y": box["y"] + box["height"] / 2}  # the third of five
        for kind in ("mousePressed", "mouseReleased"):
            chromium.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        assert chromium.find("document.querySelector('dialog').open")
        assert chromium.find("document.querySelector('dialog output').textContent") == "3 of 5"
        assert chromium.find("document.querySelector('dialog').scrollWidth") <= width
        chromium.find("document.querySelector('dialog button').click()")
        assert not chromium.find("document.querySelector('dialog').open")


def test_standard_deviations_are_shown_in_raw_units(volume_page):
    drawn = collect(volume_page.parent).restorations[0]
    largest = float(drawn.signals["std"].raw()[:12].abs().flatten().quantile(0.99))
    (shown,) = re.findall(r"([\d.,]+), in the units of the raw data", words(volume_page))
    assert float(shown.replace(",", "")) == pytest.approx(largest, rel=0.02)
    assert largest > 10 * float(drawn.signals["std"][:].quantile(0.99)), "control: the model's units are others"


def test_a_faulty_page_fails_the_checks(chromium, page, tmp_path):
    """The same page with a broken picture, something too wide, grey on grey, a script and a picture from elsewhere."""
    worse = '<img src="data:image/png;base64,AAAA" alt="broken"><div style="width: 2000px">wide</div>'
    worse += '<p style="color: #888; background: #777">hard</p><script>throw 1</script>'
    worse += '<img src="http://localhost/x.png" alt="far">'
    (tmp_path / "bad.html").write_text(page.read_text().replace("</main>", f"{worse}</main>"))
    chromium.open(tmp_path / "bad.html", 360)
    problems = " ".join(chromium.find(LOOK % 360))
    for problem in (
        "invisible: broken",
        "invisible: far",
        "wider than the screen",
        "outside the screen: DIV",
        "low contrast: P",
    ):
        assert problem in problems
    complaints = " ".join(chromium.complaints())
    assert "script" in complaints  # refused by the page's own policy
    assert "localhost" in complaints
