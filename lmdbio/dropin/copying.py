"""copying: copies of an environment, which py-lmdb makes."""

from __future__ import annotations

import os

from lmdbio import _core
from lmdbio.dropin.data_file import DataFile
from lmdbio.errors import MDB_BAD_TXN, lmdb_error
from lmdbio.system.pylmdb import lmdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["copy_by_lmdb"]


def copy_by_lmdb(file: DataFile, call: Callable[[Any, Any], Any], txn: Any, compact: Any) -> None:
    """Have py-lmdb copy a file.

    Args:
        file: DataFile to copy.
        call: function that copies py-lmdb's environment, and its transaction or None.
        txn: transaction of ours, whose state is copied; None: the newest.
        compact: argument of ``Environment.copy``, as its caller gave it.

    Raises:
        TypeError: ``txn`` is no transaction, or goes with ``compact`` alone.
        BadTxnError: it has ended.
        lmdb.Error: it holds no reader slot, and its state is no longer the newest.
    """
    file.open_engine()
    if txn is not None and not isinstance(txn, _core.Transacts):
        raise TypeError("invalid type")
    if txn is not None and not compact:
        raise TypeError("txn argument only compatible with compact=True")
    if txn is not None and txn._ended:
        raise lmdb_error("mdb_env_copy3", MDB_BAD_TXN)
    if file.open_engine().remote_file is not None:
        raise lmdb_error(f"{file.path}: is copied by lmdbio pull")
    lock_file, slot = file.lock_file(), None if txn is None else txn._slot
    if slot is not None:
        call(lock_file, slot)
    elif txn is not None and file.newest(None)[0].txnid != txn._opened.meta.txnid:
        raise lmdb_error(f"{file.path}: only a reader slot (lock=True) holds an older state")
    elif lock_file is not None:
        call(lock_file, None)
    else:
        options = {"readonly": True, "lock": False, "create": False, "subdir": file.subdir}
        with lmdb.open(os.fsencode(file.location), **options) as env:
            call(env, None)
