"""What is done to measured k-space before it is written: which coil, centring, readout crop, matrix."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gsure.data.problems import Problems
from gsure.data.scans import Scan

Combine = Literal["rss", "first-virtual"]
ReadoutCrop = int | str
"""A number of rows, auto or none."""
NOT_YET = "Reconstruction from all coils together is not supported yet (docs/data.md#coils)."


@dataclass(frozen=True)
class Preparation:
    """What to do with k-space. `readout_crop` is a length, auto (what the file says) or none."""

    coil: int | None = None
    combine: Combine | None = None
    uncentred: bool = False
    readout_crop: ReadoutCrop = "auto"
    matrix: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.coil is not None and self.combine is not None:
            raise ValueError(f"--coil {self.coil} and --combine {self.combine} exclude each other: omit one of them.")
        if self.readout_crop not in ("auto", "none") and not (
            isinstance(self.readout_crop, int) and self.readout_crop > 0
        ):
            raise ValueError(f"--readout-crop must be at least 1, auto or none, but is {self.readout_crop}.")
        if self.matrix is not None and (len(self.matrix) != 2 or min(self.matrix) < 1):
            raise ValueError(f"--matrix must be a height and a width of at least 1, but is {self.matrix}.")

    @property
    def needs_kspace(self) -> list[str]:
        """The options that act on complex k-space."""
        given = {
            f"--combine {self.combine}": self.combine is not None,
            "--uncentred": self.uncentred,
            f"--readout-crop {self.readout_crop}": isinstance(self.readout_crop, int),
            "--matrix": self.matrix is not None,
        }
        return [option for option, is_given in given.items() if is_given]

    @property
    def given(self) -> list[str]:
        """All options that were given."""
        coil = [] if self.coil is None else [f"--coil {self.coil}"]
        crop = ["--readout-crop none"] if self.readout_crop == "none" else []
        return [*coil, *self.needs_kspace, *crop]

    def readout(self, scan: Scan) -> int:
        """The number of rows after the readout crop."""
        rows = scan.size[0]
        wanted = (
            scan.readout if self.readout_crop == "auto" else rows if self.readout_crop == "none" else self.readout_crop
        )
        return rows if wanted is None else min(rows, int(wanted))

    def fits(self, scan: Scan, problems: Problems) -> bool:
        """Whether a file can be read so. What its header shows to be wrong is noted."""
        found = Problems()
        self._check(scan, found)
        problems.extend(found)
        return not found.found

    def _check(self, scan: Scan, problems: Problems) -> None:
        name = Path(scan.file).name
        if scan.coils > 1 and self.coil is None and self.combine is None:
            full = " or, if it is fully sampled, --combine rss"
            problems.add(
                f"it has {scan.coils} coils ({scan.describe()}): choose one with --coil K (0 to {scan.coils - 1}), or combine "
                f"them with --combine first-virtual{full}. {NOT_YET}",
                name,
            )
        if self.coil is not None and not 0 <= self.coil < scan.coils:
            problems.add(
                f"--coil {self.coil} does not exist: it has {scan.coils} coils, counted from 0 ({scan.describe()}).",
                name,
            )
        if self.combine is not None and scan.coils == 1:
            problems.add(f"--combine {self.combine} has no effect, because it has one coil: omit it.", name)
        if not scan.is_complex and (self.needs_kspace or self.coil is not None):
            option = (*self.needs_kspace, f"--coil {self.coil}")[0]
            problems.add(
                f"{option} needs complex k-space, but its values are real: omit it, or save complex values.", name
            )
        if isinstance(self.readout_crop, int) and self.readout_crop > scan.size[0]:
            problems.add(f"--readout-crop {self.readout_crop} is more than its {scan.size[0]} rows: lower it.", name)
