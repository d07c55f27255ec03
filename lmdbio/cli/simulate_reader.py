"""``lmdbio simulate PATH --epochs``: how long a Reader's job takes, and what comes from where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from rich.table import Table

from lmdbio import simulate as model
from lmdbio.cli.output import bar, plural, size
from lmdbio.cli.plan import open_source
from lmdbio.cli.plan_order import Order, ShuffleName
from lmdbio.cli.simulate_job import MIB, changed_by, is_cluster, scenario_of
from lmdbio.cli.simulate_output import Run, Settings, combinations
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import BATCH_MAX, EPOCHS_MAX, Job
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.prediction.reader import Located
from lmdbio.simulate import ROW_SOURCES

__all__ = ["ReaderWords", "epochs_table", "reader_options", "simulate_readers"]

#: Unless told otherwise: a common batch, and as many epochs as show what a cache does.
BATCH, EPOCHS = 256, 3
Command = TypeVar("Command", bound=Callable[..., Any])


def reader_options(command: Command) -> Command:
    """Add the options of a Reader's job."""
    options = (
        click.option(
            "--epochs", type=click.IntRange(1, EPOCHS_MAX),
            help="Of PATH: simulate a Reader's job of so many epochs: its order, its homes, its "
            f"sources. The three options below ask for the same.  [default: {EPOCHS}]",
        ),
        click.option(
            "--shuffle", type=ShuffleName(), metavar="ORDER",
            help="Of a Reader's job: global, group or groups:SIZE, window or windows:CHUNKxCOUNT, "
            "runs:LENGTH.  "
            "[default: the file's order; of several policies global]",
        ),
        click.option(
            "--assignment", type=click.Choice(("strided", "local")),
            help="Of a Reader's job: which part of each batch a rank takes: its positions, or "
            "what its root keeps.  [default: strided]",
        ),
        click.option(
            "--batch-size", type=click.IntRange(1, BATCH_MAX),
            help=f"Of a Reader's job: records of all ranks in an iteration.  [default: {BATCH}]",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


class ReaderWords(NamedTuple):
    """The options of a Reader's job, as they were given.

    Attributes:
        epochs, shuffle, assignment, batch_size: options of the same names; None: not given.
    """

    epochs: int | None
    shuffle: Order | None
    assignment: str | None
    batch_size: int | None

    @property
    def are_given(self) -> bool:
        """Whether a Reader's job is asked for."""
        return any(word is not None for word in self)


def simulate_readers(
    base: model.Scenario,
    asked: ReaderWords,
    sources: Sequence[Path],
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
    policies: Sequence[model.Policy] | None,
    settings: Settings,
) -> tuple[list[Run[model.Outcome]], list[str], str]:
    """Return what each combination of settings comes to, where its rates come from, and a title.

    Args:
        base: a scenario to begin with, for rates alone.
        asked: words of the Reader.
        sources: a data set, and files of values.
        cache: tiers of each root.
        nodes, ranks: shape of the job; None: as the scenario has it, one rank on each node.
        policies: policies to compare, each with its own words; None: the Reader's words count.
        settings: values that are changed.

    Raises:
        ValueError, OSError, Error: something cannot be read, or makes no sense.
    """
    data = [path for path in sources if not is_cluster(path)]
    if not data:
        raise click.UsageError(
            "--epochs, --shuffle, --assignment and --batch-size are of a Reader's job: it needs "
            "PATH, a data set"
        )
    if policies is not None and cache is None:
        raise click.UsageError("--policy compares what policies do with the tiers of --cache")
    training = model.Training(asked.epochs or EPOCHS, asked.batch_size or BATCH)
    tiers = cache and replace(cache, placement="home", warm="demand")
    chosen, words = scenario_of(replace(base, training=training), sources, tiers, nodes, ranks)
    file, cases, runs = read_file(data[0]), combinations(settings), list[Run[model.Outcome]]()
    if asked.shuffle is not None:
        sizes = max(1, len(file.extents)), file.used_bytes, training.batch
        asked = asked._replace(shuffle=asked.shuffle.sized(*sizes))
    with bar("simulate") as advance:
        for case in cases:
            changed = changed_by(chosen, case)
            job = job_of(changed, asked, cache, ranks, is_compared=policies is not None)
            found = list(outcomes(file, changed, job, policies))
            runs.append(Run(case, found, {"job": facts_of(job)}))
            advance(len(runs), len(cases), "settings")
    title = f"{data[0].name}: {plural(len(file.extents), 'record')}"
    if len(cases) == 1:
        title += f", {words_of(job, asked, is_compared=policies is not None)}"
    return runs, words, title


def read_file(path: Path) -> Located:
    """Return where the records of a data set lie, and how a Reader reads them."""
    with open_source(path, None, None) as source:
        return Located.of(source)


def job_of(
    scenario: model.Scenario,
    asked: ReaderWords,
    cache: Cache | None,
    ranks: int | None,
    *,
    is_compared: bool,
) -> Job:
    """Return the job of a Reader that has the values of a scenario.

    Raises:
        ValueError: they describe no job.
    """
    environment, training = scenario.environment, scenario.training
    if cache is not None:
        rooms = iter([int(tier.capacity * MIB) for tier in environment.tiers])
        cache = replace(cache, memory=next(rooms) if cache.memory else 0)
        if cache.disk is not None:
            cache = replace(cache, disk_bytes=next(rooms))
    shuffle = asked.shuffle[1] if asked.shuffle is not None else None
    return Job(
        cache,
        training.batch,
        environment.nodes,
        ranks or environment.nodes,
        training.epochs,
        GLOBAL if shuffle is None and is_compared else shuffle,
        ends=True,
        assignment=asked.assignment or "strided",
        seed=scenario.seed,
    )


def outcomes(
    file: Located, scenario: model.Scenario, job: Job, policies: Sequence[model.Policy] | None
) -> Iterator[model.Outcome]:
    """Yield what the job comes to, or each policy."""
    if policies is None:
        yield model.run_reader(file.extents, job, scenario.environment, file.options)
        return
    shuffle = job.shuffle
    windows = shuffle if shuffle is not None and shuffle.has_windows else file.windows
    run = partial(model.run_readers, file.extents, policies, job, scenario.environment)
    yield from run(file.options, windows)


def facts_of(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return {
        "nodes": job.nodes,
        "ranks": job.ranks,
        "batch": job.batch,
        "epochs": job.epochs,
        "assignment": job.assignment,
        "placement": str(job.placement),
        "memory": job.tiers.memory,
        "disk": job.tiers.disk,
    }


def words_of(job: Job, asked: ReaderWords, *, is_compared: bool) -> str:
    """Return a job in words."""
    usual = "global" if is_compared else "of the file"
    parts = [
        f"{plural(job.ranks, 'rank')} on {plural(job.nodes, 'node')}",
        f"batches of {job.batch:,}",
        f"order {usual if asked.shuffle is None else asked.shuffle[0]}",
    ]
    if not is_compared:
        parts.append(job.assignment)
    tiers = [f"{size(room)} of {name}" for name, room in job.tiers._asdict().items() if room]
    parts.append(f"{' and '.join(tiers)} a root" if tiers else "no cache")
    return ", ".join(parts)


def epochs_table(found: Sequence[model.Outcome]) -> Table:
    """Draw the epochs of a job: seconds, waiting, records and bytes by source."""
    (one,) = found
    table = Table(box=None, pad_edge=False, header_style="")
    has_disks = any(records["disk"] for records in one.reads or ())
    sources = [name for name in ROW_SOURCES if name != "disk" or has_disks]
    columns = ("epoch", "seconds", "stall s", *sources, *(f"{name} bytes" for name in sources))
    for name in columns:
        table.add_column(name, justify="left" if name == "epoch" else "right")
    if one.init_seconds:
        table.add_row("before", f"{one.init_seconds:,.2f}")
    rows = zip(one.epochs or (), one.reads or (), one.bytes or (), strict=True)
    for number, ((seconds, stall), records, sizes) in enumerate(rows):
        table.add_row(
            str(number),
            f"{seconds:,.2f}",
            f"{stall:,.2f}",
            *(f"{records[name]:,}" for name in sources),
            *(size(sizes[name]) for name in sources),
        )
    table.add_row("all", f"{one.seconds:,.2f}", f"{one.stall_seconds:,.2f}")
    return table
