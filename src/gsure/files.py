"""Files that are written whole or not at all, never over what a user did not name, and opened with a sentence if damaged."""

import contextlib
import os
from collections.abc import Iterator, Sequence
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


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` once all of it is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(
            f"{path} could not be written: {error.strerror or error}. What was there before still is."
        ) from error


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing is replaced without `force`; and even so nothing but a file, or a folder of shards."""
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already: choose another name, or add --force to replace it.")
    if path.is_dir() and (foreign := [p.name for p in sorted(path.iterdir()) if not p.match("shard-*.h5")]):
        raise FileExistsError(f"{path} is a folder with other things in it ({foreign[0]}): choose another name.")


def refuse_inputs(outputs: Sequence[str | Path], inputs: Sequence[str | Path]) -> None:
    """No output may be one of the inputs, or lie among them: `force` must not cost anyone their raw data."""
    for output in outputs:
        for given in (file for path in inputs for file in _both(Path(path))):
            target, source = Path(output).resolve(), given.resolve()
            if target == source or target in source.parents or (source in target.parents and target.exists()):
                raise ValueError(f"{output} is to be written, but {given} is to be read: choose another name.")


def _both(path: Path) -> tuple[Path, ...]:
    """BART's files are two, and named by either."""
    return (path.with_suffix(".cfl"), path.with_suffix(".hdr")) if path.suffix in (".cfl", ".hdr") else (path,)
