"""``lmdbio simulate PATH``: how long a Reader's job takes, and what comes from where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import click
from rich.table import Table

from lmdbio import simulate as model
from lmdbio.cli.output import bar, plural, size
from lmdbio.cli.plan_order import Order, ShuffleName
from lmdbio.cli.simulate_job import changed_by
from lmdbio.cli.simulate_output import Run, Settings, combinations
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import BATCH_MAX, EPOCHS_MAX, Job
from lmdbio.planning.environment import Tier
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.simulate import ROW_SOURCES
from lmdbio.system.amounts import BYTES_MAX

__all__ = ["BATCH", "EPOCHS", "ReaderWords", "epochs_table", "reader_options", "simulate_readers"]

MIB = 1 << 20
#: Unless told otherwise: a common batch, and as many epochs as show what a cache does.
BATCH, EPOCHS = 256, 3
Command = TypeVar("Command", bound=Callable[..., Any])


def reader_options(command: Command) -> Command:
    """Add the options of a Reader's job."""
    options = (
        click.option(
            "--epochs", type=click.IntRange(1, EPOCHS_MAX),
            help="Simulate a Reader's job on PATH for N epochs: its order, owners and sources. "
            f"Each of the three options below does so, too.  [default: {EPOCHS}]",
        ),
        click.option(
            "--shuffle", type=ShuffleName(), metavar="ORDER",
            help="Order of a Reader's job: global, group or groups:SIZE, window or "
            "windows:CHUNKxCOUNT, runs:LENGTH.  "
            "[default: the file's order; of several policies global]",
        ),
        click.option(
            "--assignment", type=click.Choice(("strided", "local")),
            help="Part of each batch that a rank takes in a Reader's job: its positions, or "
            "what its root caches.  [default: strided]",
        ),
        click.option(
            "--batch-size", type=click.IntRange(1, BATCH_MAX),
            help="Number of records of all ranks in an iteration of a Reader's job.  "
            f"[default: {BATCH}]",
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
    chosen: model.Scenario,
    asked: ReaderWords,
    cache: Cache | None,
    ranks: int | None,
    policies: Sequence[model.Policy] | None,
    settings: Settings,
) -> tuple[list[Run[model.Outcome]], str]:
    """Return what each combination of settings comes to, and the job in words.

    Args:
        chosen: scenario with the records and the rates.
        asked: words of the Reader.
        cache: tiers of each root; None: those of the scenario for policies, and else none.
        ranks: number of ranks; None: one on each node.
        policies: policies to compare, each with its own words; None: the Reader's words count.
        settings: values that are changed.

    Raises:
        ValueError: a value makes no sense, or the values describe no job that can be simulated.
    """
    cases, runs = combinations(settings), list[Run[model.Outcome]]()
    changed = [changed_by(chosen, case) for case in cases]
    for one in changed:
        one.check_amounts(one.training.epochs * one.data.count)
    jobs = [job_of(one, asked, cache, ranks, is_compared=policies is not None) for one in changed]
    total = len(cases) * (1 if policies is None else len(policies))
    with bar("simulate") as advance:
        for case, one, job in zip(cases, changed, jobs, strict=True):
            found: list[model.Outcome] = []
            for outcome in outcomes(one, job, policies):
                found.append(outcome)
                advance(len(runs) * (total // len(cases)) + len(found), total, "policies")
            runs.append(Run(case, found, {"job": facts_of(job)}))
    words = plural(changed[0].data.count, "record")
    if len(cases) == 1:
        words += f", {words_of(jobs[0], asked, is_compared=policies is not None)}"
    return runs, words


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
    environment, training, shuffle = scenario.environment, scenario.training, None
    if cache is not None or is_compared:
        cache = cache_of(environment.tiers, cache)
    if asked.shuffle is not None:
        located = scenario.data.located(scenario.seed)
        sizes = located.count, located.used_bytes, training.batch
        shuffle = asked.shuffle.sized(*sizes).shuffle
    elif is_compared:
        shuffle = GLOBAL
    return Job(
        cache,
        training.batch,
        environment.nodes,
        ranks or environment.nodes,
        training.epochs,
        shuffle,
        ends=True,
        assignment=asked.assignment or "strided",
        seed=scenario.seed,
    )


def cache_of(tiers: Sequence[Tier], given: Cache | None) -> Cache | None:
    """Return a cache with the capacities of tiers; None: they have no room.

    Args:
        tiers: tiers of each node.
        given: cache that has these tiers; None: they are memory and a disk.

    Raises:
        ValueError: there are more than these two.
    """
    rooms = [_room(tier) for tier in tiers]
    if given is not None:
        memory = rooms.pop(0) if given.memory else 0
        return replace(given, memory=memory, disk_bytes=rooms.pop(0) if given.disk else None)
    if any(rooms[2:]):
        raise ValueError(
            f"a Reader's cache has memory and a disk: of {len(rooms)} tiers --semantics authors "
            "has a model"
        )
    memory, disk = (*rooms, 0, 0)[:2]
    if not memory and not disk:
        return None
    return Cache(memory, "disk" if disk else None, disk or None)


def _room(tier: Tier) -> int:
    """Return the capacity of a tier, whole bytes, as far as a cache takes them."""
    return int(min(tier.capacity * MIB, BYTES_MAX))


def outcomes(
    scenario: model.Scenario, job: Job, policies: Sequence[model.Policy] | None
) -> Iterator[model.Outcome]:
    """Yield what the job comes to, or each policy."""
    located, environment = scenario.data.located(scenario.seed), scenario.environment
    tiers = tuple(tier for tier in environment.tiers if _room(tier))
    environment = replace(environment, tiers=tiers)
    if policies is None:
        yield model.run_reader(located.extents, job, environment, located.options)
        return
    shuffle = job.shuffle
    windows = shuffle if shuffle is not None and shuffle.has_windows else located.windows
    yield from model.run_readers(
        located.extents, policies, job, environment, located.options, windows
    )


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
