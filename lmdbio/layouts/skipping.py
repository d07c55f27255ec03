"""Keys that are left out: as they are, or by patterns as of file names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from lmdbio.layouts.layout import Keys
from lmdbio.layouts.numbered import keys_of_run

__all__ = ["as_skip", "find_skipped"]

I64 = npt.NDArray[np.int64]

_SPECIAL = re.compile(rb"[*?[]")


def as_skip(given: Iterable[bytes | str] | bytes | str | None) -> tuple[bytes, ...]:
    """Return the keys and patterns of a ``skip=`` as bytes.

    Raises:
        TypeError: one is no text.
    """
    if given is None:
        return ()
    several = [given] if isinstance(given, (bytes, str)) else list(given)
    for one in several:
        if not isinstance(one, (bytes, str)):
            raise TypeError(
                f"skip: a key, or a pattern, is bytes or str, not {type(one).__name__}"
            )
    return tuple(one.encode() if isinstance(one, str) else one for one in several)


def find_skipped(keys: Keys, skip: tuple[bytes, ...]) -> I64:
    """Return the records, numbered in key order, whose keys are left out.

    Keys are looked up. Patterns (``*``, ``?``, ``[...]``) are held against all keys.

    Args:
        skip: keys and patterns, from ``as_skip``; one that no key has leaves out nothing.
    """
    patterns = [one for one in skip if _SPECIAL.search(one)]
    found = [keys.index(one) for one in skip if one and one not in patterns]
    records = [one for one in found if one is not None]
    if patterns:
        texts = (fnmatch.translate(one.decode("latin-1")).encode("latin-1") for one in patterns)
        matches = re.compile(b"|".join(texts), re.DOTALL).match
        base = 0
        for some in _all(keys):
            records += [base + at for at, key in enumerate(some) if matches(key)]
            base += len(some)
    return np.unique(np.array(records, np.int64))


def _all(keys: Keys) -> Iterator[list[bytes]]:
    """Iterate over all keys in key order, without reading any where they follow a pattern."""
    if keys.pattern is None:
        return keys.all()
    return (keys_of_run(run) for run in keys.pattern.runs)
