"""``lmdbio plan --shuffle``: an order's chance, and the reads of an epoch in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import click
import numpy as np

from lmdbio.cli.output import plural, print_facts, print_json, size
from lmdbio.locate.record_index import RecordIndex
from lmdbio.planning.order import Epoch
from lmdbio.planning.randomness import epochs_without_repeat, meeting, randomness
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.shuffle import Shuffle

__all__ = ["Order", "ShuffleName", "chance_facts", "order_facts", "tell_order"]

#: Buffers of an epoch whose reads are planned; the others are taken to be like them.
SAMPLED = 16


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


class ShuffleName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """``global``, ``groups:SIZE``, ``windows:CHUNKxCOUNT``, ``runs:LENGTH``; without sizes too."""

    name = "shuffle"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Order:
        text = str(value)
        if text.casefold().removesuffix("s") in ("group", "window"):
            return Order(text, None)
        try:
            return Order(text, Shuffle.named(text))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def chance_facts(shuffle: Shuffle | None, count: int) -> dict[str, Any]:
    """Return how much chance an order has, and for how long its groups do not repeat."""
    if shuffle is None:
        return dict.fromkeys(("randomness", "meeting", "epochs_without_repeat"))
    groups = -(-count // shuffle.chunk)
    return {
        "randomness": randomness(shuffle, count),
        "meeting": meeting(shuffle, count),
        "epochs_without_repeat": epochs_without_repeat(count, groups)
        if shuffle.is_grouped
        else None,
    }


def order_facts(
    source: RecordIndex, shuffle: Shuffle, batch: int, options: PlanOptions, alignment: int
) -> dict[str, Any]:
    """Return what an epoch in this order takes.

    Records that come to memory together are planned together: a window where its records are
    shuffled among each other, else a batch. Some of them, evenly spread, stand for all.

    Args:
        source: RecordIndex of the records, at least 1.
        shuffle: Shuffle of an epoch.
        batch: records of all ranks in an iteration.
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
    return {
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


def tell_order(path: str, name: str, found: dict[str, Any], as_json: bool) -> None:
    """Print what an epoch takes."""
    if as_json:
        print_json({"data": path, "shuffle": name} | found)
        return
    requests, read = found["requests"], found["read_bytes"]
    each = f", {size(read / requests)} each" if requests else ""
    facts = [
        ("data", f"{path}: {plural(found['records'], 'record')}"),
        ("order", name),
        ("randomness", f"{100 * found['randomness']:.1f} % of a whole permutation"),
        ("meeting", f"{100 * found['meeting']:.3g} % of all pairs can meet in an epoch's batch"),
        (
            "together",
            f"{plural(found['together'], 'record')}, {size(found['together_bytes'])}: "
            f"{found['buffers']:,} times an epoch",
        ),
        ("reads", f"about {plural(requests, 'request')} an epoch{each}"),
        ("bytes", f"about {size(read)} an epoch, {found['read_over_needed']:.2f} of the values"),
    ]
    repeats = found["epochs_without_repeat"]
    if repeats is not None:
        facts.append(("repeats", f"S < N/G holds for up to {plural(repeats, 'epoch')}"))
    print_facts(facts)
