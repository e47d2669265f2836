"""report: one page about a run."""

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, Options, call, show


def _options(parser: ArgumentParser) -> None:
    Options(parser, "data").add("path", str, "folder of a run, or of runs and their samples and restorations")
    output = Options(parser, "output")
    output.add("--out", str, "page to write, instead of report.html in the folder", metavar="FILE")
    output.add("--force", bool, "replace an existing page")


def _report(options: Namespace) -> None:
    from gsure.report import write_report

    show(call(write_report, options), options.json)


COMMANDS = {
    "report": Command(
        "gsure report PATH [options]",
        _options,
        _report,
        ("gsure report runs/digits", "gsure report experiment --out pages/experiment.html"),
    )
}
