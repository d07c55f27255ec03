"""``lmdbio simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from lmdbio import simulate as model
from lmdbio.cli.options import OUTPUT, PATH, checked
from lmdbio.cli.plan_epochs import cache_words, shuffle_name
from lmdbio.cli.simulate_input import (
    BATCH,
    Settings,
    combinations,
    is_cluster,
    reading_of,
    scenario_of,
    setting,
)
from lmdbio.cli.simulate_output import Run, refuse_targets, write
from lmdbio.cli.simulate_run import ReaderWords, run_modes, run_policies, run_readers
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import BATCH_MAX, EPOCHS_MAX, RANKS_MAX
from lmdbio.planning.mode import NAMED

#: Modes as they are asked for.
MODES = tuple(name.casefold().rpartition("-")[2] for name in NAMED)
#: Epochs of a Reader's job unless told otherwise: as many as show what a cache does.
EPOCHS = 3
#: Options that are of no use with --mode, and of none without it.
OF_POLICIES = ("scenario", "policies", "semantics", "cache", *ReaderWords._fields)
OF_MODES = ("workload", "store")


@checked
def policies_named(text: str) -> list[model.Policy]:
    """Return the policies of a list with commas, or all."""
    if text.casefold() == "all":
        return list(model.POLICIES)
    return [model.Policy.named(name.strip()) for name in text.split(",")]


@checked
def modes_named(text: str) -> list[model.Mode]:
    """Return the modes of a list with commas, or all."""
    names = [name.strip().casefold() for name in text.split(",")]
    if "all" in names:
        return list(NAMED.values())
    for name in names:
        if name not in (*MODES, *map(str.casefold, NAMED)):
            raise ValueError(f"no mode is called {name!r}; known: all, {', '.join(MODES)}")
    return [model.Mode.named(name) for name in names]


#: As ``lmdbio simulate --help`` shows it.
HELP = """How long would a training take, with which way of loading its data?

\b
Examples:
    lmdbio simulate --scenario 3 --html simulated.html
    lmdbio simulate --scenario 3 --policy hdmlp --set tier1.capacity=10G,20G,40G
    lmdbio simulate cluster.toml train_lmdb --set epochs=3 --set batch=256
    lmdbio simulate train_lmdb --epochs 3 --shuffle global --cache memory=8G --nodes 16
    lmdbio simulate train_lmdb --epochs 3 --cache memory=8G --nodes 16 --policy all
    lmdbio simulate cluster.toml --set samples=1281167 --set size=0.11M --json out.json
    lmdbio simulate --mode all --set ranks=36,1152,9216 --html modes.html
    lmdbio simulate train_lmdb --mode prov,coal,stag --nodes 16 --ranks 256

PATH is a data set: records lie as they do there, and the file system has the rates that lmdbio
tune measured. With --epochs one Reader's job is simulated. Records come from where
reader.sources() would say. CLUSTER.toml has the keys of --set, with tiers as tables:

\b
    compute = "400M"                    # a second, of each node
    file_system.rate = {1 = 66, 8 = 326}    # of all clients together
    [tier1]
    capacity = "64G"
    rate = "20G"

With --mode the keys are others: ranks, ranks_per_node, roots, samples, size, batch,
iterations, assignment, barrier; servers, server_rate, out_of_order and more of a store.

Sizes are in M (1 G is 1,024 M), rates in M a second; other values are of the thesis' cluster.
"""


@click.command(help=HELP)
@click.argument("sources", metavar="[CLUSTER.toml] [PATH]", type=PATH, nargs=-1)
@click.option(
    "--scenario",
    type=click.IntRange(1, 4),
    default=1,
    show_default=True,
    help="Begin with the data set and training of this scenario: it fits a node's memory (1), its "
    "tiers (2), the tiers of all nodes (3), or none of these (4).",
)
@click.option(
    "--mode",
    "modes",
    type=modes_named,
    metavar="NAME,...",
    help=f"Simulate no training, but how LMDBIO's modes read: all, or of {', '.join(MODES)}.",
)
@click.option(
    "--workload", type=click.Choice(list(model.WORKLOADS)), default="cifar10-large",
    show_default=True, help="With --mode: the paper's data set and job to begin with.",
)  # fmt: skip
@click.option(
    "--store", type=click.Choice(list(model.STORES)),
    help="With --mode: file system to read from: bebop, which the LMDBIO paper measured, or the "
    "model of the benchmarks.",
)  # fmt: skip
@click.option(
    "--policy",
    "policies",
    default="all",
    show_default=True,
    type=policies_named,
    metavar="NAME,...",
    help=f"Simulate these: {', '.join(one.name for one in model.POLICIES)}.",
)
@click.option(
    "--semantics",
    type=click.Choice(("authors", "physical")),
    help="authors: the thesis as its printed figures need it (of scenarios by default); "
    "physical: as Readers run, where nothing that nodes share gives more than it has (of your own "
    "clusters and data sets by default).",
)
@click.option(
    "--set",
    "settings",
    type=setting,
    multiple=True,
    metavar="KEY=VALUE[,VALUE...]",
    help="Change a value; several values give a simulation each.",
)
@click.option(
    "--cache", type=cache_words, metavar="NAME=VALUE,...",
    help="Tiers of each node: memory=8G, disk=FOLDER, disk_bytes=100G; for a Reader's job also "
    "warm=demand|preload|window, placement=home|mixed|first|frequency.",
)  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, RANKS_MAX), help="Number of nodes.")
@click.option(
    "--ranks", type=click.IntRange(1, RANKS_MAX),
    help="Number of ranks; the ranks of a node share its tiers.",
)  # fmt: skip
@click.option(
    "--epochs", type=click.IntRange(1, EPOCHS_MAX),
    help="Simulate a Reader's job on PATH for N epochs: its order, owners and sources. "
    f"Each of the three options below does so, too.  [default: {EPOCHS}]",
)  # fmt: skip
@click.option(
    "--shuffle", type=shuffle_name, metavar="ORDER",
    help="Order of a Reader's job: global, group or groups:SIZE, window or windows:CHUNKxCOUNT, "
    "runs:LENGTH.  [default: the file's order; of several policies global]",
)  # fmt: skip
@click.option(
    "--assignment", type=click.Choice(("strided", "local")),
    help="Part of each batch that a rank takes in a Reader's job: its positions, or what its root "
    "caches.  [default: strided]",
)  # fmt: skip
@click.option(
    "--batch-size", type=click.IntRange(1, BATCH_MAX),
    help="Number of records of all ranks in an iteration of a Reader's job.  "
    f"[default: {BATCH}]",
)  # fmt: skip
@click.option("--json", "target", metavar="FILE", help="Write JSON; - is standard output.")
@click.option("--html", "page_file", type=OUTPUT, metavar="FILE", help="Write a page of drawings.")
@click.pass_context
def simulate(
    context: click.Context,
    /,
    sources: tuple[Path, ...],
    scenario: int,
    modes: list[model.Mode] | None,
    workload: str,
    store: str | None,
    policies: list[model.Policy],
    semantics: str | None,
    settings: Settings,
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
    target: str | None,
    page_file: str | None,
    **of_reader: Any,
) -> None:
    """Simulate, and write what was found."""
    asked = ReaderWords(**of_reader)
    refuse_contradictions(context, sources, of_modes=modes is not None)
    refuse_targets(page_file, target)
    cases = combinations(settings)
    if modes is not None:
        job, where, words = reading_of(sources, workload, store, nodes, ranks)
        runs, lines = run_modes(job, where, modes, cases), [words]
        title = ", ".join(path.name for path in sources) or f"workload {workload}"
        if not any(key.startswith("ranks") for key, _ in settings):
            title += f", {job.ranks:,} ranks on {job.nodes:,} nodes"
    else:
        compared = policies if is_given(context, "policies") or not asked.are_given else None
        runs, lines, title = simulate_jobs(
            scenario, asked, sources, cache, nodes, ranks, compared, semantics, cases
        )
    changed = {key for key, _ in settings}
    for line in lines:
        if not (line.startswith("file system") and "file_system.rate" in changed):
            click.echo(line, err=True)
    write(runs, title, target, page_file, by_epoch=asked.are_given)


def simulate_jobs(
    scenario: int,
    asked: ReaderWords,
    sources: Sequence[Path],
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
    policies: Sequence[model.Policy] | None,
    semantics: str | None,
    cases: Sequence[dict[str, str]],
) -> tuple[list[Run], list[str], str]:
    """Return the run of each case, sentences on where rates come from, and a title.

    Args:
        scenario: number of the scenario to begin with.
        asked: words of a Reader's job.
        sources, cache, nodes, ranks: arguments of ``scenario_of``.
        policies: policies to compare; None: the Reader's words count.
        semantics: "authors", the thesis' model, or "physical", as Readers run; None: what suits.
        cases: values that are changed in each case.
    """
    if semantics == "authors" and asked.are_given:
        raise click.UsageError("--semantics authors is the thesis' model: a Reader's job has none")
    plain = cache and replace(cache, placement="home", warm="demand")
    if policies is not None and cache != plain:
        raise ValueError("simulate: placement and warm are the policies' (lmdbio plan takes them)")
    base = model.SCENARIOS[scenario]
    if asked.are_given:
        base = replace(base, training=model.Training(EPOCHS, BATCH))
    chosen, words = scenario_of(base, sources, cache, nodes, ranks)
    epochs, batch = chosen.training.epochs, chosen.training.batch
    training = model.Training(asked.epochs or epochs, asked.batch_size or batch)
    chosen = replace(chosen, training=training)
    title = ", ".join(path.name for path in sources) or f"scenario {scenario} of the HDMLP thesis"
    of_thesis = semantics is None and not sources and not asked.are_given
    if policies is not None and (of_thesis or semantics == "authors"):
        return run_policies(chosen, policies, cases), words, f"{title}, semantics authors"
    runs, job = run_readers(chosen, asked, cache, ranks, policies, cases)
    return runs, words, f"{title}: {job}"


def is_given(context: click.Context, name: str) -> bool:
    """Whether an option was written."""
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def refuse_contradictions(
    context: click.Context, sources: Sequence[Path], *, of_modes: bool
) -> None:
    """Refuse options that the other kind of simulation has, and a second data set."""
    data = [path for path in sources if not is_cluster(path)]
    if len(data) > 1:
        raise click.UsageError(f"{data[0]} and {data[1]} are two data sets: take one")
    if data and is_given(context, "workload"):
        raise click.UsageError(f"--workload and {data[0]} are two data sets: take one")
    for name in OF_POLICIES if of_modes else OF_MODES:
        if is_given(context, name):
            option = next(one.opts[0] for one in context.command.params if one.name == name)
            raise click.UsageError(
                f"{option} is of policies: it has no meaning with --mode"
                if of_modes
                else f"{option} is of modes: it needs --mode"
            )
