"""The facts that ``lmdbio info`` tells of several files that are read as one data set."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from lmdbio import provenance
from lmdbio.cli.choices import (
    calibration_status,
    choices,
    print_choices,
    storage_facts,
    tuned_jobs,
    tuned_text,
    turn_choices,
)
from lmdbio.cli.each_file import Name
from lmdbio.cli.ending import EXPECTED, one_line
from lmdbio.cli.file_facts import cut_reason, judging, list_databases, sidecar_status
from lmdbio.cli.output import bar, plural, print_facts, print_json, size
from lmdbio.inside.keytext import show_key
from lmdbio.locate.open_database import settled
from lmdbio.locate.open_files import open_database
from lmdbio.locate.touched import touching
from lmdbio.machine import storage
from lmdbio.provenance import in_words
from lmdbio.pylmdb.find import lmdb
from lmdbio.remote import is_url, shown
from lmdbio.remote.data import open_data

__all__ = ["library_facts", "library_line", "tell_set"]

#: Leaves of a main database that are read for names of databases inside it.
LEAVES_MAX = 8
#: Files that are named one by one.
NAMED_MAX = 10


def tell_set(
    files: Sequence[Name], sidecar: Name | None, folder: Path | None, as_json: bool
) -> None:
    """Tell what several files are together.

    Args:
        sidecar: the folder of their provenance files; None: the usual places.
        folder: folder of cache files, if these are asked for.
    """
    if sidecar is not None and not Path(sidecar).is_dir():
        raise click.UsageError("--provenance must be a folder when there are several files")
    found = _look(files, sidecar)
    if folder is not None:
        data = [os.fspath(provenance.find_data(file)) for file in files]
        from lmdbio.cli.cache import cache_status

        found["cache"] = {"folder": folder, "files": cache_status(folder, data)}
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["failed"]:
        sys.exit(1)


def _look(files: Sequence[Name], sidecar: Name | None) -> dict[str, Any]:
    """Return all facts, of each file and of all together."""
    each: list[dict[str, Any]] = []
    sound: list[str] = []
    with (
        bar(f"info of {len(files):,} files") as progress,
        touching([os.fspath(file) for file in files]) as looked,
    ):
        for number, file in enumerate(files):
            try:
                each.append(settled(os.fspath(file), partial(_file_facts, file, sidecar)))
                sound.append(os.fspath(file))
            except EXPECTED as error:
                each.append({"data": shown(file), "error": one_line(error)})
            looked()
            progress(number + 1, len(files), "files")
    good = [one for one in each if "error" not in one]
    found: dict[str, Any] = {
        "data": in_words([shown(file) for file in files]),
        "files": each,
        "failed": len(each) - len(good),
        "records": sum(one["records"] for one in good),
        "file_bytes": sum(one["file_bytes"] for one in good),
        "lmdb": library_facts(),
    }
    if good:
        with open_database(sound) as joined:
            under = storage.look(joined.pages, thorough=True)
        tuned = calibration_status(under)
        found |= {
            "storage": under,
            "tuned": tuned,
            "choices": choices(under, tuned),
            "turns": turn_choices(tuned_jobs(tuned)),
        }
    return found


def _file_facts(file: Name, sidecar: Name | None) -> dict[str, Any]:
    """Return the facts of one file."""
    data = provenance.find_data(file)
    with open_data(data) as engine, judging(engine) as meta:
        databases = list_databases(engine, meta, LEAVES_MAX)
        return {
            "data": shown(data),
            # An entry of the main database that stands for a named one is no record.
            "records": sum(one["entries"] for one in databases) - len(databases) + 1,
            "file_bytes": engine.size(),
            "device": None if is_url(data) else os.fstat(engine.fd).st_dev,
            "version": meta.layout.version,
            "page_size": meta.layout.page_size,
            "txnid": meta.txnid,
            "cut": cut_reason(engine, meta),
            "databases": databases,
            "sidecar": sidecar_status(engine, meta, provenance.find_sidecar(data, sidecar)),
        }


# --- in words -----------------------------------------------------------------------------


def _print(found: dict[str, Any]) -> None:
    good = [one for one in found["files"] if "error" not in one]
    facts = [(f"{found['data']}", "")]
    facts.append(("  files", f"{plural(len(found['files']), 'file')}, read as one data set"))
    facts += _named("  damage", [one["error"] for one in found["files"] if "error" in one])
    facts += _named("  damage", [one["cut"] for one in good if one["cut"] is not None])
    if good:
        facts += _sums(found, good)
        facts += storage_facts(found["storage"])
    if "cache" in found:
        from lmdbio.cli.cache import cache_facts

        facts += cache_facts(found["cache"]["folder"], found["cache"]["files"])
    if good:
        facts.append(("  tuned", tuned_text(found["tuned"])))
        facts += [("  turns", f"{choice}") for choice in found["turns"]]
    facts.append(library_line(found["lmdb"]))
    print_facts(facts)
    if good:
        click.echo()
        print_choices(found["choices"])


def _sums(found: dict[str, Any], good: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the lines about all files that can be read."""
    small, large = (pick(good, key=lambda one: one["file_bytes"]) for pick in (min, max))
    facts = [("  records", f"{found['records']:,}"), ("  bytes", size(found["file_bytes"]))]
    for label, one in (("  smallest", small), ("  largest", large)):
        shown = f"{size(one['file_bytes'])}, {one['records']:,} records: {one['data']}"
        facts.append((label, shown))
    facts += _counted("  format", [f"LMDB data version {one['version']}" for one in good])
    facts += _counted("  pages", [f"{one['page_size']:,} bytes" for one in good])
    facts += _counted("  databases", [db for one in good for db in _names(one)])
    facts += _counted("  layout", [_layout(one) for one in good])
    devices = {one["device"] for one in good}
    if len(devices) > 1:
        facts.append(("  file systems", f"{len(devices)}; the choices are for that of the first"))
    facts += _counted("  provenance files", [one["sidecar"]["status"] for one in good])
    odd = [one["sidecar"] for one in good if one["sidecar"]["status"] not in ("good", "absent")]
    facts += _named("", [f"{one['path']}: {one['status']}: {one['reason']}" for one in odd])
    if any(one["sidecar"]["status"] != "good" for one in good):
        facts.append(("", "lmdbio convert makes those that are not good"))
    return facts


def _names(one: dict[str, Any]) -> list[str]:
    return [show_key(db["name"]) for db in one["databases"] if db["name"] is not None]


def _layout(one: dict[str, Any]) -> str:
    main = one["databases"][0]
    if main["layout"] is None:
        odd = ", ".join(map(show_key, main["odd_keys"]))
        text = "none that is known" if main["entries"] else "none: no records"
        return f"{text}, perhaps no samples: {odd}" if odd else text
    layout = main["layout"]
    how = "refused" if layout["refused"] is not None else f"read by {layout['argument']}"
    return f"{layout['name']}, {how}"


def _counted(label: str, values: list[str]) -> list[tuple[str, str]]:
    """Return a line that counts equal values; none of no values."""
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return [(label, counts[0][0])]
    more = [f"{len(counts) - NAMED_MAX:,} others"] * (len(counts) > NAMED_MAX)
    told = [f"{value} ({count:,})" for value, count in counts[:NAMED_MAX]]
    return [(label, "; ".join(told + more))] if counts else []


def _named(label: str, texts: list[str]) -> list[tuple[str, str]]:
    """Return a line for each text, of which there are few."""
    found = [(label if not number else "", text) for number, text in enumerate(texts[:NAMED_MAX])]
    more = len(texts) - NAMED_MAX
    return [*found, ("", f"and {more:,} more")] if more > 0 else found


def library_facts() -> dict[str, str]:
    return {"py_lmdb": lmdb.__version__, "lmdb": ".".join(map(str, lmdb.version()))}


def library_line(found: dict[str, str]) -> tuple[str, str]:
    return "  library", f"py-lmdb {found['py_lmdb']}, LMDB {found['lmdb']}"
