"""Warnings that point at the program that called, wherever in lmdbio they are made.

The logger hears of them as well (``log``).
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

from lmdbio.system.log import WARNING, log

__all__ = ["Place", "caller", "warn", "warn_of"]

#: With the separator, so that a folder whose name only begins so is another one.
PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
#: The file of frames in which Python imports a module.
IMPORTING = "<frozen importlib"


class Place(NamedTuple):
    """A line of a program.

    Attributes:
        file, line: file and line of the source.
        module: name of its module, which filters of warnings may tell.
        depth: frames between it and the caller of ``caller``.
    """

    file: str
    line: int
    module: str
    depth: int


def caller() -> Place:
    """Return the line outside of lmdbio that led here."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, IMPORTING)):
        # ``warnings`` passes over the frames of importing, too.
        depth += not frame.f_code.co_filename.startswith(IMPORTING)
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "<unknown>"))
    return Place(frame.f_code.co_filename, frame.f_lineno, module, depth)


def warn(text: str, category: type[Warning] = UserWarning, source: object = None) -> None:
    """Warn, with the line outside of lmdbio that led here (Python 3.12 could skip files itself).

    Args:
        text: text of the warning.
        category: category of the warning.
        source: argument of ``warnings.warn``.
    """
    log(text, WARNING)
    warnings.warn(text, category, stacklevel=caller().depth, source=source)


def warn_of(place: Place, text: str, category: type[Warning]) -> None:
    """Warn, with a line that was run earlier."""
    log(text, WARNING)
    warnings.warn_explicit(text, category, place.file, place.line, place.module)
