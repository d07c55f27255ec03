"""Results of the simulator, and of the arithmetic that tests/papers holds against the papers."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.papers import pictures
from benchmarks.papers.claims import PAPERS, Result, read_claims
from benchmarks.report import Verdict, judged
from lmdbio import _core, simulate
from lmdbio.bench.findings import figure
from lmdbio.page.table import Table
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job
from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import GLOBAL, Shuffle

__all__ = ["GIVES", "all_results", "check_cases"]

#: Makes a result, in any process.
Part: TypeAlias = Callable[[], Result]
#: Names of the simulator's results.
GIVES = (
    "strong", "weak", "strong-large", "weak-large", "caches-9216", "scenarios", "tiers",
    "many-nodes",
)  # fmt: skip

CASES = Path(__file__).resolve().parents[2] / "tests" / "papers" / "cases.json"
MODES = ("LMDB", "LMM", "DM", "DIO", "PROV", "COAL", "STAG")
RANKS, RANKS_QUICK = (36, 144, 576, 1152, 2304, 4608, 9216), (36, 1152, 9216)
#: Of large records, each of which is many pieces.
RANKS_LARGE = (144, 1152, 4608, 9216)
#: Records of a rank's part of a batch in weak scaling, as in the paper.
WEAK_SHARE = 2
MIB = float(1 << 20)


# --- arithmetic ----------------------------------------------------------------------------


def check_cases() -> tuple[dict[str, str], Table, list[Verdict]]:
    """Check every case of tests/papers.

    Returns:
        A sentence for each case, a table, and a verdict on each paper's.
    """
    for paper in PAPERS:  # each module notes its checks
        importlib.import_module(f"tests.papers.{paper}")
    checks = importlib.import_module("tests.papers.checks")
    papers = {name: one.paper for one in read_claims() for name in one.cases}
    told, rows, good, number = dict[str, str](), [], dict[str, int](), dict[str, int]()
    for case in json.loads(CASES.read_text(encoding="utf-8")):
        name, expected = case["id"], case["expected"]
        found = checks.CHECKS[name](case["inputs"])
        is_near = checks.near(found, expected, case["tolerance"])
        state = "within its tolerance" if is_near else "NOT within its tolerance"
        told[name] = f"{case['what']}: {brief(found)}, printed {brief(expected)}: {state} [cases]"
        rows.append((name, case["what"], brief(expected), brief(found), case["source"], state))
        paper = papers[name]
        number[paper] = number.get(paper, 0) + 1
        good[paper] = good.get(paper, 0) + is_near
    heads = ("case", "what", "printed", "here", "source", "state")
    table = Table("Numbers that papers print", heads, rows, left=heads)
    verdicts = [
        judged("public cases within their tolerance", f"{paper}, {count} cases",
               good[paper] / count, least=1.0)
        for paper, count in number.items()
    ]  # fmt: skip
    return told, table, verdicts


def brief(value: Any) -> str:
    """Return a value in a few words."""
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {brief(one)}" for key, one in value.items())[:120]
    if isinstance(value, list):
        whole = ", ".join(map(brief, value))
        return whole if len(whole) <= 80 else f"{whole[:80]}…"
    return str(value)


# --- LMDBIO's modes, to 9,216 ranks --------------------------------------------------------


def scaling(*, quick: bool) -> list[Part]:
    """Return the parts of strong and weak scaling of every mode, small records and large ones."""
    made: list[Part] = []
    for suffix, workload in (("", "cifar10-large"), ("-large", "imagenet-large")):
        if quick and suffix:
            continue
        made.append(partial(_scaled, f"strong{suffix}", workload, quick=quick))
        made.append(partial(_scaled, f"weak{suffix}", workload, quick=quick, is_weak=True))
    return made


def _scaled(name: str, workload: str, *, quick: bool, is_weak: bool = False) -> Result:
    base, seconds = simulate.WORKLOADS[workload], dict[int, dict[str, float | None]]()
    counts = RANKS_LARGE if workload == "imagenet-large" else RANKS
    for ranks in RANKS_QUICK if quick else counts:
        job = replace(base, ranks=ranks, ranks_per_node=min(ranks, base.ranks_per_node))
        if is_weak:
            job = replace(job, batch=WEAK_SHARE * ranks)
        found = simulate.run_modes(job, MODES, simulate.STORES["bebop"])
        seconds[ranks] = {mode: one.seconds for mode, one in zip(MODES, found, strict=True)}
    rows = [
        (f"{ranks:,}", *(figure(times[mode]) for mode in MODES),
         figure(over(times["LMDB"], times["STAG"])))
        for ranks, times in seconds.items()
    ]  # fmt: skip
    last = max(seconds)
    at = seconds[4608] if 4608 in seconds else seconds[last]
    factors = ", ".join(f"{mode} {figure(over(at['LMDB'], at[mode]))}" for mode in MODES[2:])
    kind = "weak" if is_weak else "strong"
    where = f"{4608 if 4608 in seconds else last:,} ranks"
    return Result(
        name,
        "simulator",
        f"{kind.capitalize()} scaling of the modes, {workload}, simulated (store bebop)",
        f"times as fast as LMDB at {where}, {kind} scaling, {workload}, simulated: {factors}",
        Table("", ("ranks", *(f"{mode}, s" for mode in MODES), "LMDB / STAG"), rows),
        picture=pictures.lines(
            f"{kind.capitalize()} scaling, {workload}", "ranks", "seconds",
            [f"{ranks:,}" for ranks in seconds],
            {mode: [times[mode] for times in seconds.values()] for mode in MODES},
        ),
    )  # fmt: skip


def over(slow: float | None, fast: float | None) -> float | None:
    """Return how many times as long one takes as the other; None: one is not known."""
    return slow / fast if slow and fast else None


# --- caches and the exchange, to 9,216 ranks -----------------------------------------------

#: ImageNet as files are, on nodes of 36 ranks, with the store that the LMDBIO paper measured.
COUNT, SIZE, BATCH, NODES = 1_281_167, 114_688, 18_432, 256
EPOCHS = 3


def with_caches(*, quick: bool) -> Result:
    """Return what memory of the nodes, and the exchange, would give at 9,216 ranks."""
    count = COUNT // 8 if quick else COUNT
    extents = np.empty(count, _core.EXTENT)
    extents["offset"] = np.arange(count, dtype=np.uint64) * SIZE + (1 << 16)
    extents["length"] = SIZE - 64
    store = simulate.STORES["bebop"]
    memory = Tier(0, 1, Curve.of(4096.0))
    environment = Environment(
        NODES, compute=1e9, preprocess=1e9, network=10_000.0, file_network=store.link_rate / MIB,
        file_system=Curve.of(store.servers * store.server_rate / MIB),
        staging=Tier(48.0, 1, Curve.of(1e9)), tiers=(memory,),
        file_request=store.out_of_order_seconds / store.servers,
    )  # fmt: skip
    share = count * SIZE // NODES
    whole, half = f"memory={2 * share}", f"memory={share // 2}"
    windows = Shuffle.named("window", SIZE)
    jobs = {
        "exact order, nothing kept": (None, GLOBAL, "strided"),
        "exact order, memory for all": (whole, GLOBAL, "strided"),
        "the same, local": (whole, GLOBAL, "local"),
        "exact order, memory for half": (half, GLOBAL, "strided"),
        "windows, nothing kept": (None, windows, "strided"),
        "windows, memory for half (mixed)": (f"{half},placement=mixed", windows, "strided"),
    }
    rows, times = [], dict[str, list[float]]()
    for words, (cache, shuffle, assignment) in jobs.items():
        kept = None if cache is None else Cache.parse(cache)
        job = Job(
            kept, BATCH, NODES, 36 * NODES, EPOCHS, shuffle, ends=True, assignment=assignment
        )
        found = simulate.run_reader(extents, job, environment, PlanOptions(65536, 4 << 20))
        times[words] = [one for one, _ in found.epochs or ()]
        last = (found.bytes or ())[-1]
        shares = (f"{last[name] / 2**30:,.1f}" for name in ("own", "peer", "file"))
        rows.append((words, *map(figure, times[words]), *shares))
    none, home = (times[words][-1] for words in list(jobs)[:2])
    heads = ("job", *(f"epoch {i}, s" for i in range(EPOCHS)),
             "own GiB", "peer GiB", "file GiB (last epoch)")  # fmt: skip
    return Result(
        "caches-9216", "simulator",
        f"Caches and the exchange at 9,216 ranks on 256 nodes: {count:,} records of 112 KiB, "
        f"batches of {BATCH:,}, store bebop, network 10 G/s",
        f"a later epoch in exact order takes {figure(none)} s from the store, {figure(home)} s "
        "out of the memory of all nodes",
        Table("", heads, rows, left=("job",), notes=(
            "Not predicted: other jobs on the same network and store, the time of MPI's own "
            "progress with 9,216 ranks, and skew of computing.",
        )),
        picture=pictures.bars(
            "Seconds of a later epoch", {words: found[-1] for words, found in times.items()}
        ),
    )  # fmt: skip


# --- the thesis' scenarios -----------------------------------------------------------------


def scenarios(*, quick: bool) -> Result:
    """Return the seconds of every policy in the thesis' four scenarios."""
    printed = {
        (case["inputs"]["scenario"], case["inputs"]["policy"]): case["expected"]
        for case in json.loads(CASES.read_text(encoding="utf-8"))
        if case["id"].startswith("003-s") and {"scenario", "policy"} <= case["inputs"].keys()
    }
    numbers = (1,) if quick else (1, 2, 3, 4)
    found = {
        number: list(simulate.run(simulate.SCENARIOS[number], simulate.POLICIES))
        for number in numbers
    }
    seconds = {(number, one.policy): one.seconds for number in numbers for one in found[number]}
    rows = []
    for policy in (one.name for one in simulate.POLICIES):
        cells = []
        for number in numbers:
            value, wanted = seconds[number, policy], printed.get((number, policy))
            text = "not possible" if value is None else figure(value, ",.5g")
            text += f" ({brief(wanted)})" if wanted is not None else ""
            cells.append(text)
        rows.append((policy, *cells))
    far = [
        abs(here / wanted - 1)
        for key, wanted in printed.items()
        if isinstance(wanted, float | int) and (here := seconds.get(key)) is not None
    ]
    heads = ("policy", *(f"scenario {number}, s (printed)" for number in numbers))
    return Result(
        "scenarios", "simulator", "Policies in the thesis' scenarios, authors' semantics",
        f"{len(far)} printed seconds that are public are met within {max(far):.1%}",
        Table("", heads, rows),
        picture="".join(
            pictures.bars(
                f"Scenario {number}", {one.policy: one.seconds for one in found[number]}
            )
            for number in numbers
        ),
    )  # fmt: skip


def tiers() -> Result:
    """Return HDMLP's seconds in scenario 3 by what its tiers hold."""
    hdmlp, disks = [simulate.Policy.named("hdmlp")], (0, 100)
    seconds = dict[str, list[float]]()
    for memory in (10, 20, 40):
        for disk in disks:
            scenario = simulate.changed(simulate.SCENARIOS[3], "tier1.capacity", f"{memory}G")
            scenario = simulate.changed(scenario, "tier2.capacity", f"{disk}G")
            (found,) = simulate.run(scenario, hdmlp)
            assert found.seconds is not None  # it runs everywhere
            seconds.setdefault(f"{memory} GiB", []).append(found.seconds)
    rows = [(name, *(figure(one, ",.5g") for one in found)) for name, found in seconds.items()]
    words = ("no disk", "100 GiB of disk")
    return Result(
        "tiers", "simulator", "HDMLP's seconds in scenario 3 by the tiers of a node",
        f"HDMLP in scenario 3: {rows[0][1]} s with 10 GiB of memory a node and no disk, "
        f"{rows[-1][-1]} s with 40 GiB and 100 GiB of disk",
        Table("", ("memory of a node", *(f"{one}, s" for one in words)), rows),
        picture=pictures.grouped(
            "Scenario 3", "memory of a node", "seconds", list(seconds),
            {word: [found[i] for found in seconds.values()] for i, word in enumerate(words)},
        ),
    )  # fmt: skip


def many_nodes(*, quick: bool) -> Result:
    """Return an epoch by nodes that share one file system, with caches and without."""
    counts = (2, 16, 64) if quick else (2, 4, 16, 64, 256)
    base, names = simulate.SCENARIOS[1], ("lower_bound", "staging_pool", "locality_aware", "hdmlp")
    policies = [simulate.Policy.named(name) for name in names]
    memory, disk = (int(tier.capacity * MIB) for tier in base.environment.tiers)
    cache = Cache(memory=memory, disk="disk", disk_bytes=disk)
    records = 64 * 256
    located = simulate.Data(records, 0.115).located(0)
    rows, every = [], list[list[float]]()
    for nodes in counts:
        job = Job(cache, 64 * nodes, nodes, nodes, 3, GLOBAL, ends=True)
        found = simulate.run_readers(
            located.extents, policies, job, base.environment, located.options, located.windows
        )
        every.append([one.seconds or 0.0 for one in found])
        rows.append((str(nodes), *map(figure, every[-1])))
    bound, without, local, clairvoyant = every[-1]
    return Result(
        "many-nodes", "simulator",
        f"Three epochs of {records:,} records of 115 KB by nodes: computing 100 M/s each, a file "
        "system of 324 M/s at most, as Readers run",
        f"on {counts[-1]} nodes three epochs take {figure(without)} s from the file system, "
        f"{figure(local)} s with locality-aware loading, {figure(clairvoyant)} s with HDMLP, and "
        f"{figure(bound)} s of computing",
        Table("", ("nodes", *(f"{name}, s" for name in names)), rows),
        picture=pictures.lines(
            "Three epochs by nodes", "nodes", "seconds", [str(nodes) for nodes in counts],
            {name: [found[i] for found in every] for i, name in enumerate(names)},
        ),
    )  # fmt: skip


def all_results(*, quick: bool) -> list[Result]:
    """Return all of the simulator's results; each is made by a process of its own."""
    parts: list[Part] = [*scaling(quick=quick), partial(with_caches, quick=quick)]
    parts.append(partial(scenarios, quick=quick))
    parts += [] if quick else [tiers]
    parts.append(partial(many_nodes, quick=quick))
    # Leaving it ends the processes, also where this one is interrupted.
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        return pool.map(_make, parts, chunksize=1)


def _make(part: Part) -> Result:
    return part()
