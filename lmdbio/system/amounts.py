"""amounts: bytes that reads keep to; numbers, bytes, flags, words as people write them. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

__all__ = [
    "BYTES_MAX",
    "GAP_BYTES_MAX",
    "PAGE_BYTES",
    "REQUEST_BYTES_MAX",
    "count_text",
    "parse_bytes",
    "refuse_no_flag",
    "refuse_unknown",
    "size_text",
    "whole",
]

#: More is no memory, and no file.
BYTES_MAX = 1 << 60
#: Reads begin and end on these boundaries, whatever the engine: the kernel reads no less, and
#: records on neighbouring pages then touch, so that they share a read without a gap.
PAGE_BYTES = 4096
#: At 1.5 GB/s 64 KiB cost 40 us, less than a request's latency on any storage.
GAP_BYTES_MAX = 64 << 10
#: Of batches: several in flight at 1 MiB reach what a local disk gives; larger ones only make
#: the first byte later.
REQUEST_BYTES_MAX = 1 << 20
_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str, what: str) -> int:
    """An amount of bytes such as "4096", "64M" or "2.5G" (powers of 1024).

    Raises:
        ValueError: names ``what``.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    factor = _SUFFIXES.get(number[-1:], 0)
    digits = number[:-1] if factor else number
    try:
        value = int(float(digits) * factor) if factor else int(digits)
    except (ValueError, OverflowError):
        value = 0
    if value <= 0:
        raise ValueError(f"{what} must be a positive number of bytes (such as 2G), not {text!r}")
    if value > BYTES_MAX:
        raise ValueError(f"{what} must be at most {BYTES_MAX} bytes, not {text!r}")
    return value


def whole(what: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number as an int.

    Raises:
        TypeError: it is none: NumPy's are welcome, booleans, floats and text are not; names
            ``what``.
        ValueError: it is below ``least`` or above ``most``.
    """
    try:
        number = None if isinstance(value, bool) else int(value.__index__())
    except (AttributeError, TypeError):  # arrays of several have one that refuses
        number = None
    if number is None:
        raise TypeError(f"{what} must be an integer, not {value!r}")
    if most is not None and not (least or 0) <= number <= most:
        raise ValueError(f"{what} must be from {least or 0} to {most}, not {number}")
    if least is not None and number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    return number


def refuse_no_flag(*others: object, **given: Any) -> None:
    """Raise TypeError for an argument, by its name, that is neither True nor False.

    NumPy's are welcome. A word is not: "no" would count as true.

    Args:
        others: values that the arguments may have besides.
        given: the arguments.
    """
    for what, value in given.items():
        is_flag = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
        if not is_flag and value not in others:
            known = ", ".join(["True", "False", *map(repr, others)])
            raise TypeError(f"{what} must be one of {known}, not {value!r}")


def refuse_unknown(what: str, value: object, known: Collection[str]) -> None:
    """Raise ValueError for an argument, by its name, that is none of the known words."""
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, not {value!r}")


def size_text(count: float) -> str:
    """Return bytes in a unit that reads well, exact below 1 KiB."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def count_text(count: int, noun: str) -> str:
    """Return a number of things."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending * (count != 1)}"
