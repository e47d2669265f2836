"""report: one page about a run."""

from jsonargparse import ArgumentParser, Namespace

from gsure.cli import Command, call, show


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=str, help="folder of a run, or of runs and their samples and restorations")
    parser.add_argument("--out", type=str, help="page to write, instead of report.html in the folder")
    parser.add_argument("--force", action="store_true", help="replace an existing page")


def _report(options: Namespace) -> None:
    from gsure.report import write_report

    show(call(write_report, options), options.json)


COMMANDS = {"report": Command(_options, _report)}
