"""``lmdbio simulate``."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from lmdbio import simulate as model
from lmdbio.cli.output import OUTPUT, PATH, bar, plain, wide_console
from lmdbio.cli.plan_cache import CacheWords
from lmdbio.cli.simulate_job import scenario_of
from lmdbio.planning.cache import Cache
from lmdbio.simulate import SOURCES

Settings = list[tuple[str, list[str]]]


class Setting(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A key and one value or several: ``tier1.capacity=10G,20G``."""

    name = "setting"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[str]]:
        key, equals, values = str(value).partition("=")
        if not equals or not all(part.strip() for part in values.split(",")):
            self.fail(f"{value!r} is not KEY=VALUE or KEY=VALUE,VALUE", param, ctx)
        return key.strip(), [part.strip() for part in values.split(",")]


def policies_of(ctx: click.Context, param: click.Parameter, value: str) -> list[model.Policy]:
    """Return the policies of a list with commas, or all."""
    if value.casefold() == "all":
        return list(model.POLICIES)
    try:
        return [model.Policy.named(name.strip()) for name in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def table_of(found: list[model.Outcome]) -> Table:
    """Draw what each policy comes to, beside the bound: the time without any waiting."""
    table = Table(box=None, pad_edge=False)
    for name in ("policy", "seconds", "x bound", "init s", "stall s", *SOURCES):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for one in found:
        if one.seconds is None:
            table.add_row(one.policy, *"-------")
            continue
        reads = [sum(epoch[source] for epoch in one.reads or ()) for source in SOURCES]
        table.add_row(
            one.policy,
            f"{one.seconds:,.2f}",
            f"{one.seconds / one.bound_seconds:.2f}",
            f"{one.init_seconds:,.1f}",
            f"{one.stall_seconds:,.1f}",
            *(f"{count:,}" if one.reads else "-" for count in reads),
        )
    return table


def refuse_target(file: Path) -> None:
    """Raise OSError where a file cannot be written; rather now than after the work."""
    folder = file.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    if file.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise PermissionError(errno.EACCES, "it cannot be written", str(file))


def combinations(settings: Settings) -> list[dict[str, str]]:
    """Return every combination of the values."""
    keys = [key for key, _ in settings]
    if len(set(keys)) < len(keys):
        raise click.UsageError("--set has the same key twice; its values go into one, with commas")
    return [
        dict(zip(keys, one, strict=True)) for one in itertools.product(*(v for _, v in settings))
    ]


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
    type=click.Choice(list(model.SEMANTICS)),
    default="authors",
    show_default=True,
    help="Read the thesis as its printed figures need it, or as its text stands.",
)
@click.option(
    "--set",
    "settings",
    type=Setting(),
    multiple=True,
    metavar="KEY=VALUE[,VALUE...]",
    help="Change a value; several values are simulated one after the other.",
)
@click.option(
    "--cache", type=CacheWords(), metavar="NAME=VALUE,...",
    help="Tiers of each node: memory=8G, disk=FOLDER, disk_bytes=100G.",
)  # fmt: skip
@click.option("--nodes", type=click.IntRange(1), help="How many nodes there are.")
@click.option(
    "--ranks", type=click.IntRange(1),
    help="How many ranks there are; those of a node share what it holds.",
)  # fmt: skip
@click.option("--json", "target", metavar="FILE", help="Write JSON; - is standard output.")
@click.option("--html", "page_file", type=OUTPUT, metavar="FILE", help="Write a page of drawings.")
def simulate(
    sources: tuple[Path, ...],
    scenario: int,
    policies: list[model.Policy],
    semantics: str,
    settings: Settings,
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
    target: str | None,
    page_file: str | None,
) -> None:
    """How long would a training take, with which way of loading its data?

    \b
    Examples:
        lmdbio simulate --scenario 3 --html simulated.html
        lmdbio simulate --scenario 3 --policy hdmlp --set tier1.capacity=10G,20G,40G
        lmdbio simulate cluster.toml train_lmdb --set epochs=3 --set batch=256
        lmdbio simulate train_lmdb --cache memory=8G --nodes 4 --ranks 16
        lmdbio simulate cluster.toml --set samples=1281167 --set size=0.11M --json out.json

    PATH is a data set: its records have the sizes that they have there, and its file system the
    rates that lmdbio tune measured. CLUSTER.toml has the same keys as --set, tiers as tables:

    \b
        nodes = 8
        compute = "400M"                    # a second, of each node
        file_system.rate = {1 = 66, 8 = 326}    # of all clients together
        [tier1]
        capacity = "64G"
        threads = 2
        rate = "20G"

    Sizes are in M, rates in M per second; 1 G is 1,024 M. The other values are those of the
    cluster of the HDMLP thesis. Records are counted where they came from: own tiers, a peer, the
    file system.
    """
    chosen, words = scenario_of(model.SCENARIOS[scenario], sources, cache, nodes, ranks)
    cases = combinations(settings)
    jobs = [changed_by(chosen, case) for case in cases]
    for file in filter(None, (page_file, target if target != "-" else None)):
        refuse_target(Path(file))
    runs = run_all(cases, jobs, policies, model.SEMANTICS[semantics])
    names = [path.name for path in sources] or [f"scenario {scenario} of the HDMLP thesis"]
    title = f"{', '.join(names)}, semantics {semantics}"
    changed = {key for case in cases for key in case}
    for line in words:
        if not (line.startswith("file system") and "file_system.rate" in changed):
            click.echo(line, err=True)
    tell(runs, target, title)
    if page_file is not None:
        from lmdbio.cli.simulate_page import page  # loads the room of benchmarks

        Path(page_file).write_text(page(runs, title), encoding="utf-8")
        click.echo(page_file, err=target == "-")


def changed_by(scenario: model.Scenario, case: Mapping[str, str]) -> model.Scenario:
    """Return a scenario with other values, which can be simulated.

    Raises:
        ValueError: it cannot.
    """
    for key, value in case.items():
        scenario = model.changed(scenario, key, value)
    scenario.check()
    return scenario


def run_all(
    cases: list[dict[str, str]],
    jobs: list[model.Scenario],
    policies: list[model.Policy],
    semantics: model.Semantics,
) -> list[dict[str, Any]]:
    """Return the outcomes of each case, beside the values that it has changed."""
    runs: list[dict[str, Any]] = []
    with bar("simulate") as advance:
        for case, job in zip(cases, jobs, strict=True):
            found: list[model.Outcome] = []
            for one in model.run(job, policies, semantics, advance):
                found.append(one)
                done = len(runs) * len(policies) + len(found)
                advance(done, len(cases) * len(policies), "policies")
            runs.append({"set": case, "found": found})
    return runs


def tell(runs: list[dict[str, Any]], target: str | None, title: str) -> None:
    """Print tables, unless JSON goes to standard output; write JSON."""
    if target != "-":
        for run in runs:
            words = ", ".join(f"{key}={value}" for key, value in run["set"].items())
            click.echo(f"{title}{', ' + words if words else ''}\n")
            wide_console().print(table_of(run["found"]))
            click.echo()
            for one in run["found"]:
                if one.reason:
                    click.echo(f"{one.policy}: {one.reason}")
    if target is None:
        return
    told = [{"set": run["set"], "policies": as_json(run["found"])} for run in runs]
    text = json.dumps(
        plain(told[0] if len(told) == 1 else {"runs": told}), indent=2, allow_nan=False
    )
    if target == "-":
        click.echo(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")


def as_json(found: list[model.Outcome]) -> dict[str, Any]:
    """Return what each policy comes to, by its name."""
    told = {}
    for one in found:
        values = asdict(one)
        del values["policy"], values["stalls"]
        counts = values.pop("reads")
        told[one.policy] = {**values, "counts": counts, "supported": one.reason is None}
    return told
