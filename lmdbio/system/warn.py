"""Warnings that point at the program that called, wherever in lmdbio they are made.

The logger hears of them as well (``log``).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from lmdbio.system.log import WARNING, tell

__all__ = ["warn"]

#: With the separator, so that a folder whose name only begins so is another one.
PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"


def warn(text: str, category: type[Warning] = UserWarning, source: object = None) -> None:
    """Warn, with the line outside of lmdbio that led here (Python 3.12 could skip files itself).

    Args:
        text: to be told.
        category: of the warning.
        source: as for ``warnings.warn``.
    """
    tell(text, WARNING)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_code.co_filename).startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level, source=source)
