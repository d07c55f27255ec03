"""Compact: from a source to a target that is whole and converted.

Random insertions, updates and deletions scatter records over a file and leave free pages behind;
a copy in the order of the trees is smaller, and a few large reads fetch many neighbours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core import Engine
from lmdbio.convert import convert as conversion
from lmdbio.convert.census import Sizes
from lmdbio.convert.copying import Copy
from lmdbio.errors import Error
from lmdbio.provenance import Name, Provenance, data_file, find_sidecar, sidecar_file
from lmdbio.provenance.freshness import DEPTH, Progress, is_described
from lmdbio.system.publish import Draft, refuse_taken

__all__ = ["CompactReport", "compact"]


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The report of ``compact``.

    Attributes:
        source, target: the two data files.
        sidecar: the copy's provenance file; None: none was asked for.
        databases: names, None being the main database.
        txnid: the transaction of the source that was copied.
        before, after: source and copy.
        values_compared: whether the values were compared, too, not their lengths alone.
        copy_seconds: time for copying, until it was on the disk.
        check_seconds: time for reading the copy for damage, and comparing it with the source.
        convert_seconds: time for writing the provenance file.
        seconds: time that all of it took, seconds.
    """

    source: Path
    target: Path
    sidecar: Path | None
    databases: tuple[Name, ...]
    txnid: int
    before: Sizes
    after: Sizes
    values_compared: bool
    copy_seconds: float
    check_seconds: float
    convert_seconds: float
    seconds: float


def compact(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    convert: bool = True,
    values: bool = True,
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> CompactReport:
    """Copy an environment without its free pages, and write the copy's provenance file.

    The copy is of the same kind, a folder or a single file, and keeps the data format, page size,
    map size and databases. It gets its name when all of it is on the disk, every page of it was
    checked, and it was compared with the source, byte for byte: the names and flags of databases,
    all keys in their order, how many values each has, and all values.
    A draft that a killed run left is removed by the next run for the same target.

    Args:
        source: an environment's folder or file. A lock file that exists is used (a reader slot
            keeps the state that is copied); none is made.
        target: a path that is free; for a folder it may also be an empty folder.
        convert: whether a provenance file is written.
        values: whether values are compared; False: their lengths alone, which stand on the pages
            that keys lie on. Both files are read once more for it, mostly out of the page cache.
        output: the place of the provenance file, as in ``convert``.
        progress: function called with (done, in all, stage): pages in the stages "look", "copy"
            and "check", records in "contents"; then ``convert``'s stages.

    Raises:
        FileExistsError: the target.
        OSError: too little room, or no provenance file can be written at ``output`` (before
            anything is copied); or the target can't be written.
        ValueError: the target lies inside of the source.
        IncompatibleError: LMDB cannot copy these databases.
        Error: commits came while it was copied without a reader slot.
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: the source.
    """
    began = time.monotonic()
    data, target = data_file(source), Path(target)
    folder = Path(source).is_dir()
    _check_target(target, Path(source), folder)
    copied_data = target / "data.mdb" if folder else target
    if convert and not (folder and _comes_with(copied_data, output)):
        conversion.try_target(copied_data, output)  # hours before it is written
    known = _provenance_state(data) if convert else None
    with Engine(data, depth=DEPTH) as reader:
        copy = Copy(reader, target, folder, progress, values=values)
        with Draft(target, "the copy", inside="data.mdb" if folder else None) as draft:
            copy.run(draft)
            draft.publish()
    copied = time.monotonic()
    made = _convert_copy(target, copy, known, output, progress) if convert else None
    ended = time.monotonic()
    report = _report(data, copied_data, copy, made, values=values)
    return replace(report, convert_seconds=ended - copied, seconds=ended - began)


def _report(
    data: Path,
    copied_data: Path,
    copy: Copy,
    made: conversion.ConvertReport | None,
    *,
    values: bool,
) -> CompactReport:
    """Return what was done, but for the times that ``compact`` alone knows."""
    return CompactReport(
        source=data,
        target=copied_data,
        sidecar=None if made is None else made.sidecar,
        databases=tuple(one.name for one in copy.before.databases),
        txnid=copy.meta.txnid,
        before=copy.before.sizes(_sidecar_bytes(data)),
        after=copy.after.sizes(0 if made is None else made.sidecar_bytes),
        values_compared=values,
        copy_seconds=copy.copy_seconds,
        check_seconds=copy.check_seconds,
        convert_seconds=0.0,
        seconds=0.0,
    )


def _convert_copy(
    target: Path,
    copy: Copy,
    known: _ProvenanceState | None,
    output: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> conversion.ConvertReport:
    """Write the copy's provenance file.

    Raises:
        Error: it cannot be written; the copy is whole.
    """
    # A provenance file of another state says nothing about this copy.
    same = known if known is not None and known.txnid == copy.meta.txnid else None
    try:
        return conversion.convert(
            target,
            output=output,
            databases=None if same is None else same.databases,
            order=None if same is None else same.orders,
            progress=progress,
        )
    except (Error, OSError) as e:
        raise Error(f"{target} is whole, but has no provenance file: {e}") from e


class _ProvenanceState(NamedTuple):
    """The part of the source's provenance file that is true of the copy, too.

    Attributes:
        txnid: transaction number of the state that it describes.
        databases: names of the databases in it.
        orders: orders of their records, as they were put, where it tells them.
    """

    txnid: int
    databases: list[Name]
    orders: dict[Name, npt.NDArray[np.int64]]


def _provenance_state(data: Path) -> _ProvenanceState | None:
    sidecar = find_sidecar(data)
    if not is_described(data, sidecar):
        return None
    with Provenance.open(sidecar) as found:
        orders = {section.name: section.order() for section in found.sections}
        known = {name: order for name, order in orders.items() if order is not None}
        return _ProvenanceState(found.facts.txnid, list(orders), known)


def _comes_with(copied_data: Path, output: str | os.PathLike[str] | None) -> bool:
    """Return whether the provenance file lies in the folder that is yet to be made.

    A folder that is made inside of that one counts as well: nothing is in the file's way there.
    """
    sidecar, data = map(os.path.realpath, (sidecar_file(copied_data, output), copied_data))
    folder = os.path.dirname(data)  # noqa: PTH120
    if output is None:
        return Path(sidecar).is_relative_to(folder)
    return os.path.dirname(sidecar) == folder and sidecar != data  # noqa: PTH120


def _sidecar_bytes(data: Path) -> int:
    with contextlib.suppress(OSError):
        return find_sidecar(data).stat().st_size
    return 0


def _check_target(target: Path, source: Path, folder: bool) -> None:
    """Refuse a target that would replace anything but an empty folder."""
    if target.is_dir() and not folder:
        raise FileExistsError(
            errno.EEXIST,
            f"is a folder; a copy of {source} is a single file",
            str(target),
        )
    refuse_taken(target, "the copy", folder=folder)
    if folder and target.parent.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{target}: lies inside of {source}, to which nothing is written")
