"""Hold what a caller asked for by name, and read it from the variables of the environment. Pure.

    LMDBIO_ENGINE=direct LMDBIO_DEPTH=16   ->   Overrides(engine="direct", depth=16)

``choice.choose`` lets them win over what was measured, and over what is under the file.
"""

from __future__ import annotations

import os

from lmdbio.system.amounts import PAGE_BYTES, parse_bytes, whole
from lmdbio.system.frozen import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["DEPTH_MAX", "ENGINES", "FIELDS", "Overrides", "VARIABLES", "overrides_from_env"]

ENGINES = ("auto", "pread", "direct", "uring", "staged", "mmap")
DEPTH_MAX = 256  # csrc/engine_private.h
#: More than this is no request and no gap, but a file.
BYTES_LARGEST = 1 << 40

#: Variables of the environment, by the field that they set.
VARIABLES = {
    "engine": "LMDBIO_ENGINE",
    "depth": "LMDBIO_DEPTH",
    "request_bytes_max": "LMDBIO_REQUEST_BYTES",
    "gap_bytes_max": "LMDBIO_GAP_BYTES",
}
#: Those that are read no more, and what to write instead.
REMOVED = {"LMDBIO_URING": "LMDBIO_ENGINE=direct, or another engine"}


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings that a caller, or the environment, asks for instead of the choice made here.

    Attributes:
        engine: "pread", "direct", "uring", "staged" or "mmap"; None: none is asked for, and so on.
        depth: requests in flight.
        request_bytes_max: largest single request, bytes, a multiple of ``PAGE_BYTES``.
        gap_bytes_max: largest gap that is read to save a request, bytes nobody asked for.

    Raises:
        TypeError, ValueError: one is no whole number, or out of its range; names it.
    """

    engine: str | None = None
    depth: int | None = None
    request_bytes_max: int | None = None
    gap_bytes_max: int | None = None

    def __post_init__(self) -> None:
        if self.engine is not None and not isinstance(self.engine, str):
            raise TypeError(f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}")
        for name, (least, most) in _RANGES.items():
            asked = getattr(self, name)
            if asked is not None:
                object.__setattr__(self, name, whole(name, asked, least, most))


_RANGES = {
    "depth": (1, DEPTH_MAX),
    "request_bytes_max": (1, BYTES_LARGEST),
    "gap_bytes_max": (0, BYTES_LARGEST),
}
FIELDS: tuple[str, ...] = Overrides.__match_args__


def _parse_engine(text: str, variable: str) -> str | None:
    if text.casefold() not in ENGINES:
        raise ValueError(f"{variable} must be one of {', '.join(ENGINES)}, not {text!r}")
    return None if text.casefold() == "auto" else text.casefold()


def _parse_depth(text: str, variable: str) -> int:
    depth = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= depth <= DEPTH_MAX:
        raise ValueError(f"{variable} must be a number from 1 to {DEPTH_MAX}, not {text!r}")
    return depth


def _parse_request(text: str, variable: str) -> int:
    size = parse_bytes(text, variable)
    if size % PAGE_BYTES:
        raise ValueError(f"{variable} must be a multiple of {PAGE_BYTES} bytes, not {text!r}")
    return whole(variable, size, PAGE_BYTES, BYTES_LARGEST)


def _parse_gap(text: str, variable: str) -> int:
    size = 0 if text == "0" else parse_bytes(text, variable)
    return whole(variable, size, 0, BYTES_LARGEST)


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "engine": _parse_engine,
    "depth": _parse_depth,
    "request_bytes_max": _parse_request,
    "gap_bytes_max": _parse_gap,
}


def overrides_from_env(environ: Mapping[str, str] = os.environ) -> Overrides:
    """Read what the environment asks for.

    Raises:
        ValueError: a value makes no sense, or a variable is read no more; names the variable.
    """
    for variable, instead in REMOVED.items():
        if environ.get(variable):
            raise ValueError(f"{variable} is not read any more: write {instead}")
    found: dict[str, Any] = {}
    for field, variable in VARIABLES.items():
        text = environ.get(variable, "").strip()
        if text:
            found[field] = _PARSERS[field](text, variable)
    return Overrides(**found)
