"""Convert: one walk over a database becomes its provenance file.

    walk -> extents -> blocks -> draft -> read back and compared -> published

Only branch and leaf pages are read: they alone tell where every value lies.

Invariants:
  - a sidecar appears under its name whole, compared with what was walked, or not at all;
  - it describes one state: a commit during the walk starts the walk again;
  - nothing but a provenance file is ever replaced.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import (
    BlockForm,
    Engine,
)
from lmdbio.convert.database_walk import DatabaseWalk
from lmdbio.convert.put_order import GivenOrders, KeyLog
from lmdbio.errors import (
    CorruptedError,
    Error,
    IncompatibleError,
    ProvenanceError,
    ShortReadError,
)
from lmdbio.locate.refusals import refuse_cut, refuse_end
from lmdbio.provenance import (
    MAGIC,
    PROVENANCE_DIR,
    Name,
    Provenance,
    find_data,
    name_text,
    sidecar_file,
)
from lmdbio.provenance.freshness import (
    DEPTH,
    Progress,
    Steps,
)
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.writer import Form, Made
from lmdbio.remote import open_data
from lmdbio.remote.url import redacted
from lmdbio.system.amounts import refuse_unknown
from lmdbio.system.log import log
from lmdbio.system.publish import Draft, unwritable

__all__ = ["ConvertReport", "Form", "convert", "try_target"]

I64 = npt.NDArray[np.int64]

ATTEMPTS = 3
#: The file's name, and the way out, in the message that it can't be written.
WHAT = "the provenance file"
HINT = f"; name another place with --output or {PROVENANCE_DIR}"


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """Findings and costs of ``convert``.

    Attributes:
        data, sidecar: the two files.
        databases: names of the databases, None being the main one.
        records, record_bytes: number of records in all of them, and their size.
        runs: stretches of records that one jump describes.
        replayed: databases whose records are found by replaying how they were made.
        blocks_runs, blocks_explicit, blocks_leaves: blocks of each form, of the others.
        pages_read: branch and leaf pages read.
        bytes_read, requests: size and number of the engine's reads.
        sidecar_bytes: size of the provenance file.
        attempts: number of attempts; above 1 when the database was committed to meanwhile.
        seconds: duration of the conversion.
    """

    data: Path | str
    sidecar: Path
    databases: tuple[Name, ...]
    records: int
    record_bytes: int
    runs: int
    replayed: int
    blocks_runs: int
    blocks_explicit: int
    blocks_leaves: int
    pages_read: int
    bytes_read: int
    requests: int
    sidecar_bytes: int
    attempts: int
    seconds: float

    def __str__(self) -> str:
        names = ", ".join(map(name_text, self.databases))
        return (
            f"{self.sidecar}: {self.records:,} records of {names}, in {self.sidecar_bytes:,} "
            f"bytes; {self.seconds:.2f} s"
        )


def convert(
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    databases: Sequence[str | bytes | None] | Literal["all"] | None = None,
    overwrite: bool = True,
    form: Form = "auto",
    order: Iterable[bytes] | Mapping[Name, KeyLog | I64] | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Write the provenance file of a database. Only branch and leaf pages are read.

    It is written under another name, read back, every record decoded and compared with what was
    walked, and then renamed. A commit during the walk starts it again.

    Args:
        path: the environment's folder or file.
        output: a file, or a folder: one that is there, or ends in "/", and is made; None: as
            ``provenance.sidecar_file`` says.
        databases: names of the databases, None in the list being the main one; "all"; or None: the
            main one, or all named ones when it holds nothing else.
        overwrite: whether to replace an existing provenance file.
        form: "replay": how the database was made; "runs": stretches of pages; "leaves": the leaf
            pages, from which the rest is read; "explicit": each offset; "auto": the smallest that
            is exact, where leaves have to save a block of the storage (4 KiB).
        order: order in which all keys of the one database that is described were put, for
            ``order="insertion"`` of readers; or of each database the puts and deletes (where keys
            may have many values it is passed over), or its records as they were put; None: the one
            that the keys tell by themselves.
        progress: function of (done, in all, stage); "walk" counts pages, "compare" records.

    Raises:
        IncompatibleError: ``form`` cannot say where the records of a database lie; ``order`` is
            that of several, or of one whose keys have many values, or names other keys.
        FileExistsError: with ``overwrite=False``; or the target is no provenance file.
        PermissionError, OSError: the target can't be written; the message says what to do.
        LookupError: no database of a name given.
        Error: commits came faster than the database could be walked.
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: the data.
    """
    began = time.monotonic()
    refuse_unknown("form", form, get_args(Form))
    data = find_data(path)
    with open_data(data, depth=DEPTH) as reader:
        target = sidecar_file(data, output)
        if _has_folder(output):
            _make_folder(target)
        _check_target(target, data, overwrite)
        with Draft(target, WHAT, hint=HINT) as draft:
            given = GivenOrders(order)
            attempts, walk, size = _settle(reader, draft, databases, form, given, progress)
            draft.publish(overwrite)
        counters = reader.counts()
    return _report(data, target, walk, counters, attempts, size, time.monotonic() - began)


def _report(
    data: Path | str,
    target: Path,
    walk: DatabaseWalk,
    counters: _core.EngineCounts,
    attempts: int,
    size: int,
    seconds: float,
) -> ConvertReport:
    """Sum up what the last walk wrote."""
    made = walk.writer.made
    forms = [row[4] for one in made for row in one.rows]
    return ConvertReport(
        data=redacted(data) if isinstance(data, str) else data,
        sidecar=target,
        databases=tuple(one.name for one in made),
        records=sum(one.records for one in made),
        record_bytes=sum(one.record_bytes for one in made),
        runs=sum(one.runs for one in made),
        replayed=sum(one.history is not None for one in made),
        blocks_runs=forms.count(BlockForm.RUNS),
        blocks_explicit=forms.count(BlockForm.EXPLICIT),
        blocks_leaves=forms.count(BlockForm.LEAVES),
        pages_read=walk.steps.done,
        bytes_read=counters.bytes,
        requests=counters.requests,
        sidecar_bytes=size,
        attempts=attempts,
        seconds=seconds,
    )


def _settle(
    engine: Engine,
    draft: Draft,
    databases: Sequence[str | bytes | None] | Literal["all"] | None,
    form: Form,
    given: GivenOrders,
    progress: Progress | None,
) -> tuple[int, DatabaseWalk, int]:
    """Walk, write and compare until nothing was committed during a walk.

    Returns:
        The number of walks, the last, and the size of what was written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        walk = DatabaseWalk(engine, draft, form, given, progress)
        try:
            walk.run(databases)
            if walk.moved():
                log(f"{engine.path}: was committed to during a walk, and is walked again")
                continue
            refuse_end(engine.path, engine.size(), walk.end)
            size = walk.finish()
            _compare(draft, walk.writer.made, engine, progress)
        except (CorruptedError, IncompatibleError, LookupError, ProvenanceError) as e:
            # Pages of this state may have been overwritten: then it is not damage.
            if not walk.moved():
                if isinstance(e, ShortReadError):
                    refuse_cut(engine, _core.read_meta(engine))
                raise
        else:
            return attempt, walk, size
    raise Error(
        f"{engine.path}: was committed to during each of {ATTEMPTS} walks (now transaction "
        f"{_core.read_meta(engine).txnid}): convert it when its writer rests"
    )


def _compare(draft: Draft, made: list[Made], engine: Engine, progress: Progress | None) -> None:
    """Read the draft back as a reader would, and compare every record with the walk's.

    Raises:
        ProvenanceError: they differ.
    """
    with Provenance.open(draft.path, cache_bytes_max=0) as written:
        written.attach(LeafReader(engine, written.facts.layout))
        steps = Steps(progress, sum(section.count for section in written.sections), "compare")
        same = [section.name for section in written.sections] == [m.name for m in made]
        for section, walked in zip(written.sections, made, strict=False):
            if walked.history is not None:  # which was proved when it was found
                same = same and section.history == walked.history
                steps.add(section.count)
                continue
            mark = 0
            for extents in section.parts():
                mark = _core.mark_extents(np.ascontiguousarray(extents), mark)
                steps.add(len(extents))
            same = same and mark == walked.mark
            if len(walked.groups):
                same = same and zlib.crc32(section.each_key().tobytes()) == walked.each_crc
        for section, walked in zip(written.sections, made, strict=False):
            order = section.order()
            if order is not None:
                same = same and zlib.crc32(order.tobytes()) == walked.order_crc
    if not same:
        raise ProvenanceError(f"{draft.target}: what was written does not read back as walked")


# --- where it is written, checked before hours are spent on what it says ----------------------


def try_target(data: Path, output: str | os.PathLike[str] | None = None) -> None:
    """Raise what ``convert`` would, if it could not write its file; leave nothing there.

    Args:
        data: data file that is to be converted; it need not be there yet, but its folder.
        output: argument of ``convert``.
    """
    target = sidecar_file(data, output)
    _check_target(target, data, True)
    if _has_folder(output):
        folder = next(folder for folder in target.parents if os.path.lexists(folder))
        target = folder / target.name
    with Draft(target, WHAT, hint=HINT):
        pass


def _has_folder(output: str | os.PathLike[str] | None) -> bool:
    """Return whether the file goes to a folder that was named for it, and is made.

    Args:
        output: argument of ``convert``; None: ``$LMDBIO_PROVENANCE_DIR`` counts, if it is set.
    """
    return output is not None or bool(os.environ.get(PROVENANCE_DIR))


def _make_folder(target: Path) -> None:
    """Make the folder that a provenance file goes to, if it is not there.

    Raises:
        OSError: it cannot be made.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unwritable(e, target, WHAT, HINT) from e


def _check_target(target: Path, data: Path | str, overwrite: bool) -> None:
    """Refuse to replace anything but a provenance file.

    Raises:
        FileExistsError: the target is something else, or is there and ``overwrite`` is False.
        OSError: the target's folder cannot be searched.
    """
    if os.path.realpath(target) == os.path.realpath(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    try:
        if not target.exists():
            return
    except OSError as e:  # a folder that may not be searched
        raise unwritable(e, target, WHAT, HINT) from e
    if isinstance(data, Path) and data.exists() and target.samefile(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "there is a provenance file already", str(target))
    if not target.is_file():
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
    with target.open("rb") as file:
        head = file.read(len(MAGIC))
    if head and head != MAGIC:
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
