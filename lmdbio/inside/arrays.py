"""arrays: NumPy's headers, and bytes that look like numbers. Pure."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

__all__ = ["NpyHeader", "find_npy", "guess_numbers"]

MAGIC = b"\x93NUMPY"
DIMENSIONS_MAX = 32
#: dtypes that a header may name here: numbers, no objects and no structures.
_DESCR = re.compile(r"'descr':\s*'([<>|=]?[a-zA-Z]\d*)'")
_SHAPE = re.compile(r"'shape':\s*\(([\d,\s]*)\)")
_ORDER = re.compile(r"'fortran_order':\s*(True|False)")
#: Fewer numbers prove nothing; so many are looked at.
NUMBERS_MIN, NUMBERS_SAMPLED = 8, 2048
#: Of floats that people store, nearly all lie between these, or are 0.
FLOAT_MIN, FLOAT_MAX, FLOAT_SHARE = 1e-8, 1e8, 0.99
#: Larger integers are seldom an index, an id or a class.
INTEGER_MAX = 1 << 32


class NpyHeader:
    """The header of a .npy value.

    Attributes:
        dtype: type of the array; None: one that is not shown, such as objects, which are pickles.
        shape: shape of the array.
        fortran: the first index moves fastest.
        data: offset of its first byte in the value.
        text: dtype and shape, for people.
    """

    def __init__(
        self, descr: str, shape: tuple[int, ...] | None, *, fortran: bool, data: int
    ) -> None:
        self.dtype: np.dtype[np.generic] | None = None
        if descr and descr.lstrip("<>|=")[:1] in "biufc":
            try:
                self.dtype = np.dtype(descr)
            except TypeError:
                self.dtype = None
        self.shape, self.fortran, self.data = shape, fortran, data
        name = self.dtype.name if self.dtype is not None else descr or "of records"
        is_pickle = descr.lstrip("<>|=")[:1] == "O"
        displayed = "objects, a pickle that is not loaded" if is_pickle else name
        self.text = displayed if shape is None else f"{displayed} {_shape_text(shape)}"


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def find_npy(head: bytes) -> NpyHeader | None:
    """Return the header of a .npy value; None: it is none."""
    if not head.startswith(MAGIC) or len(head) < 12:
        return None
    size = 2 if head[6] == 1 else 4
    begun = 8 + size
    data = begun + int.from_bytes(head[8:begun], "little")
    text = head[begun : min(data, begun + 4096)].decode("latin-1")
    descr, shape, order = (one.search(text) for one in (_DESCR, _SHAPE, _ORDER))
    numbers: tuple[int, ...] | None = None
    if shape is not None:
        parts = [part.strip() for part in shape[1].split(",") if part.strip()]
        are_numbers = all(
            part.isascii() and part.isdecimal() and len(part) <= 20 for part in parts
        )
        if len(parts) <= DIMENSIONS_MAX and are_numbers:
            numbers = tuple(map(int, parts))
    return NpyHeader(
        descr[1] if descr else "",
        numbers,
        fortran=order is not None and order[1] == "True",
        data=data,
    )


def guess_numbers(head: bytes, length: int | None) -> tuple[str, int] | None:
    """Return dtype and count of raw numbers that a value may be; None: it looks like none.

    A guess, by how large the numbers would be: callers put a question mark to it.
    """
    if length is None:
        return None
    for name, size, is_likely in (
        ("int64", 8, _likely_integers),
        ("float64", 8, _likely_floats),
        ("float32", 4, _likely_floats),
        ("int32", 4, _likely_integers),
    ):
        if length % size or length < NUMBERS_MIN * size:
            continue
        count = min(len(head) // size, NUMBERS_SAMPLED)
        if count >= NUMBERS_MIN and is_likely(np.frombuffer(head, np.dtype(name), count)):
            return name, length // size
    return None


def _likely_floats(numbers: npt.NDArray[np.generic]) -> bool:
    with np.errstate(invalid="ignore"):  # a NaN that signals
        values = np.abs(numbers.astype(np.float64))
        usual = (values == 0) | ((values >= FLOAT_MIN) & (values <= FLOAT_MAX))
    return bool(usual.mean() >= FLOAT_SHARE and np.count_nonzero(values))


def _likely_integers(numbers: npt.NDArray[np.generic]) -> bool:
    """Small ones, which leave at least the upper half of their bytes unused."""
    limit = INTEGER_MAX if numbers.itemsize == 8 else 1 << 20
    values = numbers.astype(np.int64)
    return bool(np.all(np.abs(values) < limit) and np.count_nonzero(values))
