"""Facts of a data file and its provenance file, which ``info`` tells and ``doctor`` judges."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmdbio import _core, provenance
from lmdbio._core import Database, Engine, Meta
from lmdbio.cli import one_line
from lmdbio.errors import IncompatibleError, ProvenanceError, ShortReadError, StaleError
from lmdbio.inside.keytext import show_key
from lmdbio.layouts.known import AUTO
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.open_database import OpenFile, guard_state, judged
from lmdbio.locate.refusals import refuse_cut
from lmdbio.locate.samples import FoundSamples, count_samples, find_samples
from lmdbio.provenance import Provenance, freshness
from lmdbio.provenance.keys import describe
from lmdbio.provenance.writer_model import capacities
from lmdbio.remote import is_url, label, open_data
from lmdbio.system.pylmdb import lmdb

__all__ = ["FileFacts", "hashed_bytes", "layout_text", "opened_file", "sidecar_status"]

#: Databases inside the main one are named if that means reading at most so many leaves.
LEAVES_MAX = 1024
#: Leaves of a database whose keys are all looked at, to see whether they contradict its layout.
LAYOUT_LEAVES_MAX = 1024
#: Names of the hints that differ, as a deep check tells people.
HINTS = {"mtime_ns": "mtime", "ctime_ns": "ctime", "dev": "device", "ino": "inode"}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A data file, as it is at a moment.

    Attributes:
        data: name of the file.
        file_bytes: size of the file, bytes.
        device: number of the file system; None: the file is elsewhere.
        cut: sentence that it ends before its records do; None: it does not.
        meta: its newest state.
        databases: the main database and those that are named in it.
        records: number of records in all of them.
        sidecar: whether a reader would use the provenance file.
    """

    data: str
    file_bytes: int
    device: int | None
    cut: str | None
    meta: Meta
    databases: list[dict[str, Any]]
    records: int
    sidecar: dict[str, Any]


@contextlib.contextmanager
def opened_file(
    data: Path | str, sidecar: Path | str | None, leaves_max: int = LEAVES_MAX
) -> Iterator[tuple[Engine, FileFacts]]:
    """Open a data file, and yield its engine and its facts.

    Args:
        data: the file.
        sidecar: the provenance file, or the folder that holds it; None: the usual place.
        leaves_max: largest number of the main database's leaves that are read for names.

    Raises:
        MovedError: a writer came before the body ended, so that none of the facts counts.
        OSError, Error: the file cannot be read.
    """
    with open_data(data) as engine:
        meta = _core.read_meta(engine)
        with judged(engine, meta):
            databases = list_databases(engine, meta, leaves_max)
            yield (
                engine,
                FileFacts(
                    data=label(data),
                    file_bytes=engine.size(),
                    device=None if is_url(data) else os.fstat(engine.fd).st_dev,
                    cut=cut_reason(engine, meta),
                    meta=meta,
                    databases=databases,
                    # An entry of the main database that stands for a named one is no record.
                    records=sum(one["entries"] for one in databases) - len(databases) + 1,
                    sidecar=sidecar_status(engine, meta, provenance.find_sidecar(data, sidecar)),
                ),
            )
            guard_state(engine, meta)


def cut_reason(engine: Engine, meta: Meta) -> str | None:
    """Return the sentence that the file ends before its records do; None: it does not."""
    try:
        refuse_cut(engine, meta)
    except ShortReadError as error:
        return one_line(error)
    except lmdb.Error:  # other damage, which verify finds
        pass
    return None


def list_databases(engine: Engine, meta: Meta, leaves_max: int) -> list[dict[str, Any]]:
    """The main database and, unless that means much reading, the named ones in it.

    Args:
        leaves_max: largest number of the main database's leaves that are read for it.
    """
    main = meta.main_db
    found = [_database(engine, meta, main, None)]
    if main.leaf_pages > leaves_max:
        return found
    with contextlib.suppress(ShortReadError), _core.Walk(engine, meta, main) as walk:
        for chunk in walk:
            if chunk.leaf:
                for name, db in _core.leaf_databases(meta.layout, chunk, engine.path):
                    found.append(_database(engine, meta, db, name))
    names = [one["name"] for one in found[1:]]
    found[0]["holds_databases_alone"] = 0 < len(names) == main.entries
    if found[0]["holds_databases_alone"]:
        found[0]["layout"] = None
    elif found[0]["layout"] is None:
        found[0]["odd_keys"] = list(dict.fromkeys((*found[0]["odd_keys"], *names)))
    return found


def _database(
    engine: Engine, meta: Meta, db: _core.Database, name: bytes | None
) -> dict[str, Any]:
    return {"name": name, **asdict(db), **layout_facts(engine, meta, db, name)}


def history_facts(history: _core.History | None) -> dict[str, Any] | None:
    """The six items of the LMDBIO paper (section 4.4.2), and what else a replay needs."""
    if history is None:
        return None
    records, children = capacities(history)
    return {
        "commit_every": history.commit_every,
        "records_per_leaf_max": records,
        "children_per_branch_max": children,
        "record_bytes": {"key": history.key_size, "value": history.length},
        "order": "key" if history.numbered is None else "number",
        "meta_pages": 2,
        "append": history.append,
        "split": history.split.name.lower(),
        "named": history.named,
        "apart": history.apart,
    }


def sidecar_status(engine: Engine, meta: Meta, path: Path | str) -> dict[str, Any]:
    """Whether a reader would use the provenance file at ``path``.

    All of that file is read, and nothing of the data.
    """
    found: dict[str, Any] = {"path": label(path), "status": "absent", "reason": "no such file"}
    try:
        with Provenance.open(path) as opened:
            found["bytes"] = opened.size
            # A file of another state, or of another database, says nothing about this one.
            freshness.check_facts(engine, meta, opened)
            found["databases"] = [
                {
                    "name": section.name,
                    "records": section.count,
                    "runs": section.runs,
                    "blocks": section.forms,
                    "history": history_facts(section.history),
                    "keys": describe(section.keys.runs) if section.keys is not None else None,
                }
                for section in opened.sections
            ]
            opened.check_blocks()
            found["deep_check"] = deep = freshness.deep_check(engine, opened)
            if deep.due:
                differ = ", ".join(HINTS.get(reason, reason) for reason in deep.reasons)
                found |= {"status": "unproven", "reason": f"a copy, or changed: other {differ}"}
            else:
                how = freshness.check(engine, meta, opened).how
                found |= {"status": "good", "reason": f"{how} check"}
    except FileNotFoundError:
        pass
    except StaleError as error:
        found |= {"status": "stale", "reason": str(error)}
    except ProvenanceError as error:
        # The kernel's errors are wrapped where a file could be opened, and then not be read.
        status = "unreadable" if isinstance(error.__cause__, OSError) else "damaged"
        found |= {"status": status, "reason": str(error)}
    except OSError as error:
        found |= {"status": "unreadable", "reason": one_line(error)}
    return found


def hashed_bytes(sidecar: dict[str, Any]) -> int:
    """Return the bytes that the next open would hash to prove a provenance file."""
    deep = sidecar.get("deep_check")
    return deep.bytes if deep is not None and deep.due else 0


# --- samples ------------------------------------------------------------------------------


def layout_facts(
    engine: Engine, meta: Meta, database: Database, name: bytes | None
) -> dict[str, Any]:
    """Return what the samples of a database are.

    Returns:
        "layout", None where none is known, and "odd_keys": keys that may be no samples then.
    """
    file = OpenFile(engine, meta, database)
    none: dict[str, Any] = {"layout": None, "odd_keys": []}
    if not database.entries:
        return none
    try:
        found = find_samples(file, name, Wanted(AUTO))
        if found.selection is None:
            return {**none, "odd_keys": [*found.odd_keys]}
        return {**none, "layout": _layout(file, found)}
    except (ShortReadError, lmdb.Error):  # info and verify tell damage elsewhere
        return none


def _layout(file: OpenFile, found: FoundSamples) -> dict[str, Any]:
    selection = found.selection
    assert selection is not None
    samples, refused = selection.samples, None
    is_seen = selection.order is None or file.database.leaf_pages <= LAYOUT_LEAVES_MAX
    if selection.order is not None and is_seen:
        try:
            samples = count_samples(file, found)
        except IncompatibleError as error:
            samples, refused = None, str(error).removeprefix(f"{file.pages.path}: ")
    return {
        "name": selection.layout,
        "samples": samples,
        "records_per_sample": selection.columns,
        "metadata": list(selection.metadata),
        "argument": f'layout="{selection.layout}"',
        "all_keys_seen": is_seen,
        "refused": refused,
    }


def layout_text(facts: dict[str, Any]) -> str:
    """Return the same, of a database that has records, in words."""
    layout = facts["layout"]
    if facts.get("holds_databases_alone"):
        return "none: it holds named databases alone, which db= reads"
    if layout is None:
        odd = ", ".join(map(show_key, facts["odd_keys"]))
        text = "none that is known: each record is a sample, in key order"
        return f"{text}; perhaps no samples: {odd} (skip= leaves out keys)" if odd else text
    if layout["refused"] is not None:
        return f"{layout['refused']}: each record can be read, without layout="
    samples = "samples" if layout["samples"] is None else f"{layout['samples']:,} samples"
    each, beside = layout["records_per_sample"], ", ".join(map(show_key, layout["metadata"]))
    text = f"{layout['name']}: {samples}{f' of {each} records each' if each > 1 else ''}"
    text += "" if layout["all_keys_seen"] else " by its first and last keys"
    text += f"; {beside}: no sample" if beside else ""
    return f"{text}; read them by {layout['argument']}"
