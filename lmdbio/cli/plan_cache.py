"""``lmdbio plan --cache``: what a job with caches reads from where, epoch by epoch."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from rich.table import Table

from lmdbio._core import Extents
from lmdbio.cli.output import bar, plural, print_facts, print_json, size, wide_console
from lmdbio.cli.plan_order import chance_facts
from lmdbio.locate.record_index import RecordIndex
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import ROW_SOURCES, Forecast, Job, Outlook
from lmdbio.planning.reads import PlanOptions
from lmdbio.prediction.reader import Prediction, cache_here, is_measured, predict_job
from lmdbio.simulate import Located

__all__ = ["CacheWords", "cache_facts", "tell_cache"]


class CacheWords(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """``memory=8G,disk=/local,disk_bytes=100G``, or auto."""

    name = "cache"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Cache:
        try:
            return cache_here(str(value))
        except (ValueError, OSError) as error:
            self.fail(str(error), param, ctx)


def cache_facts(
    source: RecordIndex, job: Job, options: PlanOptions, alignment: int
) -> dict[str, Any]:
    """Return records, bytes and requests of each epoch, by source.

    Args:
        source: RecordIndex of the records, at least 1.
        job: Job whose reads are foretold.
        options: options of the reads.
        alignment: alignment of the reads, bytes.
    """
    extents = source.extents(np.arange(source.count, dtype=np.uint64))
    outlook = Outlook(extents, job, options, alignment)
    rows = []
    with bar("plan") as advance:
        for one in outlook.epochs():
            rows.append(as_row(one))
            advance(len(rows), job.epochs, "epochs")
    predicted = predicted_epochs(source, extents, job, options)
    return {
        "records": source.count,
        "file_bytes": outlook.file_bytes,
        "placement": str(job.placement),
        "held_bytes": outlook.held_bytes,
        "grain_bytes": outlook.homes.grains.size,
        "nodes": job.nodes,
        "ranks": job.ranks,
        "assignment": job.assignment,
        **chance_facts(outlook.shuffle, source.count),
        "predicted": predicted,
        "epochs": rows,
    }


def predicted_epochs(
    source: RecordIndex, extents: Extents, job: Job, options: PlanOptions
) -> Prediction | None:
    """Return how long epochs will take; None where nothing was measured of the storage."""
    if not is_measured(source.pages):
        return None
    return predict_job(Located(extents, source.used_bytes, options), job, source.pages)


def as_row(one: Forecast) -> dict[str, Any]:
    """Return an epoch's forecast as JSON has it."""
    return {
        "epoch": one.epoch,
        "records": dict(zip(ROW_SOURCES, one.supplied.records, strict=True)),
        "bytes": dict(zip(ROW_SOURCES, one.supplied.bytes, strict=True)),
        "sent_bytes": one.supplied.sent_bytes,
        "requests": one.requests,
        "read_bytes": one.read_bytes,
        "messages": one.messages,
    }


def tell_cache(path: str, name: str, found: dict[str, Any], as_json: bool) -> None:
    """Print what each epoch reads."""
    if as_json:
        print_json({"data": path, "shuffle": name} | found)
        return
    held, whole = found["held_bytes"], found["file_bytes"]
    facts = [
        ("data", f"{path}: {plural(found['records'], 'record')}, {size(whole)}"),
        ("job", f"{plural(found['ranks'], 'rank')} on {plural(found['nodes'], 'node')}"),
        ("order", name),
        ("assignment", found["assignment"]),
        ("cache", f"placement {found['placement']}"),
    ]
    if held:
        facts.append(("held", f"{size(held)}, {held / whole:.1%} of the file"))
    if found["randomness"] is not None:
        facts.append(("randomness", f"{100 * found['randomness']:.1f} % of a whole permutation"))
    if found["epochs_without_repeat"] is not None:
        epochs = plural(found["epochs_without_repeat"], "epoch")
        facts.append(("repeats", f"S < N/G holds for up to {epochs}"))
    print_facts(facts)
    table = Table(box=None, pad_edge=False, header_style="")
    has_disks = any(row["records"]["disk"] for row in found["epochs"])
    shown = [name for name in ROW_SOURCES if name != "disk" or has_disks]
    predicted: Prediction | None = found["predicted"]
    seconds = () if predicted is None else ("seconds",)
    for column in ("epoch", *shown, "read", "requests", "between nodes", "messages", *seconds):
        table.add_column(column, justify="left" if column == "epoch" else "right")
    for row in found["epochs"]:
        table.add_row(
            "before" if row["epoch"] is None else str(row["epoch"]),
            *(f"{row['records'][source]:,}" for source in shown),
            size(row["read_bytes"]),
            f"{row['requests']:,}",
            size(row["sent_bytes"]),
            f"{row['messages']:,}",
            *seconds_of(predicted, row["epoch"]),
        )
    click.echo()
    wide_console(width=110).print(table, highlight=False)
    for words in () if predicted is None else predicted.rates:
        click.echo(words, err=True)


def seconds_of(predicted: Prediction | None, epoch: int | None) -> tuple[str, ...]:
    """Return the cell of an epoch's predicted seconds, where there are some."""
    if predicted is None:
        return ()
    seconds = predicted.init_seconds if epoch is None else predicted.epochs[epoch].seconds
    return (f"{seconds:,.2f}",)
