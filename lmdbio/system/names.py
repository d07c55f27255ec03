"""Tell URLs from paths, which each opening asks."""

from __future__ import annotations

import os

__all__ = ["absolute", "is_url"]

#: Of schemes, after their first letter.
_MARKS = frozenset("+.-")


def is_url(name: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> bool:
    """Return whether a name is a URL, such as "s3://bucket/train.mdb", and no path."""
    if not isinstance(name, str):
        return False
    scheme, found, _ = name.partition("://")
    # A drive of Windows, one letter, is none.
    return (
        bool(found)
        and len(scheme) > 1
        and scheme.isascii()
        and scheme[0].isalpha()
        and all(one.isalnum() or one in _MARKS for one in scheme)
    )


def absolute(name: str | os.PathLike[str]) -> str:
    """Return a path as it is from any folder; a URL, and an empty path, as they are."""
    text = os.fspath(name)
    if not text or text.startswith(os.sep) or is_url(text):
        return text
    try:
        return os.path.join(os.getcwd(), text)  # noqa: PTH109, PTH118, each opening comes here
    except FileNotFoundError:  # this folder is gone, and nothing is there any more
        return text
