"""Open a database for reading records by index: by its provenance file, or by a walk.

provenance   the provenance file, where one describes this state: no page of the tree is read
scan         one walk over the branch and leaf pages at open
auto         the former if it holds, else the latter, with a warning that says why
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import IncompatibleError, ProvenanceError
from lmdbio.locate.key_index import Groups, KeyIndex
from lmdbio.locate.open_database import OpenFile, guard_state, opening, settled
from lmdbio.locate.record_index import RecordIndex
from lmdbio.locate.refusals import refuse_headers
from lmdbio.locate.tree import Tree, WalkedTree, walk_tree
from lmdbio.provenance import (
    Paths,
    Provenance,
    Section,
    data_files,
    find_sidecar,
    freshness,
    in_words,
    name_bytes,
    name_text,
)
from lmdbio.provenance.freshness import Check
from lmdbio.provenance.keys import describe
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.values import DUPSORT, REVERSEKEY
from lmdbio.remote import absolute, is_url, label
from lmdbio.system.amounts import refuse_no_flag, refuse_unknown
from lmdbio.system.log import log
from lmdbio.system.warn import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmdbio.layouts.layout import Layout
    from lmdbio.layouts.wanted import Skip, Wanted

__all__ = [
    "Check",
    "Locate",
    "Order",
    "number_keys",
    "open_record_index",
    "wanted_samples",
]

I64 = npt.NDArray[np.int64]

Locate = Literal["auto", "provenance", "scan"]
Order = Literal["key", "insertion"]


def open_record_index(
    path: Paths,
    *,
    db: bytes | str | None = None,
    locate: Locate = "auto",
    provenance: str | os.PathLike[str] | None = None,
    check: Check = "fast",
    order: Order = "key",
    samples: Wanted | None = None,
    subdir: bool | None = None,
    vouched: bytes | None = None,
) -> RecordIndex:
    """Open a database for reading records by index; of several files, that of each as one.

    Args:
        path: an environment's folder or its one file, or several (``provenance.data_files``).
        db: a named database, None for the main one.
        locate: "provenance" demands the provenance file, "scan" walks the tree, "auto" takes the
            provenance file when there is one that holds, says so in a warning when it does not.
        provenance: the file, or its folder; None: the usual places (``provenance.find_sidecar``).
        check: method of checking the provenance file against the data (``freshness.check``).
        order: numbering of the records: "key", or "insertion": the order in which they were put,
            where ``lmdbio convert --order`` noted it, or their keys are numbers that count
            (``KeyPattern.by_number``).
        samples: records that are samples (``wanted_samples``); None: all are.
        subdir: argument of ``lmdb.open``; None takes a folder or a file.
        vouched: digest (``RecordIndex.digest``) of a provenance file that another process has
            checked against this very file just now: one of that digest is taken at its word.

    Raises:
        OSError, Error: the file, its metas or its tree cannot be read.
        ProvenanceError, StaleError: the provenance file is damaged or not this database's, and
            ``locate="provenance"``.
        IncompatibleError: the order asked for is not known, or the database has not the layout.
        LookupError: no such named database; or ``db`` is None, and the main database holds nothing
            but named ones.
        ValueError: an argument makes no sense.
    """
    refuse_unknown("locate", locate, get_args(Locate))
    refuse_unknown("check", check, get_args(Check))
    refuse_unknown("order", order, get_args(Order))
    refuse_no_flag(None, subdir=subdir)
    files = data_files(path, subdir)
    name = name_bytes(db)
    how: dict[str, Any] = {"locate": locate, "check": check, "order": order, "samples": samples}
    if len(files) == 1:
        return _open_one(files[0], name, provenance, vouched, **how)
    if provenance is not None and not Path(provenance).is_dir():
        raise ValueError(
            f"{provenance}: {in_words(files)} have a provenance file each: name the folder of them"
        )
    from lmdbio.locate.joined import join_indexes  # others begin sooner without it

    place = provenance if provenance is None else absolute(provenance)
    beside = None if locate == "scan" else partial(find_sidecar, provenance=place)
    return join_indexes(files, lambda data: _open_one(data, name, place, **how), name, beside)


def _open_one(
    data: str,
    name: bytes | None,
    provenance: str | os.PathLike[str] | None,
    vouched: bytes | None = None,
    *,
    locate: Locate,
    check: Check,
    order: Order,
    samples: Wanted | None,
) -> RecordIndex:
    """Open a database of one data file; arguments as for ``open_record_index``."""
    is_demanded, refused = locate == "provenance", None

    def begin() -> RecordIndex:
        nonlocal refused
        # A provenance file has the database's record as well, and a walk is guarded.
        with opening(data, name, "pread", proves=True) as file:
            found, why = None, None
            if locate == "scan":
                refuse_headers(file.pages, file.meta, name, file.database)
            else:
                found, why = _open_provenance(
                    file, name, provenance, check, is_demanded=is_demanded, vouched=vouched
                )
            if why is not None and refused is None:  # the first try tells it for all
                refused = why
                refused.report()
            if found is None and order == "insertion":
                _refuse_lost_order(data, name, provenance)
            try:
                index = _make_index(file, name, found, order, samples, is_demanded=is_demanded)
            except BaseException:
                if found is not None:
                    found.close()
                raise
        if found is None:
            index.reason = "scan was asked for" if why is None else why.reason
        return index

    return settled(data, begin)


def wanted_samples(layout: str | Layout | None, skip: Skip | None, order: Order) -> Wanted | None:
    """Return which records are wanted as samples; None: all of them, by their numbers.

    Args:
        layout: "auto", the name of a layout or a ``Layout``; None: each record is a sample.
        skip: keys and patterns of keys that are left out (``layouts.wanted``).
        order: order of the records, an argument of ``open_record_index``.

    Raises:
        ValueError, TypeError: there is no such layout, it does not go with the order, or a key is
            no text.
    """
    if layout is None and not skip:
        return None
    from lmdbio.layouts.wanted import Wanted  # others begin sooner without it

    if layout is not None and order != "key":
        raise ValueError(
            f"order={order!r} numbers records as they were put, and layout= in an order of its "
            "own: give one of them"
        )
    return Wanted.of(layout, skip)


def _make_index(
    file: OpenFile,
    name: bytes | None,
    provenance: Provenance | None,
    order: Order,
    wanted: Wanted | None,
    *,
    is_demanded: bool,
) -> RecordIndex:
    """Make the index of an open file from its provenance file; None: from a walk done here."""
    pages, meta, database = file
    size = pages.size()
    put_order = chosen = samples = None
    if wanted is not None:
        from lmdbio.locate.samples import find_samples  # others begin sooner without it

        samples = find_samples(file, name, wanted)
    in_put_order = order == "insertion"
    needs_keys = in_put_order or (samples is not None and samples.needs_keys)
    known: Section | WalkedTree
    if provenance is not None:
        known = provenance.section(name)
        provenance.attach(LeafReader(pages, meta.layout))
    else:
        known = walk_tree(pages, meta, database, keys=needs_keys)
    if in_put_order:
        chosen = put_order = _put_order(pages.path, name, database, known)
    tree = Tree(file, known, is_demanded=is_demanded)
    keys = tree.index_keys()
    if samples is not None:
        chosen = samples.records(keys, put_order)
    if samples is not None or provenance is None:
        guard_state(pages, meta)
    index = RecordIndex(
        path=pages.path,
        db=name,
        meta=meta,
        count=database.entries if chosen is None else len(chosen),
        locate="provenance",
        reason="",
        _pages=pages,
        _keys=keys,
        _order=chosen,
        _table=None,
        _provenance=provenance,
        _tree=tree,
        _size=size,
        entries=database.entries,
        columns=1 if samples is None else samples.columns,
        layout=None if samples is None else samples.layout,
    )
    index.take_walk()
    return index


# --- keys alone ---------------------------------------------------------------------------


def number_keys(
    pages: _core.Pages,
    meta: _core.Meta,
    db: _core.Database,
    name: bytes | None,
    guard: Callable[[], None],
) -> KeyIndex:
    """Number the keys of a database: by the provenance file at its usual place, or by a walk.

    Args:
        pages: cached pages of the data file, which the keys are then read from.
        meta, db: the state, and the database ``name`` in it.
        guard: function that raises when what was read may be of another state.

    Raises:
        OSError, Error: the tree cannot be read.
    """
    engine = pages.engine
    with engine.again("pread", depth=32) as reader, contextlib.ExitStack() as opened:
        file, known = OpenFile(reader, meta, db), None
        provenance, refused = _open_provenance(
            file, name, None, "fast", is_demanded=False, for_records=False
        )
        if refused is not None:
            refused.report()
        if provenance is not None:
            known = opened.enter_context(provenance).section(name)
            provenance.attach(LeafReader(reader, meta.layout))
        walk = walk_tree(reader, meta, db, keys=True) if known is None else known
        tree = Tree(file, walk, is_demanded=False)
        # Read now: the files are closed when they are asked for.
        each = tree.each_key() if db.flags & DUPSORT else None
        groups = None if each is None else Groups(lambda: each)
        pattern, leaves = tree.known.keys if known is None else known.keys, np.empty(0, _core.LEAF)
        if pattern is None or known is None:
            leaves = tree.leaves(groups)
    return KeyIndex(
        engine,
        meta,
        db,
        pattern=pattern,
        leaves=lambda: leaves,
        groups=groups,
        guard=guard,
        pages=pages,
    )


class _Refused(NamedTuple):
    """Why a provenance file is not used.

    Attributes:
        reason: a sentence.
        is_usual: whether there is none, which most databases have not, and nobody named one.
    """

    reason: str
    is_usual: bool

    def report(self) -> None:
        """Log it, or warn of it, and that the tree is walked instead."""
        text = f"{self.reason}; the tree is walked instead"
        if self.is_usual:  # which is worth no warning
            log(text)
        else:
            warn(text)


# --- the provenance file ------------------------------------------------------------------


def _open_provenance(
    file: OpenFile,
    name: bytes | None,
    place: str | os.PathLike[str] | None,
    check: Check,
    *,
    is_demanded: bool,
    for_records: bool = True,
    vouched: bytes | None = None,
) -> tuple[Provenance | None, _Refused | None]:
    """Open the provenance file, checked and with a section for the database.

    Args:
        for_records: the entries of a main database are to be read, so they must be records.

    Returns:
        It; or None, and why not, where there is none that holds and it is not demanded.
    """
    pages, meta, database = file
    path = find_sidecar(pages.location, place)
    found = None
    try:
        found = Provenance.open(path)
        if vouched is not None and vouched == found.facts.digest:
            freshness.check_facts(pages, meta, found)
        else:
            freshness.check(pages, meta, found, check)
        section = found.section(name)
        freshness.compare_database(found, pages.path, name_text(name), database, section.database)
    except BaseException as e:
        if found is not None:
            found.close()
        if not isinstance(e, ProvenanceError | FileNotFoundError | PermissionError | KeyError):
            raise
        if for_records:
            refuse_headers(pages, meta, name, database)
        # Some object stores refuse what is not there, to those who may not list what is.
        is_missing = isinstance(e, FileNotFoundError) or (
            isinstance(e, PermissionError) and is_url(path)
        )
        reason = (
            f"{pages.path}: has no provenance file ({label(path)})" if is_missing else _text(e)
        )
        if is_demanded:
            if isinstance(e, ProvenanceError | PermissionError) and not is_missing:
                raise
            raise ProvenanceError(f"{reason}; lmdbio convert makes one") from e
        return None, _Refused(reason, is_missing and place is None)
    return found, None


def _text(error: BaseException) -> str:
    """Return the message of an error; str() of a KeyError would quote it."""
    return str(error.args[0] if isinstance(error, KeyError) else error)


# --- the order in which records were put --------------------------------------------------


def _put_order(
    data: str, name: bytes | None, db: _core.Database, known: Section | WalkedTree
) -> I64:
    """Return the records in the order in which they were put; int64, numbers in key order."""
    order, pattern = known.order(), known.keys
    if order is not None or not db.entries:
        return np.empty(0, np.int64) if order is None else order
    if db.flags & DUPSORT:
        why = "keys may have many"
    elif pattern is None:
        why = "its keys follow no pattern, and lmdbio convert was not told (--order)"
    else:
        # Text whose last digits are sorted first looks as if it counted.
        order = None if db.flags & REVERSEKEY else pattern.by_number()
        why = f"its keys ({describe(pattern.runs)}) do not count in one way"
    if order is None:
        raise IncompatibleError(
            f"{data}: {name_text(name)}: the order in which its records were put is not "
            f"known: {why}"
        )
    return order


def _refuse_lost_order(
    data: str, name: bytes | None, provenance: str | os.PathLike[str] | None
) -> None:
    """Refuse numbers in keys where a provenance file that is not used tells an order, or may.

    The order was told once, because the keys do not tell it: they are no better now.
    """
    sidecar = find_sidecar(data, provenance)
    try:
        with Provenance.open(sidecar) as found:
            has_order = any(one.has_order for one in found.sections if one.name == name)
        how, why = "is", "which does not describe this state"
    except FileNotFoundError:
        return
    except (ProvenanceError, OSError) as error:
        has_order, how, why = True, "may be", f"which cannot be used ({error})"
    if has_order:
        raise IncompatibleError(
            f"{label(data)}: {name_text(name)}: the order in which its records were put {how} "
            f"told by {label(sidecar)}, {why}: convert it again, with --order"
        )
