"""The layout that ``info`` finds in a database, and whether reading by it will do."""

from __future__ import annotations

from typing import Any

from lmdbio._core import Database, Engine, Meta
from lmdbio.errors import IncompatibleError, ShortReadError
from lmdbio.inside.keytext import show_key
from lmdbio.layouts.known import AUTO
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.open_database import OpenFile
from lmdbio.locate.samples import FoundSamples, count_samples, find_samples
from lmdbio.pylmdb.find import lmdb

__all__ = ["layout_facts", "layout_text"]

#: Leaves of a database whose keys are all looked at, to see whether they contradict its layout.
LEAVES_MAX = 1024


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
        return {**none, "layout": _facts(file, found)}
    except (ShortReadError, lmdb.Error):  # info and verify tell damage elsewhere
        return none


def _facts(file: OpenFile, found: FoundSamples) -> dict[str, Any]:
    selection = found.selection
    assert selection is not None
    samples, refused = selection.samples, None
    is_seen = selection.order is None or file.database.leaf_pages <= LEAVES_MAX
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
