"""``lmdbio plan --shuffle`` and ``--cache``: the chance of an order, and the reads of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
import numpy as np

from lmdbio.cli.options import checked
from lmdbio.cli.output import Lines, bar, plural, print_facts, print_json, print_table, size
from lmdbio.locate.record_index import RecordIndex
from lmdbio.placement.forecast import ROW_SOURCES, Forecast, Job, Outlook
from lmdbio.planning.order import Epoch
from lmdbio.planning.randomness import epochs_without_repeat, meeting, randomness
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.shuffle import Shuffle
from lmdbio.prediction.reader import Prediction, cache_here, known_rates, predict_job
from lmdbio.simulate import Located

__all__ = ["Order", "cache_words", "plan_job", "plan_order", "shuffle_name"]

#: Buffers of an epoch whose reads are planned; the others are taken to be like them.
SAMPLED = 16

#: The type of ``memory=8G,disk=/local,disk_bytes=100G``, or auto.
cache_words = checked(cache_here)


class Order(NamedTuple):
    """An order as it was asked for.

    Attributes:
        text: name of the order.
        shuffle: Shuffle of the order; None: before its sizes are those that suit a file.
    """

    text: str
    shuffle: Shuffle | None

    def sized(self, count: int, file_bytes: int, batch: int) -> Order:
        """Return the order with the sizes that a Reader gives it on a file.

        Args:
            count: records, at least 1.
            file_bytes: size of their file.
            batch: records of an iteration.
        """
        if self.shuffle is not None:
            return self
        return self._replace(shuffle=Shuffle.named(self.text, file_bytes / count, batch))


@checked
def shuffle_name(text: str) -> Order:
    """Return ``global``, ``groups:SIZE``, ``windows:CHUNKxCOUNT`` or ``runs:LENGTH``."""
    if text.casefold().removesuffix("s") in ("group", "window"):
        return Order(text, None)
    return Order(text, Shuffle.named(text))


def chance_facts(shuffle: Shuffle | None, count: int) -> dict[str, Any]:
    """Return how much chance an order has, and for how long its groups do not repeat."""
    if shuffle is None:
        return dict.fromkeys(("randomness", "meeting", "epochs_without_repeat"))
    groups = -(-count // shuffle.chunk)
    epochs = epochs_without_repeat(count, groups) if shuffle.is_grouped else None
    return {
        "randomness": randomness(shuffle, count),
        "meeting": meeting(shuffle, count),
        "epochs_without_repeat": epochs,
    }


def chance_lines(found: dict[str, Any]) -> tuple[Lines, Lines]:
    """Return lines about how much chance an order has, and about its groups; none: no order."""
    share, epochs = found["randomness"], found["epochs_without_repeat"]
    chance = (
        [] if share is None else [("randomness", f"{100 * share:.1f} % of a whole permutation")]
    )
    if epochs is None:
        return chance, []
    return chance, [("repeats", f"S < N/G holds for up to {plural(epochs, 'epoch')}")]


# --- an order -----------------------------------------------------------------------------


def plan_order(
    source: RecordIndex,
    name: str,
    shuffle: Shuffle,
    batch: int,
    options: PlanOptions,
    alignment: int,
    as_json: bool,
) -> None:
    """Plan an epoch in an order, and print what it takes.

    Records that come to memory together are planned together: a window where its records are
    shuffled among each other, else a batch. Some of them, evenly spread, stand for all.

    Args:
        source: RecordIndex of the records, at least 1.
        name: name of the order.
        shuffle: Shuffle of an epoch.
        batch: records of all ranks in an iteration.
        options: options of the reads.
        alignment: alignment of the reads, bytes.
        as_json: whether JSON is printed.
    """
    count = source.count
    together = shuffle.window_records(count) if shuffle.inner and shuffle.chunk > 1 else batch
    together = min(together, count)
    buffers = -(-count // together)
    epoch, records, value_bytes, requests, read_bytes = Epoch(count, 0, 0, shuffle), 0, 0, 0, 0
    for number in np.unique(np.linspace(0, buffers - 1, SAMPLED).astype(int)).tolist():
        places = np.arange(number * together, min(count, (number + 1) * together))
        extents = source.extents(epoch.samples(places).astype(np.uint64))
        totals = plan_reads(extents, options, alignment=alignment).totals
        records += len(places)
        value_bytes += totals.record_bytes
        requests += totals.requests
        read_bytes += totals.buffer_bytes
    found = {
        "data": source.path,
        "shuffle": name,
        "records": count,
        **chance_facts(shuffle, count),
        "together": together,
        "together_bytes": round(value_bytes / records * together),
        "buffers": buffers,
        "planned_buffers": min(SAMPLED, buffers),
        "requests": round(requests / records * count),
        "read_bytes": round(read_bytes / records * count),
        "read_over_needed": read_bytes / value_bytes if value_bytes else 1.0,
    }
    if as_json:
        print_json(found)
    else:
        print_facts(_order_lines(found))


def _order_lines(found: dict[str, Any]) -> Lines:
    """Return the lines about an epoch in an order."""
    requests, read = found["requests"], found["read_bytes"]
    each = f", {size(read / requests)} each" if requests else ""
    together = f"{plural(found['together'], 'record')}, {size(found['together_bytes'])}"
    chance, repeats = chance_lines(found)
    return [
        ("data", f"{found['data']}: {plural(found['records'], 'record')}"),
        ("order", found["shuffle"]),
        *chance,
        ("meeting", f"{100 * found['meeting']:.3g} % of all pairs can meet in an epoch's batch"),
        ("together", f"{together}: {found['buffers']:,} times an epoch"),
        ("reads", f"about {plural(requests, 'request')} an epoch{each}"),
        ("bytes", f"about {size(read)} an epoch, {found['read_over_needed']:.2f} of the values"),
        *repeats,
    ]


# --- a job with caches --------------------------------------------------------------------


def plan_job(
    source: RecordIndex, name: str, job: Job, options: PlanOptions, alignment: int, as_json: bool
) -> None:
    """Forecast what a job with caches reads from where, and print it epoch by epoch.

    Args:
        source: RecordIndex of the records, at least 1.
        name: name of the order.
        job: Job whose reads are foretold.
        options: options of the reads.
        alignment: alignment of the reads, bytes.
        as_json: whether JSON is printed.
    """
    if job.cache is not None:
        record_bytes = source.used_bytes / source.count
        job = replace(job, first=job.cache.warming.first_order(source.count, record_bytes))
    extents = source.extents(np.arange(source.count, dtype=np.uint64))
    outlook = Outlook(extents, job, options, alignment)
    rows = []
    with bar("plan") as advance:
        for one in outlook.epochs():
            rows.append(_epoch_facts(one))
            advance(len(rows), job.epochs, "epochs")
    predicted = None
    if known_rates(source.pages, source.path)[0] is not None:
        predicted = predict_job(Located(extents, source.used_bytes, options), job, source.pages)
    found = {
        "data": source.path,
        "shuffle": name,
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
    if as_json:
        print_json(found)
        return
    print_facts(_job_lines(found))
    click.echo()
    _print_epochs(rows, predicted)


def _epoch_facts(one: Forecast) -> dict[str, Any]:
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


def _job_lines(found: dict[str, Any]) -> Lines:
    """Return the lines about a job."""
    held, whole = found["held_bytes"], found["file_bytes"]
    chance, repeats = chance_lines(found)
    return [
        ("data", f"{found['data']}: {plural(found['records'], 'record')}, {size(whole)}"),
        ("job", f"{plural(found['ranks'], 'rank')} on {plural(found['nodes'], 'node')}"),
        ("order", found["shuffle"]),
        ("assignment", found["assignment"]),
        ("cache", f"placement {found['placement']}"),
        *([("held", f"{size(held)}, {held / whole:.1%} of the file")] if held else []),
        *chance,
        *repeats,
    ]


def _print_epochs(found: Sequence[dict[str, Any]], predicted: Prediction | None) -> None:
    """Print a line for each epoch, with its seconds where they can be predicted."""
    has_disks = any(row["records"]["disk"] for row in found)
    sources = [name for name in ROW_SOURCES if name != "disk" or has_disks]
    columns = ["epoch", *sources, "read", "requests", "between nodes", "messages"]
    rows = []
    for row in found:
        epoch = row["epoch"]
        rows.append(
            [
                "before" if epoch is None else str(epoch),
                *(f"{row['records'][source]:,}" for source in sources),
                size(row["read_bytes"]),
                f"{row['requests']:,}",
                size(row["sent_bytes"]),
                f"{row['messages']:,}",
            ]
        )
        if predicted is not None:
            seconds = predicted.init_seconds if epoch is None else predicted.epochs[epoch].seconds
            rows[-1].append(f"{seconds:,.2f}")
    print_table([*columns, *["seconds"] * (predicted is not None)], rows, width=110)
    for words in () if predicted is None else predicted.rates:
        click.echo(words, err=True)
