"""The layout that ``info`` finds in a database, by a look at a few of its keys."""

from __future__ import annotations

from typing import Any

from lmdbio._core import Database, Engine, Meta
from lmdbio.errors import ShortReadError
from lmdbio.layouts.known import AUTO
from lmdbio.layouts.wanted import Wanted
from lmdbio.locate.open_database import OpenFile
from lmdbio.locate.samples import find_samples
from lmdbio.pylmdb.find import lmdb

__all__ = ["layout_facts", "layout_text"]


def layout_facts(
    engine: Engine, meta: Meta, database: Database, name: bytes | None
) -> dict[str, Any] | None:
    """Return what the samples of a database are; None: it has no layout that is known."""
    try:
        found = find_samples(OpenFile(engine, meta, database), name, Wanted(AUTO)).selection
    except (ShortReadError, lmdb.Error):  # info and verify tell damage elsewhere
        return None
    if found is None:
        return None
    return {
        "name": found.layout,
        "samples": found.samples,
        "records_per_sample": found.columns,
        "metadata": list(found.metadata),
        "argument": f'layout="{found.layout}"',
    }


def layout_text(facts: dict[str, Any] | None) -> str:
    """Return the same in words."""
    if facts is None:
        return "none that is known: each record is a sample, in key order"
    samples = "samples" if facts["samples"] is None else f"{facts['samples']:,} samples"
    each, metadata = facts["records_per_sample"], facts["metadata"]
    several = f" of {each} records each" if each > 1 else ""
    beside = ", ".join(key.decode("utf-8", "backslashreplace") for key in metadata)
    text = f"{facts['name']}: {samples}{several}"
    text += f"; {beside}: no sample" if metadata else ""
    return f"{text}; read them by {facts['argument']}"
