"""The part of a cursor that is C (lmdbio/_core/glue/position.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmdbio._core._lmdbio import lib
from lmdbio._core.owner import made_type

if TYPE_CHECKING:

    class Stands:
        """Base of a position: what programs call for each record is C, or calls Python.

        Python has ``_move``, ``_seek_key``, ``_get_key`` and ``_peek`` for it, and closes it by
        ``_seek = None``.
        """

        _seek: Any  #: of ``Lookup``
        _run: Any  #: records read ahead; None: none
        _unproved: int | None
        _placed: bool
        _keyless: bool
        _is_stale: bool
        _failed: bool

else:
    Stands = made_type(lib.lio_stands_type)
