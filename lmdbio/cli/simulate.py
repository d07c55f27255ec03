"""``lmdbio simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.table import Table

from lmdbio import simulate as model
from lmdbio.cli.options import OUTPUT, PATH
from lmdbio.cli.output import bar
from lmdbio.cli.plan_cache import CacheWords
from lmdbio.cli.simulate_job import changed_by, is_cluster, scenario_of
from lmdbio.cli.simulate_modes import MODES, modes_of, simulate_modes
from lmdbio.cli.simulate_output import (
    Run,
    Setting,
    Settings,
    combinations,
    refuse_targets,
    tell,
)
from lmdbio.cli.simulate_reader import (
    BATCH,
    EPOCHS,
    ReaderWords,
    epochs_table,
    reader_options,
    simulate_readers,
)
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import RANKS_MAX
from lmdbio.simulate import SOURCES


def policies_of(ctx: click.Context, param: click.Parameter, value: str) -> list[model.Policy]:
    """Return the policies of a list with commas, or all."""
    if value.casefold() == "all":
        return list(model.POLICIES)
    try:
        return [model.Policy.named(name.strip()) for name in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def table_of(found: Sequence[model.Outcome]) -> Table:
    """Draw what each policy comes to, beside the bound: the time without any waiting."""
    table = Table(box=None, pad_edge=False)
    for name in ("policy", "seconds", "x bound", "init s", "stall s", *SOURCES):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for one in found:
        if one.seconds is None:
            table.add_row(one.policy, *"-------")
            continue
        reads = [_reads(one, source) for source in SOURCES]
        table.add_row(
            one.policy,
            f"{one.seconds:,.2f}",
            f"{one.seconds / one.bound_seconds:.2f}",
            f"{one.init_seconds:,.1f}",
            f"{one.stall_seconds:,.1f}",
            *(f"{count:,}" if one.reads else "-" for count in reads),
        )
    return table


def _reads(one: model.Outcome, source: str) -> int:
    """Return the records from a source; a node's own disk is its own."""
    names = ("own", "disk") if source == "own" else (source,)
    return sum(epoch.get(name, 0) for epoch in one.reads or () for name in names)


@click.command(name="simulate")
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
    callback=modes_of,
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
    callback=policies_of,
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
    type=Setting(),
    multiple=True,
    metavar="KEY=VALUE[,VALUE...]",
    help="Change a value; several values give a simulation each.",
)
@click.option(
    "--cache", type=CacheWords(), metavar="NAME=VALUE,...",
    help="Tiers of each node: memory=8G, disk=FOLDER, disk_bytes=100G; for a Reader's job also "
    "warm=demand|preload|window, placement=home|mixed|first|frequency.",
)  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, RANKS_MAX), help="Number of nodes.")
@click.option(
    "--ranks", type=click.IntRange(1, RANKS_MAX),
    help="Number of ranks; the ranks of a node share its tiers.",
)  # fmt: skip
@reader_options
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
    """How long would a training take, with which way of loading its data?

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
    asked = ReaderWords(**of_reader)
    refuse_contradictions(context, sources, of_modes=modes is not None)
    refuse_targets(page_file, target)
    if modes is not None:
        simulate_modes(sources, workload, store, nodes, ranks, modes, settings, target, page_file)
        return
    compared = policies if is_given(context, "policies") or not asked.are_given else None
    made = simulate_jobs(
        scenario, asked, sources, cache, nodes, ranks, compared, semantics, settings
    )
    tell_all(*made, settings, target, page_file, by_epoch=asked.are_given)


def simulate_jobs(
    scenario: int,
    asked: ReaderWords,
    sources: Sequence[Path],
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
    policies: Sequence[model.Policy] | None,
    semantics: str | None,
    settings: Settings,
) -> tuple[list[Run[model.Outcome]], list[str], str]:
    """Return what each combination of settings comes to, where rates come from, and a title.

    Args:
        scenario: number of the scenario to begin with.
        asked: words of a Reader's job.
        sources, cache, nodes, ranks: arguments of ``scenario_of``.
        policies: policies to compare; None: the Reader's words count.
        semantics: "authors", the thesis' model, or "physical", as Readers run; None: what suits.
        settings: values that are changed.
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
        return simulate_policies(chosen, policies, settings), words, f"{title}, semantics authors"
    runs, job = simulate_readers(chosen, asked, cache, ranks, policies, settings)
    return runs, words, f"{title}: {job}"


def simulate_policies(
    chosen: model.Scenario, policies: Sequence[model.Policy], settings: Settings
) -> list[Run[model.Outcome]]:
    """Return what policies come to by the thesis' model, with each combination of settings."""
    cases, runs = combinations(settings), list[Run[model.Outcome]]()
    jobs = [changed_by(chosen, case) for case in cases]
    for job in jobs:
        job.check()
    with bar("simulate") as advance:
        for case, job in zip(cases, jobs, strict=True):
            found: list[model.Outcome] = []
            for one in model.run(job, policies):
                found.append(one)
                done = len(runs) * len(policies) + len(found)
                advance(done, len(cases) * len(policies), "policies")
            runs.append(Run(case, found))
    return runs


def tell_all(
    runs: list[Run[model.Outcome]],
    words: Sequence[str],
    title: str,
    settings: Settings,
    target: str | None,
    page_file: str | None,
    *,
    by_epoch: bool,
) -> None:
    """Tell what was found.

    Args:
        runs: runs that were simulated.
        words: sentences on where their rates come from.
        title: title of tables and page.
        settings: values that were changed.
        target, page_file: files to be written.
        by_epoch: whether the epochs of a Reader's job are told, where it is the only one.
    """
    changed = {key for key, _ in settings}
    for line in words:
        if not (line.startswith("file system") and "file_system.rate" in changed):
            click.echo(line, err=True)
    found = runs[0].found
    by_epoch = by_epoch and len(found) == 1 and found[0].epochs is not None
    drawn = epochs_table if by_epoch else table_of
    tell(runs, target, title, table_of=drawn, reasons_of=reasons_of, as_json=as_json)
    if page_file is not None:
        from lmdbio.cli.simulate_page import page  # loads the room of benchmarks

        Path(page_file).write_text(page(runs, title), encoding="utf-8")
        click.echo(page_file, err=target == "-")


#: Options that are of no use with --mode, and of none without it.
OF_POLICIES = ("scenario", "policies", "semantics", "cache", *ReaderWords._fields)
OF_MODES = ("workload", "store")


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


def reasons_of(found: Sequence[model.Outcome]) -> dict[str, str | None]:
    return {one.policy: one.reason for one in found}


def as_json(found: Sequence[model.Outcome]) -> dict[str, Any]:
    """Return what each policy comes to, by its name."""
    told = {}
    for one in found:
        values = asdict(one)
        del values["policy"], values["stalls"]
        counts, sizes, epochs = (values.pop(name) for name in ("reads", "bytes", "epochs"))
        told[one.policy] = {**values, "counts": counts, "supported": one.reason is None}
        if epochs is not None:
            names = ("seconds", "stall_seconds")
            told[one.policy]["bytes"] = sizes
            told[one.policy]["epochs"] = [dict(zip(names, e, strict=True)) for e in epochs]
    return {"policies": told}
