"""Which dimension of an array is which: the rows and columns of k-space, coils, channels, or samples.

A name that is not given is never guessed silently: `Layout.describe` says how each dimension was taken, and where two ways
are possible, an error says what to type.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Role = Literal["rows", "columns", "coil", "channel", "sample"]
ENCODED = (("readout", "read", "rows", "height"), ("phase", "phs1", "columns", "width"), ("phase2", "phs2"))
"""Names of the dimensions of k-space, in the order of BART. Two of them are longer than 1."""
COUNTED = (
    *("sample", "slice", "volume", "echo", "repetition"),
    *("te", "iter", "cshift", "time", "time2", "level", "avg", "batch"),
)
"""Names of dimensions that count samples. The second line has names of BART."""
NAMES = (*(names[0] for names in ENCODED), "coil", "channel", *COUNTED[:5])
"""What a message offers."""
BART = (
    *("read", "phs1", "phs2", "coil", "maps", "te", "coeff", "coeff2"),
    *("iter", "cshift", "time", "time2", "level", "slice", "avg", "batch"),
)
"""The dimensions of BART, in its order."""
MOST_COILS = 128
FEW_CHANNELS = 4
"""Last dimensions up to this are rather channels than columns."""
NARROW = 4
"""Images that are so many times narrower than high, and than their number, may be samples in the last dimension."""


@dataclass(frozen=True)
class Layout:
    """The role of each dimension. `order` says whether the last ("C") or the first ("F") counting dimension runs fastest."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    roles: tuple[Role, ...]
    order: Literal["C", "F"] = "C"

    def __len__(self) -> int:
        return math.prod(self._lengths("sample"))

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return math.prod(self._lengths("rows")), math.prod(self._lengths("columns"))

    @property
    def coils(self) -> int:
        return math.prod(self._lengths("coil"))

    @property
    def channels(self) -> int:
        return math.prod(self._lengths("channel"))

    def _lengths(self, role: Role) -> tuple[int, ...]:
        return tuple(length for length, mine in zip(self.shape, self.roles, strict=True) if mine == role)

    def take(self, values: Any, index: int) -> np.ndarray:
        """Sample `index` as (coils, channels, rows, columns). `values` may have length 1 where the layout has more."""
        counted = self._lengths("sample")
        place = iter(np.unravel_index(index, counted, self.order) if counted else ())
        key = tuple(
            int(next(place)) * (length > 1) if role == "sample" else slice(None)
            for role, length in zip(self.roles, values.shape, strict=True)
        )
        wanted: tuple[Role, ...] = ("coil", "channel", "rows", "columns")
        left: list[Role] = [role for role in self.roles if role != "sample"]
        plane = np.asarray(values[key])
        plane = plane.reshape(*plane.shape, *[1] * sum(role not in left for role in wanted))
        left += [role for role in wanted if role not in left]
        return plane.transpose([left.index(role) for role in wanted])

    def describe(self) -> str:
        """How each dimension longer than 1 was taken.

        >>> array_layout((200, 64, 48), True, None, "k.npy").describe()
        'dimension 0 (200) counts samples, dimension 1 (64) has rows (readout), dimension 2 (48) has columns (phase)'
        """
        words = {
            "rows": "has rows (readout)",
            "columns": "has columns (phase)",
            "coil": "has coils",
            "channel": "has channels",
            "sample": "counts samples",
        }
        return ", ".join(
            f"{name} ({length}) {words[role]}"
            for name, length, role in zip(self.names, self.shape, self.roles, strict=True)
            if length > 1 or role in ("rows", "columns")
        )


def split_names(text: str | Sequence[str]) -> tuple[str, ...]:
    """
    >>> split_names("slice,coil, Readout phase")
    ('slice', 'coil', 'readout', 'phase')
    """
    words = text.replace(",", " ").split() if isinstance(text, str) else text
    return tuple(word.lower() for word in words)


def array_layout(shape: tuple[int, ...], is_complex: bool, axes: str | Sequence[str] | None, file: str) -> Layout:
    """The layout of an array: as named, else (N, rows, columns) or (N, channels, rows, columns) if there is no other way."""
    shown = tuple(f"dimension {k}" for k in range(len(shape)))
    if axes is not None:
        return Layout(shape, shown, _roles(split_names(axes), shape, file, "--axes"))
    if len(shape) < 3:
        raise ValueError(
            f"{file} has shape {shape}: name its dimensions, --axes readout,phase for one image of k-space."
        )
    longer = [k for k, length in enumerate(shape[:-2]) if length > 1]
    if not is_complex and (last := _last_is_odd(shape)):
        names = ",".join(["sample", *(["channel"] if len(shape) == 4 else []), "readout", "phase"])
        raise ValueError(
            f"{file} has shape {shape}, of which the last dimension could be {last[0]}: type --axes {last[1]} if so, and "
            f"--axes {names} if not."
        )
    if len(shape) == 4 and not is_complex:
        return Layout(shape, shown, ("sample", "channel", "rows", "columns"))
    if len(shape) == 3 or not longer:
        return Layout(shape, shown, (*["sample"] * (len(shape) - 2), "rows", "columns"))  # type: ignore[arg-type]
    likely = [k for k in longer if shape[k] <= MOST_COILS]
    if len(shape) == 4 and is_complex and likely == [1]:
        return Layout(shape, shown, ("sample", "coil", "rows", "columns"))
    if len(shape) == 4 and is_complex and longer == [0]:
        return Layout(shape, shown, ("sample", "channel", "rows", "columns"))
    raise ValueError(_ask_for_axes(shape, longer, is_complex, file))


def _last_is_odd(shape: tuple[int, ...]) -> tuple[str, str] | None:
    """What else than the columns of images the last dimension of real values could be, and the names to type for it."""
    if len(shape) == 4 and shape[3] <= FEW_CHANNELS < shape[1]:
        return "channels or colours", "sample,readout,phase,channel"
    if len(shape) == 3 and shape[2] * NARROW <= min(shape[:2]):
        return "the samples", "readout,phase,sample"
    return None


def _ask_for_axes(shape: tuple[int, ...], longer: Sequence[int], is_complex: bool, file: str) -> str:
    def typed(coil: int | None) -> str:
        names = ["coil" if k == coil else "sample" if k in longer else "slice" for k in range(len(shape) - 2)]
        return f"--axes {','.join([*names, 'readout', 'phase'])}"

    listed = " and ".join(f"{k} ({shape[k]})" for k in longer)
    if is_complex and len(longer) > 1:
        ways = ", ".join(f"{typed(k)} if dimension {k} has the coils" for k in longer)
        both = "both" if len(longer) == 2 else "all"
        return (
            f"{file} has shape {shape}, of which dimensions {listed} could {both} be coils: type {ways} (channel in place of "
            "coil keeps them all)."
        )
    return f"{file} has shape {shape}: name its dimensions, such as {typed(longer[-1] if is_complex else None)}."


def bart_layout(shape: tuple[int, ...], dims: str | Sequence[str] | None, file: str, images: bool = False) -> Layout:
    """The layout of a BART file: READ PHS1 PHS2 COIL ..., or as named. The third dimension of images counts slices."""
    option = "--source.dims" if images else "--dims"
    shape = (*shape, *[1] * (3 - len(shape)))
    if dims is None and images and min(shape[:3]) > 1:
        dims = ("read", "phs1", "slice", *BART[3 : len(shape)])
    if dims is not None:
        names = split_names(dims)
        while len(shape) > len(names) and shape[-1] == 1:  # BART drops trailing dimensions of length 1
            shape = shape[:-1]
        return Layout(shape, tuple(name.upper() for name in names), _roles(names, shape, file, option), "F")
    if len(shape) > len(BART):
        raise ValueError(f"{file} has {len(shape)} dimensions, but BART has {len(BART)}: name them with {option}.")
    names = BART[: len(shape)]
    if min(shape[:3]) > 1:
        raise ValueError(
            f"{file} has READ {shape[0]}, PHS1 {shape[1]} and PHS2 {shape[2]}, which is 3-D k-space in BART's order: type "
            f"--dims {_rest('read,phs1,slice', shape)} if PHS2 counts slices, "
            + (
                f"--dims {_rest('read,phs1,coil', shape)} if it has the coils, "
                if max(shape[3:4], default=1) == 1
                else ""
            )
            + f"or for 3-D k-space run bart fft -u -i 1 first and type --dims {_rest('slice,phs1,phs2', shape)}."
        )
    if strange := [
        (name, length) for name, length in zip(names, shape, strict=True) if length > 1 and not _known(name)
    ]:
        coils = f" beside COIL {shape[3]}" if shape[3] > 1 else ""
        name, length = strange[0]
        raise ValueError(
            f"{file} has {name.upper()} {length}{coils}, which could be coils or samples: name the dimensions, with {option} "
            f"{','.join('slice' if mine == name else mine for mine in names)} if {name.upper()} counts samples, or with coil "
            "in its place."
        )
    roles = tuple(_role(name, shape, names) if _known(name) else "sample" for name in names)
    return Layout(shape, tuple(name.upper() for name in names), roles, "F")


def _rest(names: str, shape: tuple[int, ...]) -> str:
    """Names for the first dimensions, and BART's for the others, of which only one has coils."""
    return ",".join([names, *("sample" if name in names else name for name in BART[3 : len(shape)])])


def _known(name: str) -> bool:
    return name in ("coil", "channel", *COUNTED) or any(name in names for names in ENCODED)


def _roles(names: tuple[str, ...], shape: tuple[int, ...], file: str, option: str) -> tuple[Role, ...]:
    """The roles of named dimensions, after checking that the names fit the shape and make sense together."""
    if len(names) != len(shape):
        raise ValueError(
            f"{file} has {len(shape)} dimensions, {shape}, but {option} names {len(names)}: name each of {', '.join(NAMES)}."
        )
    for name, length in zip(names, shape, strict=True):
        if not (_known(name) or (length == 1 and name in BART)):
            raise ValueError(f"{option} has the name {name!r}: the names are {', '.join((*NAMES, *COUNTED[5:]))}.")
    encoded = [_encoded(name) for name in names if _encoded(name) is not None]
    if twice := [name for name in ("coil", "channel") if names.count(name) > 1]:
        raise ValueError(f"{option} names {twice[0]} twice: one dimension has the coils, and others count samples.")
    if len(encoded) < 2 or len(set(encoded)) != len(encoded):
        raise ValueError(f"{option} {','.join(names)} must name readout and phase, once each.")
    longer = [name for name, length in zip(names, shape, strict=True) if length > 1 and _encoded(name) is not None]
    if len(longer) > 2:
        raise ValueError(
            f"{option} {','.join(names)} makes {file} 3-D k-space: transform the readout (numpy.fft, bart fft -u -i 1), and "
            "name it slice."
        )
    return tuple(_role(name, shape, names) for name in names)


def _encoded(name: str) -> int | None:
    return next((k for k, names in enumerate(ENCODED) if name in names), None)


def _role(name: str, shape: tuple[int, ...], names: tuple[str, ...]) -> Role:
    """Of the encoded dimensions, in BART's order, the two that are longer than 1 are rows and columns."""
    number = _encoded(name)
    if number is None:
        return "coil" if name == "coil" else "channel" if name == "channel" else "sample"
    named = ((_encoded(mine), length) for mine, length in zip(names, shape, strict=True))
    lengths = {k: length for k, length in named if k is not None}
    rows, columns = sorted(sorted(lengths, key=lambda k: (lengths[k] == 1, k))[:2])
    return "rows" if number == rows else "columns" if number == columns else "sample"
