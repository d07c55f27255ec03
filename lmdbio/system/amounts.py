"""amounts: bytes as people write them. Pure."""

from __future__ import annotations

__all__ = ["parse_bytes"]

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
    return value
