"""``lmdbio simulate --mode``: how LMDBIO's modes read a data set from a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from lmdbio import simulate as model
from lmdbio.cli.output import bar
from lmdbio.cli.plan import open_source
from lmdbio.cli.simulate_job import is_cluster, read_values
from lmdbio.cli.simulate_output import Run, Settings, combinations, tell
from lmdbio.machine.calibration import Stored
from lmdbio.machine.measured import store_rates
from lmdbio.planning.mode import NAMED
from lmdbio.reading.engines import find_calibration

__all__ = ["MODES", "modes_of", "simulate_modes"]

#: As they are asked for.
MODES = tuple(name.casefold().rpartition("-")[2] for name in NAMED)
#: Records of an iteration of a data set of one's own.
BATCH = 256
#: Of a store that was measured: where pieces are cut says nothing, for it counts as one server.
STRIPE_BYTES = 1 << 20


def modes_of(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> list[model.Mode] | None:
    """Return the modes of a list with commas, or all."""
    if value is None:
        return None
    names = [name.strip().casefold() for name in value.split(",")]
    if "all" in names:
        return list(NAMED.values())
    for name in names:
        if name not in (*MODES, *map(str.casefold, NAMED)):
            raise click.BadParameter(
                f"no mode is called {name!r}; known: all, {', '.join(MODES)}", ctx, param
            )
    return [model.Mode.named(name) for name in names]


def simulate_modes(
    sources: Sequence[Path],
    workload: str,
    store: str | None,
    nodes: int | None,
    ranks: int | None,
    modes: Sequence[model.Mode],
    settings: Settings,
    target: str | None,
    page_file: str | None,
) -> None:
    """Simulate, and tell what was found.

    Args:
        sources, workload, store, nodes, ranks: arguments of ``reading_of``.
        modes: modes that are simulated.
        settings: values that are changed.
        target, page_file: files to be written.
    """
    job, where, words = reading_of(sources, workload, store, nodes, ranks)
    cases = combinations(settings)
    changed = [model.changed_reading(job, where, case) for case in cases]
    runs: list[Run[model.ModeOutcome]] = []
    with bar("simulate") as advance:
        for case, (workload_of, store_of) in zip(cases, changed, strict=True):
            found: list[model.ModeOutcome] = []
            for one in model.run_modes(workload_of, modes, store_of):
                found.append(one)
                done = len(runs) * len(modes) + len(found)
                advance(done, len(cases) * len(modes), "modes")
            about = {"workload": asdict(replace(workload_of, lengths=None)), "store": store_of}
            runs.append(Run(case, found, about))
    names = [path.name for path in sources] or [f"workload {workload}"]
    title = ", ".join(names)
    if not any(key.startswith("ranks") for key, _ in settings):
        title += f", {job.ranks:,} ranks on {job.nodes:,} nodes"
    click.echo(words, err=True)
    tell(runs, target, title, table_of=table_of, reasons_of=reasons_of, as_json=as_json)
    if page_file is not None:
        from lmdbio.cli.simulate_page import modes_page  # loads the room of benchmarks

        Path(page_file).write_text(modes_page(runs, title), encoding="utf-8")
        click.echo(page_file, err=target == "-")


def reading_of(
    sources: Sequence[Path],
    workload: str,
    store: str | None,
    nodes: int | None,
    ranks: int | None,
) -> tuple[model.Workload, model.Store, str]:
    """Return who reads what from which store, and where its rates come from.

    Later ones count more: the workload, a data set, what ``lmdbio tune`` measured of its file
    system, the store that was asked for, a TOML file, options.

    Raises:
        ValueError, OSError, Error: one cannot be read, or makes no sense.
    """
    job, where = model.WORKLOADS[workload], model.STORES[store or "bebop"]
    words = f"store: {store or 'bebop'}"
    for path in (path for path in sources if not is_cluster(path)):
        job, kept = with_data(path)
        if store is None:
            where, words = measured_store(path, kept)
    found = where
    for path in filter(is_cluster, sources):
        is_given = job.lengths is not None
        change = partial(model.changed_reading, job, where)
        job, where = read_values(path, change, ("samples", "size") if is_given else ())
    if where != found:
        words += ", but for values of your own"
    if nodes is not None or ranks is not None:
        job = with_ranks(job, nodes, ranks)
    return job, where, words


def with_data(path: Path) -> tuple[model.Workload, Stored | None]:
    """Return a job of one rank that reads a data set once, and the figures of its storage."""
    with open_source(path, None, None) as source:
        if not source.count:
            raise ValueError(f"{path}: it holds no records")
        lengths = source.extents(np.arange(source.count, dtype=np.uint64))["length"]
        kept = find_calibration(source.pages)
    sizes = lengths.astype(np.int64)
    batch = min(BATCH, len(sizes))
    typical = max(1, int(np.median(sizes)))
    job = model.Workload(len(sizes), typical, batch, 1, 1, len(sizes) // batch, lengths=sizes)
    return job, kept


def measured_store(path: Path, kept: Stored | None) -> tuple[model.Store, str]:
    """Return a store with the measured rates of a file system, and what was measured."""
    if kept is None or kept.calibration is None:
        why = kept.note if kept is not None else f"not measured (lmdbio tune {path} does)"
        return model.STORES["bebop"], f"store: bebop; its own is {why}"
    rates = store_rates(kept.calibration)
    store = replace(
        model.STORES["model"],
        servers=1,
        stripe_bytes=STRIPE_BYTES,
        server_rate=rates.all_nodes,
        link_rate=rates.one_node,
        request_seconds=rates.request_seconds,
        out_of_order_seconds=rates.out_of_order_seconds,
        request_bytes=rates.request_bytes,
        depth=rates.depth,
    )
    words = (
        f"store: as lmdbio tune measured, M a second: {rates.one_node / 2**20:,.0f} of a node, "
    )
    if kept.calibration.staggerings:
        words += f"{rates.all_nodes / 2**20:,.0f} of all"
    else:
        words += (
            "and no more of several (mpiexec -n RANKS lmdbio tune on several nodes measures it)"
        )
    return store, words


def with_ranks(job: model.Workload, nodes: int | None, ranks: int | None) -> model.Workload:
    """Return a job of so many ranks on so many nodes.

    Raises:
        ValueError: they cannot run so.
    """
    if nodes is None:
        return replace(job, ranks=ranks or job.ranks)
    count = ranks or nodes * job.ranks_per_node
    per_node = -(-count // nodes)
    if -(-count // per_node) != nodes:
        raise ValueError(
            f"{count} ranks cannot run on {nodes} nodes: {per_node} on each are "
            f"{-(-count // per_node)} nodes"
        )
    return replace(job, ranks=count, ranks_per_node=per_node)


def table_of(found: Sequence[model.ModeOutcome]) -> Table:
    """Draw what each mode comes to, beside LMDB."""
    table = Table(box=None, pad_edge=False)
    columns = (
        "mode", "seconds", "M/s", "x LMDB", "M read", "requests", "roots", "k", "tokens",
        "seek s", "moves %", "bound",
    )  # fmt: skip
    for name in columns:
        table.add_column(name, justify="left" if name in ("mode", "bound") else "right")
    lmdb = next((one.seconds for one in found if one.mode == "LMDB"), None)
    for one in found:
        if one.seconds is None:
            table.add_row(one.mode, *"-" * (len(columns) - 1))
            continue
        table.add_row(
            one.mode,
            f"{one.seconds:,.2f}",
            f"{one.needed_bytes / 2**20 / one.seconds:,.0f}",
            f"{lmdb / one.seconds:.2f}" if lmdb else "-",
            f"{one.bytes / 2**20:,.0f}",
            f"{one.requests:,}",
            f"{one.roots:,}",
            f"{one.block_iterations:,}",
            f"{one.tokens or '-'}",
            f"{one.seek_seconds:,.1f}",
            f"{100 * one.out_of_order:.0f}",
            one.bound,
        )
    return table


def reasons_of(found: Sequence[model.ModeOutcome]) -> dict[str, str | None]:
    return {one.mode: one.reason for one in found}


def as_json(found: Sequence[model.ModeOutcome]) -> dict[str, Any]:
    """Return what each mode comes to, by its name."""
    told = {}
    for one in found:
        values = asdict(one)
        del values["mode"]
        told[one.mode] = {**values, "supported": one.reason is None}
    return {"modes": told}
