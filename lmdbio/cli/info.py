"""``lmdbio info``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from lmdbio import _core, provenance
from lmdbio.cli import EXPECTED, one_line
from lmdbio.cli.choices import (
    advice,
    advice_facts,
    choices,
    print_choices,
    storage_facts,
    tuned_text,
    turn_choices,
)
from lmdbio.cli.file_facts import FileFacts, layout_text, opened_file
from lmdbio.cli.files import Name, files_of
from lmdbio.cli.options import PATH, paths_argument, provenance_option, sidecar_json_option
from lmdbio.cli.output import Lines, bar, plural, print_facts, print_json, size, titled
from lmdbio.doctor.facts import Facts, MachineFacts
from lmdbio.doctor.rules import OUT_OF_ORDER, RULES, order_text
from lmdbio.errors import Error
from lmdbio.inside.keytext import show_key
from lmdbio.locate.file_set import prefetching
from lmdbio.locate.open_database import settled
from lmdbio.locate.open_files import open_database
from lmdbio.locate.view import DatabaseView, DiskOrder, sample_order
from lmdbio.machine import calibration, storage
from lmdbio.machine.storage import Storage
from lmdbio.provenance import in_words
from lmdbio.remote import label
from lmdbio.system.pylmdb import lmdb

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
#: Leaves of a main database, of one of several files, that are read for names of databases.
LEAVES_MAX = 8
#: Files that are named one by one.
NAMED_MAX = 10


@click.command()
@paths_argument
@provenance_option
@click.option(
    "--cache", "folder", type=PATH, help="A folder of cache files: tell those of this data set."
)
@sidecar_json_option
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
    Started by torchrun or mpiexec, also by which transport its ranks would share reading.
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
    if len(files) > 1 and sidecar is not None and not Path(sidecar).is_dir():
        raise click.UsageError("--provenance must be a folder when there are several files")
    found = _all_files(files, sidecar) if len(files) > 1 else _one_file(files[0], sidecar)
    if folder is not None:
        data = [os.fspath(provenance.find_data(file)) for file in files]
        from lmdbio.cli.cache import cache_status

        found["cache"] = {"folder": folder, "files": cache_status(folder, data)}
    found["job"] = _job()
    found["lmdb"] = {"py_lmdb": lmdb.__version__, "lmdb": ".".join(map(str, lmdb.version()))}
    if as_json:
        print_json(found)
    else:
        print_info(found)
    if found.get("failed"):
        sys.exit(1)


def _job() -> str | None:
    """Return the job that a launcher has started this process for, in words; None: it is alone."""
    if not any(name.endswith(("_SIZE", "_NUM_TASKS")) for name in os.environ):
        return None  # no launcher's: others do without the transports
    from lmdbio.cli.doctor_facts import job_facts
    from lmdbio.share import LAUNCHED

    if not any(os.environ.get(name) for name in (*LAUNCHED, "WORLD_SIZE")):
        return None

    here = MachineFacts(**job_facts())
    verdicts = RULES["ranks"](Facts("", machine=here))
    return next(text for _, text in verdicts) if here.ranks > 1 else None


def _one_file(file: Name, sidecar: Name | None) -> dict[str, Any]:
    """Return all facts of one file."""
    data = provenance.find_data(file)

    def probe() -> dict[str, Any]:
        with opened_file(data, sidecar) as (engine, facts):
            found: dict[str, Any] = {
                name: getattr(facts, name) for name in FileFacts.__match_args__
            }
            found |= _reading(storage.inspect(engine, thorough=True))
            found["order"] = _order(engine, facts)
            return found | advice(facts, found["storage"], found["choices"]["stream"])

    return settled(str(data), probe)


def _all_files(files: Sequence[Name], sidecar: Name | None) -> dict[str, Any]:
    """Return the facts of each file, and of all as one data set."""
    each: list[FileFacts | dict[str, str]] = []
    sound: list[str] = []
    with (
        bar(f"info of {len(files):,} files") as progress,
        prefetching([os.fspath(file) for file in files]) as prefetched,
    ):
        for number, file in enumerate(files):
            try:
                each.append(settled(os.fspath(file), partial(_facts, file, sidecar)))
                sound.append(os.fspath(file))
            except EXPECTED as error:
                each.append({"data": label(file), "error": one_line(error)})
            prefetched()
            progress(number + 1, len(files), "files")
    good = [one for one in each if isinstance(one, FileFacts)]
    found: dict[str, Any] = {
        "data": in_words([label(file) for file in files]),
        "files": each,
        "failed": len(each) - len(good),
        "records": sum(one.records for one in good),
        "file_bytes": sum(one.file_bytes for one in good),
    }
    if good:
        with open_database(sound) as joined:
            found |= _reading(storage.inspect(joined.pages, thorough=True))
    return found


def _facts(file: Name, sidecar: Name | None) -> FileFacts:
    """Return the facts of one of several files."""
    with opened_file(provenance.find_data(file), sidecar, LEAVES_MAX) as (_, facts):
        return facts


def _reading(under: Storage) -> dict[str, Any]:
    """Return what is under a data set, and how it would be read for that reason."""
    tuned = calibration.load(calibration.identity(under))
    jobs = () if tuned.calibration is None else tuned.calibration.staggerings
    return {
        "storage": under,
        "tuned": tuned,
        "choices": choices(under, tuned),
        "turns": turn_choices(jobs),
    }


def _order(engine: _core.Engine, facts: FileFacts) -> DiskOrder | None:
    """Return how far key order is that of the disk; None: unknown, or of named databases."""
    meta = facts.meta
    if facts.databases[0].get("holds_databases_alone") or not meta.main_db.entries:
        return None
    with contextlib.suppress(OSError, Error):  # other lines tell of damage
        return sample_order(DatabaseView(engine, meta, meta.main_db, None))
    return None


def _order_line(found: dict[str, Any]) -> Lines:
    order: DiskOrder | None = found["order"]
    if order is None or order.ascending is None:
        return []
    text = order_text(order.ascending, order.adjacent)
    if order.ascending < OUT_OF_ORDER:
        text += "; lmdbio compact makes a copy in order, lmdbio doctor says what that saves"
    return [("  on disk", f"records lie {text}")]


def _history_lines(history: dict[str, Any] | None) -> Lines:
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


# --- in words -----------------------------------------------------------------------------


def print_info(found: dict[str, Any]) -> None:
    """Print the facts of one file, or of several as one data set."""
    lines = _of_several(found) if "files" in found else _of_one(found)
    if "storage" in found:
        lines += storage_facts(found["storage"])
    if "cache" in found:
        from lmdbio.cli.cache import cache_facts

        lines += cache_facts(found["cache"]["folder"], found["cache"]["files"])
    if "storage" in found:
        lines.append(("  tuned", tuned_text(found["tuned"])))
        lines += [("  turns", f"{choice}") for choice in found["turns"]]
    if "auto_mode" in found:
        lines += advice_facts(found)
    if found["job"] is not None:
        lines.append(("  job", found["job"]))
    library = found["lmdb"]
    lines.append(("  library", f"py-lmdb {library['py_lmdb']}, LMDB {library['lmdb']}"))
    print_facts(lines)
    if "storage" in found:
        click.echo()
        print_choices(found["choices"])


def _of_one(found: dict[str, Any]) -> Lines:
    """Return the lines about a file itself."""
    meta: _core.Meta = found["meta"]
    layout = meta.layout
    lines = [(f"{found['data']}", "")]
    if found["cut"] is not None:
        lines.append(("  damage", found["cut"]))
    lines += [
        ("  format", f"LMDB data version {layout.version}, pages of {layout.page_size} bytes"),
        (
            "  file",
            f"{size(found['file_bytes'])}, last page {meta.last_pgno:,}, "
            f"map {size(meta.map_size)}",
        ),
        ("  transaction", f"{meta.txnid:,}"),
    ]
    for db in found["databases"]:
        pages = ", ".join(f"{db[f'{kind}_pages']:,} {kind}" for kind in PAGE_KINDS)
        flags = "".join(f", {name}" for bit, name in DB_FLAGS.items() if db["flags"] & bit)
        text = f"{db['entries']:,} entries, depth {db['depth']}, {pages} pages{flags}"
        lines.append((f"  {titled(db['name'])}", text))
        if db["entries"]:
            lines.append(("  layout", layout_text(db)))
    return lines + _order_line(found) + _sidecar_lines(found["sidecar"])


def _sidecar_lines(sidecar: dict[str, Any]) -> Lines:
    """Return the lines about the provenance file."""
    lines = [
        ("  provenance file", f"{sidecar['status']}: {sidecar['reason']}"),
        ("", str(sidecar["path"])),
    ]
    if "databases" in sidecar:
        records = sum(db["records"] for db in sidecar["databases"])
        runs = sum(db["runs"] for db in sidecar["databases"])
        lines.append(("", f"{sidecar['bytes']:,} bytes, {records:,} records, {runs:,} runs"))
    for db in sidecar.get("databases", ()):
        if db["keys"] is not None:
            lines.append(("  keys", db["keys"]))
        lines += _history_lines(db["history"])
    if "deep_check" in sidecar:
        deep = sidecar["deep_check"]
        when = "runs at the next open: reads" if deep.due else "not due; it would read"
        lines.append(("  deep check", f"{when} {size(deep.bytes)}"))
    return lines


def _of_several(found: dict[str, Any]) -> Lines:
    """Return the lines about several files."""
    good = [one for one in found["files"] if isinstance(one, FileFacts)]
    bad = [one["error"] for one in found["files"] if not isinstance(one, FileFacts)]
    return [
        (f"{found['data']}", ""),
        ("  files", f"{plural(len(found['files']), 'file')}, read as one data set"),
        *_named("  damage", bad),
        *_named("  damage", [one.cut for one in good if one.cut is not None]),
        *(_sums(found, good) if good else ()),
    ]


def _sums(found: dict[str, Any], good: list[FileFacts]) -> Lines:
    """Return the lines about all files that can be read."""
    small, large = (pick(good, key=lambda one: one.file_bytes) for pick in (min, max))
    facts = [("  records", f"{found['records']:,}"), ("  bytes", size(found["file_bytes"]))]
    for title, one in (("  smallest", small), ("  largest", large)):
        displayed = f"{size(one.file_bytes)}, {one.records:,} records: {one.data}"
        facts.append((title, displayed))
    facts += _counted("  format", [f"LMDB data version {one.meta.layout.version}" for one in good])
    facts += _counted("  pages", [f"{one.meta.layout.page_size:,} bytes" for one in good])
    facts += _counted("  databases", [db for one in good for db in _names(one)])
    facts += _counted("  layout", [_layout(one) for one in good])
    devices = {one.device for one in good}
    if len(devices) > 1:
        facts.append(("  file systems", f"{len(devices)}; the choices are for that of the first"))
    facts += _counted("  provenance files", [one.sidecar["status"] for one in good])
    odd = [one.sidecar for one in good if one.sidecar["status"] not in ("good", "absent")]
    facts += _named("", [f"{one['path']}: {one['status']}: {one['reason']}" for one in odd])
    if any(one.sidecar["status"] != "good" for one in good):
        facts.append(("", "lmdbio convert makes those that are not good"))
    return facts


def _names(one: FileFacts) -> list[str]:
    return [show_key(db["name"]) for db in one.databases if db["name"] is not None]


def _layout(one: FileFacts) -> str:
    main = one.databases[0]
    if main["layout"] is None:
        odd = ", ".join(map(show_key, main["odd_keys"]))
        text = "none that is known" if main["entries"] else "none: no records"
        return f"{text}, perhaps no samples: {odd}" if odd else text
    layout = main["layout"]
    how = "refused" if layout["refused"] is not None else f"read by {layout['argument']}"
    return f"{layout['name']}, {how}"


def _counted(title: str, values: list[str]) -> Lines:
    """Return a line that counts equal values; none of no values."""
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return [(title, counts[0][0])]
    more = [f"{len(counts) - NAMED_MAX:,} others"] * (len(counts) > NAMED_MAX)
    texts = [f"{value} ({count:,})" for value, count in counts[:NAMED_MAX]]
    return [(title, "; ".join(texts + more))] if counts else []


def _named(title: str, texts: list[str]) -> Lines:
    """Return a line for each text, of which there are few."""
    found = [(title if not number else "", text) for number, text in enumerate(texts[:NAMED_MAX])]
    more = len(texts) - NAMED_MAX
    return [*found, ("", f"and {more:,} more")] if more > 0 else found
