"""Opening HDF5 files that may be missing, cut short, or something else."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import h5py


def open_hdf5(path: str | Path) -> "h5py.File":
    """The file, for reading; or a sentence that says why not."""
    import h5py  # here, because sources are listed without it

    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder, where an HDF5 file is wanted.")
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except OSError as error:
        raise ValueError(f"{path} is not a whole HDF5 file: it is cut short or of another kind ({error}).") from error
