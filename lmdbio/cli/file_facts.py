"""The facts that ``info`` and ``doctor`` tell of a data file and of its provenance file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lmdbio import _core
from lmdbio._core import Engine, Meta
from lmdbio.cli.ending import one_line
from lmdbio.cli.layout import layout_facts
from lmdbio.errors import ProvenanceError, ShortReadError, StaleError
from lmdbio.locate.file_end import refuse_cut
from lmdbio.locate.open_database import guard_state, judged
from lmdbio.provenance import Provenance, freshness
from lmdbio.provenance.keys import describe
from lmdbio.provenance.writer_model import capacities
from lmdbio.pylmdb.find import lmdb
from lmdbio.remote import shown

__all__ = ["cut_reason", "judging", "list_databases", "sidecar_status"]

#: Databases inside the main one are named if that means reading at most so many leaves.
LEAVES_MAX = 1024
#: Names of the hints that differ, as a deep check tells people.
HINTS = {"mtime_ns": "mtime", "ctime_ns": "ctime", "dev": "device", "ino": "inode"}


@contextlib.contextmanager
def judging(engine: Engine) -> Iterator[Meta]:
    """Yield the newest state of a file, of which the body tells facts.

    Raises:
        MovedError: a writer came between, so that none of them counts.
    """
    meta = _core.read_meta(engine)
    with judged(engine, meta):
        yield meta
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


def list_databases(
    engine: Engine, meta: Meta, leaves_max: int = LEAVES_MAX
) -> list[dict[str, Any]]:
    """The main database and, unless that means much reading, the named ones in it.

    Args:
        leaves_max: largest number of the main database's leaves that are read for it.
    """
    main = meta.main_db
    found = [_facts(engine, meta, main, None)]
    if main.leaf_pages > leaves_max:
        return found
    with contextlib.suppress(ShortReadError), _core.Walk(engine, meta, main) as walk:
        for chunk in walk:
            if chunk.leaf:
                for name, db in _core.leaf_databases(meta.layout, chunk, engine.path):
                    found.append(_facts(engine, meta, db, name))
    names = [one["name"] for one in found[1:]]
    found[0]["holds_databases_alone"] = 0 < len(names) == main.entries
    if found[0]["holds_databases_alone"]:
        found[0]["layout"] = None
    elif found[0]["layout"] is None:
        found[0]["odd_keys"] = list(dict.fromkeys((*found[0]["odd_keys"], *names)))
    return found


def _facts(engine: Engine, meta: Meta, db: _core.Database, name: bytes | None) -> dict[str, Any]:
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
    found: dict[str, Any] = {"path": shown(path), "status": "absent", "reason": "no such file"}
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
