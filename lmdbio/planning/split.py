"""split: even parts of so many things. Pure."""

from __future__ import annotations

__all__ = ["split_share"]


def split_share(total: int, parts: int, part: int) -> range:
    """The positions of ``part`` when ``total`` things are shared evenly by ``parts``."""
    return range(part * total // parts, (part + 1) * total // parts)
