"""Reads small files of ``/proc`` and ``/sys``, in which the kernel tells of itself.

Names of control groups and mounts may be any bytes: what is no UTF-8 comes as surrogates, as in
Python's own file names. Paths are strings, for to open a database reads a dozen of these files,
and ``pathlib`` takes longer than the kernel.
"""

from __future__ import annotations

__all__ = ["number", "statistic", "text", "whole"]

#: The kernel's numbers have 64 bits.
DIGITS_MAX = 20


def text(path: str) -> str | None:
    """Return the text of a file; None: it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall().decode("utf-8", "surrogateescape")
    except (OSError, ValueError):  # a name that is none
        return None


def number(path: str) -> int | None:
    """The number in a file; None: there is none in it ("max"), or it cannot be read."""
    return whole((text(path) or "").strip())


def statistic(path: str, name: str) -> int | None:
    """Return the number in the line that begins with a name; None: there is none."""
    _, _, rest = f"\n{text(path) or ''}".partition(f"\n{name}")
    return whole((rest.split(None, 1) or [""])[0])


def whole(digits: str) -> int | None:
    """Return a number of the kernel's; None: it is none."""
    is_one = digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX
    return int(digits) if is_one else None
