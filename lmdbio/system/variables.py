"""variables: says quickly what variables of the environment have by now.

``os.environ.get`` takes most of a microsecond, for it encodes the name, raises for one that is not
there, and decodes the text: to see whether some are as they were takes none of that.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["texts"]

#: ``os.environ`` and ``os.environb`` are views of this. The latter does as well, at its pace.
_kept: Mapping[bytes, bytes] = getattr(os.environ, "_data", os.environb)


def texts(names: tuple[bytes, ...]) -> tuple[Any, ...]:
    """Return what the variables have, as bytes to be compared; None: there is no such variable."""
    return tuple(map(_kept.get, names))
