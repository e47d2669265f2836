"""report: what was learned, on one page."""

from jsonargparse import ArgumentParser, Namespace

from gsure.cli.base import Command, call, show


def _report_options(parser: ArgumentParser) -> None:
    parser.add_argument("path", type=str, help="folder of a run, or of runs and what was made with them")
    parser.add_argument("--out", type=str, help="the page to write; report.html in the folder, if not given")
    parser.add_argument("--force", action="store_true", help="replace the page if it exists")


def _report(options: Namespace) -> None:
    from gsure.report.command import report

    show(call(report, options), options.json)


REPORT = Command("tell what was learned, on one self-contained HTML page", _report_options, _report)
