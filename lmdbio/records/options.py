"""options: the keywords of Records, as type checkers know them where others hand them on.

Nothing here is loaded when a program runs.
"""

from __future__ import annotations

import os
from typing import TypedDict

from lmdbio.layouts.layout import Layout
from lmdbio.layouts.wanted import Skip
from lmdbio.locate.open import Check, Locate, Order

__all__ = ["RecordsOptions"]


class RecordsOptions(TypedDict, total=False):
    """Keywords of ``Records``, with their types there."""

    db: bytes | str | None
    locate: Locate
    provenance: str | os.PathLike[str] | None
    check: Check
    order: Order
    layout: str | Layout | None
    skip: Skip | None
    engine: str
    depth: int | None
    gap_bytes_max: int | None
    request_bytes_max: int | None
    readahead: bool | None
    memory_bytes_max: int | str | None
    subdir: bool | None
