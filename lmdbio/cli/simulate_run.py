"""The runs of ``lmdbio simulate``: each combination of settings, by policies or by modes.

    scenario, policies      ``simulate.run``, the thesis' model
    scenario, a Reader      ``simulate.run_reader``, or ``run_readers`` of several policies
    workload, store, modes  ``simulate.run_modes``

All cases are made, and refused, before the first is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, TypeVar

from lmdbio import simulate as model
from lmdbio.cli.output import bar, plural, size
from lmdbio.cli.plan_epochs import Order
from lmdbio.cli.simulate_input import changed_by
from lmdbio.cli.simulate_output import Run
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job
from lmdbio.planning.environment import Tier
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.system.amounts import BYTES_MAX

__all__ = ["ReaderWords", "run_modes", "run_policies", "run_readers"]

MIB = 1 << 20
Cases = Sequence[Mapping[str, str]]
Values = TypeVar("Values")


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


def _run_all(
    cases: Cases,
    values: Sequence[Values],
    outcomes: Callable[[Values], Iterable[model.Outcome | model.ModeOutcome]],
    count: int,
    unit: str,
    about: Callable[[Values], Mapping[str, Any]],
) -> list[Run]:
    """Simulate the values of each case.

    Args:
        cases: changed values of each case.
        values: all values of each.
        outcomes: function from values to their outcomes.
        count: number of outcomes of a case.
        unit: word for what is simulated, policies or modes.
        about: function from values to further facts for JSON.
    """
    runs: list[Run] = []
    with bar("simulate") as advance:
        for case, one in zip(cases, values, strict=True):
            found: list[model.Outcome | model.ModeOutcome] = []
            for outcome in outcomes(one):
                found.append(outcome)
                advance(len(runs) * count + len(found), len(cases) * count, unit)
            runs.append(Run(case, found, about(one)))
    return runs


def run_policies(
    chosen: model.Scenario, policies: Sequence[model.Policy], cases: Cases
) -> list[Run]:
    """Return the outcomes of policies by the thesis' model."""
    jobs = [changed_by(chosen, case) for case in cases]
    for job in jobs:
        job.check()
    return _run_all(
        cases,
        jobs,
        lambda job: model.run(job, policies),
        len(policies),
        "policies",
        lambda _: {},
    )


def run_modes(
    job: model.Workload, store: model.Store, modes: Sequence[model.Mode], cases: Cases
) -> list[Run]:
    """Return the outcomes of modes that read a workload from a store."""
    return _run_all(
        cases,
        [model.changed_reading(job, store, case) for case in cases],
        lambda one: model.run_modes(one[0], modes, one[1]),
        len(modes),
        "modes",
        lambda one: {"workload": asdict(replace(one[0], lengths=None)), "store": one[1]},
    )


def run_readers(
    chosen: model.Scenario,
    asked: ReaderWords,
    cache: Cache | None,
    ranks: int | None,
    policies: Sequence[model.Policy] | None,
    cases: Cases,
) -> tuple[list[Run], str]:
    """Return the outcomes of a Reader's job, and the job in words.

    Args:
        chosen: scenario with the records and the rates.
        asked: words of the Reader.
        cache: tiers of each root; None: those of the scenario for policies, and else none.
        ranks: number of ranks; None: one on each node.
        policies: policies to compare, each with its own words; None: the Reader's words count.
        cases: values that are changed in each case.

    Raises:
        ValueError: a value makes no sense, or the values describe no job that can be simulated.
    """
    changed = [changed_by(chosen, case) for case in cases]
    for one in changed:
        one.check_amounts(one.training.epochs * one.data.count)
    is_compared = policies is not None
    jobs = [_job(one, asked, cache, ranks, is_compared=is_compared) for one in changed]
    runs = _run_all(
        cases,
        list(zip(changed, jobs, strict=True)),
        lambda one: _outcomes(*one, policies),
        1 if policies is None else len(policies),
        "policies",
        lambda one: {"job": _job_facts(one[1])},
    )
    words = plural(changed[0].data.count, "record")
    if len(cases) == 1:
        words += f", {_job_words(jobs[0], asked, is_compared=is_compared)}"
    return runs, words


def _job(
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
        cache = _cache(environment.tiers, cache)
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


def _cache(tiers: Sequence[Tier], given: Cache | None) -> Cache | None:
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
    return Cache(memory, "disk" if disk else None, disk or None) if memory or disk else None


def _room(tier: Tier) -> int:
    """Return the capacity of a tier, whole bytes, as far as a cache takes them."""
    return int(min(tier.capacity * MIB, BYTES_MAX))


def _outcomes(
    scenario: model.Scenario, job: Job, policies: Sequence[model.Policy] | None
) -> Iterator[model.Outcome]:
    """Yield the outcome of a job, or of each policy."""
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


def _job_facts(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    names = ("nodes", "ranks", "batch", "epochs", "assignment")
    facts = {name: getattr(job, name) for name in names}
    return facts | {"placement": str(job.placement), **job.tiers._asdict()}


def _job_words(job: Job, asked: ReaderWords, *, is_compared: bool) -> str:
    """Return a job in words."""
    usual = "global" if is_compared else "of the file"
    parts = [
        f"{plural(job.ranks, 'rank')} on {plural(job.nodes, 'node')}",
        f"batches of {job.batch:,}",
        f"order {usual if asked.shuffle is None else asked.shuffle.text}",
    ]
    if not is_compared:
        parts.append(job.assignment)
    tiers = [f"{size(room)} of {name}" for name, room in job.tiers._asdict().items() if room]
    parts.append(f"{' and '.join(tiers)} a root" if tiers else "no cache")
    return ", ".join(parts)
