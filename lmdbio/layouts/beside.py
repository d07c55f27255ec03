"""Keys that look as if they belonged to no sample, in databases that have no layout."""

from __future__ import annotations

import re

from lmdbio.layouts.layout import Keys

__all__ = ["odd_keys"]

#: Names that programs give to what they keep beside their samples.
_USUAL = (
    *(b"__keys__", b"__len__", b"__metadata__", b"keys", b"length", b"len", b"classes"),
    *(b"num-samples", b"num_samples", b"num_examples", b"metadata", b"meta", b"info"),
)


def odd_keys(keys: Keys) -> tuple[bytes, ...]:
    """Return keys that may belong to no sample, by a look at a few of them.

    These are keys with a name that programs use so, and those before or behind all others that
    have no digit, where most have one.
    """
    ends = keys.ends
    wordy = [key for key in ends if not re.search(rb"\d", key)]
    odd = wordy if 2 * len(wordy) < len(ends) else []
    return tuple(dict.fromkeys((*odd, *filter(keys.has, _USUAL))))
