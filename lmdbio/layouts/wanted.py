"""The records of a database that are wanted as samples, as callers say it.

Keys may be left out, as they are or by patterns as of file names. Where no layout is known, some
keys look as if they belonged to no sample.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from lmdbio.layouts.known import layout_named
from lmdbio.layouts.layout import Keys, Layout
from lmdbio.layouts.numbered import keys_of_run
from lmdbio.system.frozen import dataclass

__all__ = ["Skip", "Wanted", "find_skipped", "odd_keys"]

I64 = npt.NDArray[np.int64]
Skip = Iterable[bytes | str] | bytes | str

_SPECIAL = re.compile(rb"[*?[]")
#: Names that programs give to what they keep beside their samples.
_USUAL = (
    *(b"__keys__", b"__len__", b"__metadata__", b"keys", b"length", b"len", b"classes"),
    *(b"num-samples", b"num_samples", b"num_examples", b"metadata", b"meta", b"info"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that are wanted.

    Attributes:
        layout: a name, a layout, or "auto"; None: each record is a sample.
        skip: keys that are left out, and patterns of such.
    """

    layout: str | Layout | None
    skip: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, layout: str | Layout | None, skip: Skip | None) -> Wanted:
        """Return what is wanted, checked.

        Raises:
            ValueError, TypeError: there is no such layout, or a key is no text.
        """
        if layout is not None:
            layout_named(layout)
        return cls(layout, _as_skip(skip))

    def __repr__(self) -> str:
        name = self.layout if isinstance(self.layout, str | None) else self.layout.name
        return f"layout {name}, skip {self.skip}"


def _as_skip(given: Skip | None) -> tuple[bytes, ...]:
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
        skip: keys and patterns of ``Wanted``; one that no key has leaves out nothing.
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


def odd_keys(keys: Keys) -> tuple[bytes, ...]:
    """Return keys that may belong to no sample, by a look at a few of them.

    These are keys with a name that programs use so, and those before or behind all others that
    have no digit, where most have one.
    """
    ends = keys.ends
    wordy = [key for key in ends if not re.search(rb"\d", key)]
    odd = wordy if 2 * len(wordy) < len(ends) else []
    return tuple(dict.fromkeys((*odd, *filter(keys.has, _USUAL))))
