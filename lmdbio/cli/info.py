"""``lmdbio info``."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lmdbio import _core, provenance
from lmdbio._core import Engine, Meta
from lmdbio.cli.cache import cache_facts, cache_status
from lmdbio.cli.choices import (
    calibration_status,
    choices,
    print_choices,
    storage_facts,
    tuned_jobs,
    tuned_text,
    turn_choices,
)
from lmdbio.cli.layout import layout_facts, layout_text
from lmdbio.cli.output import (
    DATA,
    PATH,
    json_option,
    one_line,
    print_facts,
    print_json,
    provenance_option,
    size,
    titled,
)
from lmdbio.errors import ProvenanceError, ShortReadError, StaleError
from lmdbio.locate.file_end import refuse_cut
from lmdbio.machine import storage
from lmdbio.provenance import Provenance, freshness
from lmdbio.provenance.keys import describe
from lmdbio.provenance.writer_model import capacities
from lmdbio.pylmdb.find import lmdb

#: ``info`` names databases inside the main one if that means reading at most so many leaves.
LEAVES_MAX = 1024
PAGE_KINDS = ("branch", "leaf", "overflow")
#: Persistent flags of a database (enum lio_db_flag), by LMDB's names.
DB_FLAGS = {
    0x02: "reversekey",
    0x04: "dupsort",
    0x08: "integerkey",
    0x10: "dupfixed",
    0x20: "integerdup",
    0x40: "reversedup",
}
#: Names of the hints that differ, as a deep check tells people.
HINTS = {"mtime_ns": "mtime", "ctime_ns": "ctime", "dev": "device", "ino": "inode"}


@click.command()
@click.argument("path", type=DATA)
@provenance_option
@click.option(
    "--cache", "folder", type=PATH, help="A folder of cache files: tell those of this data set."
)
@json_option
def info(path: Path | str, sidecar: Path | str | None, folder: Path | None, as_json: bool) -> None:
    """Tell what PATH is, and what will happen when it is opened.

    Shows format, newest transaction and databases; whether there is a provenance file, whether
    it is good, and whether opening will hash pages (the deep check) and how many; what is under
    the file, and how it is read for that reason: each choice, where it comes from (a variable of
    the environment, lmdbio tune, or the facts) and why. Keywords count more than all of these.

    \b
    Examples:
        lmdbio info train_lmdb
        lmdbio info train_lmdb --json | jq .sidecar.status
        LMDBIO_DEPTH=16 lmdbio info train_lmdb --json | jq .choices.batch
        lmdbio info train_lmdb --cache /local/scratch
    """
    data = provenance.find_data(path)
    with _core.open_data(data) as engine:
        meta = _core.read_meta(engine)
        found = {
            "data": data,
            "file_bytes": engine.size(),
            "cut": cut_reason(engine, meta),
            "meta": meta,
            "databases": list_databases(engine, meta),
            "sidecar": sidecar_status(engine, meta, provenance.find_sidecar(data, sidecar)),
            "storage": (under := storage.look(engine, thorough=True)),
            "tuned": (tuned := calibration_status(under)),
            "choices": choices(under, tuned),
            "turns": turn_choices(tuned_jobs(tuned)),
            "lmdb": {
                "py_lmdb": lmdb.__version__,
                "lmdb": ".".join(map(str, lmdb.version())),
            },
        }
    if folder is not None:
        found["cache"] = {"folder": folder, "files": cache_status(folder, str(data))}
    if as_json:
        print_json(found)
    else:
        print_info(found)


def cut_reason(engine: Engine, meta: Meta) -> str | None:
    """Return the sentence that the file ends before its records do; None: it does not."""
    try:
        refuse_cut(engine, meta)
    except ShortReadError as error:
        return one_line(error)
    except lmdb.Error:  # other damage, which verify finds
        pass
    return None


def list_databases(engine: Engine, meta: Meta) -> list[dict[str, Any]]:
    """The main database and, unless that means much reading, the named ones in it."""
    main = meta.main_db
    found = [_facts(engine, meta, main, None)]
    if main.leaf_pages > LEAVES_MAX:
        return found
    with contextlib.suppress(ShortReadError), _core.Walk(engine, meta, main) as walk:
        for chunk in walk:
            if chunk.leaf:
                for name, db in _core.leaf_databases(meta.layout, chunk, engine.path):
                    found.append(_facts(engine, meta, db, name))
    if len(found) > 1:
        found[0]["layout"] = None  # databases are in it, or beside what is
    return found


def _facts(engine: Engine, meta: Meta, db: _core.Database, name: bytes | None) -> dict[str, Any]:
    layout = layout_facts(engine, meta, db, name) if db.entries else None
    return {"name": name, **asdict(db), "layout": layout}


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
    """Whether a reader would use the provenance file at ``path``; hashes nothing."""
    found: dict[str, Any] = {"path": path, "status": "absent", "reason": "no such file"}
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
        found |= {"status": "damaged", "reason": str(error)}
    except OSError as error:
        found |= {"status": "unreadable", "reason": one_line(error)}
    return found


def _history_lines(history: dict[str, Any] | None) -> list[tuple[str, str]]:
    if history is None:
        return []
    each = history["record_bytes"]
    keys = f"keys of {each['key']:,} bytes" if each["key"] else "keys that are numbers"
    how = "appended" if history["append"] else "put"
    return [
        (
            "  replayed",
            f"{how} in {history['order']} order, a commit every {history['commit_every']:,} "
            f"records, {keys}, values of {each['value']:,} bytes",
        ),
        (
            "",
            f"at most {history['records_per_leaf_max']:,} records in a leaf, "
            f"{history['children_per_branch_max']:,} children of a branch, "
            f"{history['meta_pages']} meta pages",
        ),
    ]


def print_info(found: dict[str, Any]) -> None:
    meta: Meta = found["meta"]
    sidecar = found["sidecar"]
    facts = [
        (f"{found['data']}", ""),
        (
            "  format",
            f"LMDB data version {meta.layout.version}, pages of {meta.layout.page_size} bytes",
        ),
        (
            "  file",
            f"{size(found['file_bytes'])}, last page {meta.last_pgno:,}, "
            f"map {size(meta.map_size)}",
        ),
        ("  transaction", f"{meta.txnid:,}"),
    ]
    if found["cut"] is not None:
        facts.insert(1, ("  damage", found["cut"]))
    for db in found["databases"]:
        pages = ", ".join(f"{db[f'{kind}_pages']:,} {kind}" for kind in PAGE_KINDS)
        flags = "".join(f", {name}" for bit, name in DB_FLAGS.items() if db["flags"] & bit)
        facts.append(
            (
                f"  {titled(db['name'])}",
                f"{db['entries']:,} entries, depth {db['depth']}, {pages} pages{flags}",
            )
        )
        if db["entries"]:
            facts.append(("  layout", layout_text(db["layout"])))
    facts.append(("  provenance file", f"{sidecar['status']}: {sidecar['reason']}"))
    facts.append(("", str(sidecar["path"])))
    if "databases" in sidecar:
        records = sum(db["records"] for db in sidecar["databases"])
        runs = sum(db["runs"] for db in sidecar["databases"])
        facts.append(("", f"{sidecar['bytes']:,} bytes, {records:,} records, {runs:,} runs"))
    for db in sidecar.get("databases", ()):
        if db["keys"] is not None:
            facts.append(("  keys", db["keys"]))
        facts += _history_lines(db["history"])
    if "deep_check" in sidecar:
        deep = sidecar["deep_check"]
        when = "runs at the next open: reads" if deep.due else "not due; it would read"
        facts.append(("  deep check", f"{when} {size(deep.bytes)}"))
    facts += storage_facts(found["storage"])
    if "cache" in found:
        facts += cache_facts(found["cache"]["folder"], found["cache"]["files"])
    facts.append(("  tuned", tuned_text(found["tuned"])))
    facts += [("  turns", f"{choice}") for choice in found["turns"]]
    facts.append(
        ("  library", f"py-lmdb {found['lmdb']['py_lmdb']}, LMDB {found['lmdb']['lmdb']}")
    )
    print_facts(facts)
    click.echo()
    print_choices(found["choices"])
