"""Make the figure of docs/report.md: the page in a browser, on a desktop and on a phone.

    make demo && python docs/make_report_figure.py demo/report.html

It needs Chromium (apt-get install chromium). The figure goes to docs/figures/report/.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))
import browser  # noqa: E402

FIGURES = DOCS / "figures" / "report"
HEIGHT = 1500
GAP = 24


def main(arguments: list[str] | None = None) -> None:
    page, out = Path((arguments or sys.argv[1:])[0]), FIGURES / "digits.png"
    with tempfile.TemporaryDirectory() as folder, browser.launch(Path(folder)) as chromium:
        shots = []
        for width, dark in ((1280, False), (360, True)):
            chromium.open(page, width, HEIGHT, dark)
            chromium.screenshot(Path(folder) / "shot.png", whole=False)
            with Image.open(Path(folder) / "shot.png") as shot:
                shots.append(shot.convert("RGB"))
    both = Image.new("RGB", (sum(shot.width for shot in shots) + GAP, HEIGHT), "white")
    both.paste(shots[0], (0, 0))
    both.paste(shots[1], (shots[0].width + GAP, 0))
    out.parent.mkdir(parents=True, exist_ok=True)
    both.resize((both.width * 3 // 4, both.height * 3 // 4), Image.Resampling.LANCZOS).quantize(
        255, Image.Quantize.MAXCOVERAGE
    ).save(out, optimize=True)


if __name__ == "__main__":
    main()
