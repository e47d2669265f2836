"""What all figures share: how one is made and saved, and its colours."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsure.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY, RED = "#1f5fa8", "#d9730d", "#6b6b6b", "#c0392b"


def new_figure(width: float, height: float) -> "Figure":
    """A figure of its own, which leaves your backend and the state of pyplot alone. Size in inches."""
    from matplotlib.figure import Figure  # slow to import, and many commands draw nothing

    return Figure(figsize=(width, height), layout="constrained")


def save_png(figure: "Figure", path: Path, dpi: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png")


def mark_limit(axes: Any, value: float, text: str) -> None:
    """A dashed horizontal line with its meaning at the right."""
    axes.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    where = {"xycoords": ("axes fraction", "data"), "xytext": (0, 2), "textcoords": "offset points"}
    where |= {"ha": "right", "va": "bottom"}
    ground = {"facecolor": "white", "alpha": 0.8, "pad": 0.5, "linewidth": 0}  # readable where a curve crosses it
    axes.annotate(text, (1, value), fontsize=7.5, color=GREY, bbox=ground, **where)


def use_log_scale(axes: Any) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5, or at 1 alone over many decades. Call it after drawing."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
