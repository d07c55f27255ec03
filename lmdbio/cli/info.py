"""``lmdbio info``."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from lmdbio import _core, provenance
from lmdbio._core import Meta
from lmdbio.cli.advice import advice, advice_facts
from lmdbio.cli.choices import (
    calibration_status,
    choices,
    print_choices,
    storage_facts,
    tuned_jobs,
    tuned_text,
    turn_choices,
)
from lmdbio.cli.each_file import files_of, paths_argument
from lmdbio.cli.file_facts import cut_reason, judging, list_databases, sidecar_status
from lmdbio.cli.info_set import library_facts, library_line, tell_set
from lmdbio.cli.layout import layout_text
from lmdbio.cli.output import (
    PATH,
    json_option,
    print_facts,
    print_json,
    provenance_option,
    size,
    titled,
)
from lmdbio.doctor.rules import OUT_OF_ORDER, order_text
from lmdbio.errors import Error
from lmdbio.locate.disk_order import DiskOrder, look_at_order
from lmdbio.locate.glance import Glance
from lmdbio.locate.open_database import settled
from lmdbio.machine import storage
from lmdbio.remote import shown
from lmdbio.remote.data import open_data

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


@click.command()
@paths_argument
@provenance_option
@click.option(
    "--cache", "folder", type=PATH, help="A folder of cache files: tell those of this data set."
)
@json_option
def info(
    paths: tuple[Path | str, ...],
    sidecar: Path | str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Tell what PATH is, and what will happen when it is opened.

    Shows format, newest transaction and databases; whether there is a provenance file, whether
    it is good, and whether opening will hash pages (the deep check) and how many; what is under
    the file, and how it is read for that reason: each choice, where it comes from (a variable of
    the environment, lmdbio tune, or the facts) and why. Keywords count more than all of these.
    Of several files (PATHs, a folder or a quoted pattern of them), which are read as one data set,
    it sums up, and names those that cannot be read: then the exit status is 1.

    \b
    Examples:
        lmdbio info train_lmdb
        lmdbio info train_lmdb --json | jq .sidecar.status
        LMDBIO_DEPTH=16 lmdbio info train_lmdb --json | jq .choices.batch
        lmdbio info train_lmdb --cache /local/scratch
        lmdbio info shards/ --json | jq '.files[] | select(.sidecar.status != "good")'
    """
    files = files_of(paths)
    if len(files) > 1:
        tell_set(files, sidecar, folder, as_json)
        return
    data = provenance.find_data(files[0])
    found = settled(str(data), partial(_look, data, sidecar))
    if folder is not None:
        from lmdbio.cli.cache import cache_status

        found["cache"] = {"folder": folder, "files": cache_status(folder, [str(data)])}
    if as_json:
        print_json(found)
    else:
        print_info(found)


def _look(data: Path | str, sidecar: Path | str | None) -> dict[str, Any]:
    """Return all facts of one file."""
    with open_data(data) as engine, judging(engine) as meta:
        found: dict[str, Any] = {
            "data": shown(data),
            "file_bytes": engine.size(),
            "cut": cut_reason(engine, meta),
            "meta": meta,
            "databases": list_databases(engine, meta),
            "sidecar": sidecar_status(engine, meta, provenance.find_sidecar(data, sidecar)),
            "storage": (under := storage.look(engine, thorough=True)),
            "tuned": (tuned := calibration_status(under)),
            "choices": choices(under, tuned),
            "turns": turn_choices(tuned_jobs(tuned)),
            "lmdb": library_facts(),
        }
        found["order"] = _order(engine, meta, found["databases"])
        has_sidecar = found["sidecar"]["status"] == "good"
        choice = found["choices"]["stream"]
        return found | advice(meta, engine.size(), under, has_sidecar=has_sidecar, choice=choice)


def _order(engine: _core.Engine, meta: Meta, databases: list[dict[str, Any]]) -> DiskOrder | None:
    """Return how far key order is that of the disk; None: unknown, or of named databases."""
    if databases[0].get("holds_databases_alone") or not meta.main_db.entries:
        return None
    with contextlib.suppress(OSError, Error):  # other lines tell of damage
        return look_at_order(Glance(engine, meta, meta.main_db, None))
    return None


def _order_line(found: dict[str, Any]) -> list[tuple[str, str]]:
    order: DiskOrder | None = found["order"]
    if order is None or order.ascending is None:
        return []
    text = order_text(order.ascending, order.adjacent)
    if order.ascending < OUT_OF_ORDER:
        text += "; lmdbio compact makes a copy in order, lmdbio doctor says what that saves"
    return [("  on disk", f"records lie {text}")]


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
            facts.append(("  layout", layout_text(db)))
    facts += _order_line(found)
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
        from lmdbio.cli.cache import cache_facts

        facts += cache_facts(found["cache"]["folder"], found["cache"]["files"])
    facts.append(("  tuned", tuned_text(found["tuned"])))
    facts += [("  turns", f"{choice}") for choice in found["turns"]]
    facts += advice_facts(found)
    facts.append(library_line(found["lmdb"]))
    print_facts(facts)
    click.echo()
    print_choices(found["choices"])
