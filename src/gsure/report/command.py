"""Report: from a run, or a folder of runs and of what was made with them, to one page that needs nothing but itself."""

from pathlib import Path
from typing import Any

from gsure.files import refuse_existing, replacing
from gsure.report import collect, render


def report(path: str | Path, out: str | Path | None = None, force: bool = False) -> dict[str, Any]:
    """Write the page to `out`, or to report.html in the folder itself. What is not there yet, the page says how to make."""
    target = Path(path) / "report.html" if out is None else Path(out)
    if target.is_dir():
        raise ValueError(f"{target} is a folder: --out is the name of the page, such as {target / 'report.html'}.")
    facts = collect(path)
    refuse_existing(target, force)
    page = render(facts).encode("utf-8", "replace")  # names of files may be no text at all
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary:
        temporary.write_bytes(page)
    return {
        "page": str(target),
        "bytes": len(page),
        "runs": len(facts.runs),
        "samples": len(facts.samples),
        "restorations": len(facts.restorations),
        "evaluations": len(facts.evaluations),
        "diagnoses": len(facts.diagnoses),
        "left out": "; ".join(facts.troubles) or None,
    }
