"""What waiting costs, on a cluster that is emulated on one machine.

    python -m benchmarks.cluster.waits
    python -m benchmarks.cluster.waits --parts cpu --seconds 5 --json out.json
    python -m benchmarks.cluster.waits --parts hops --mpiexec mpiexec,/opt/openmpi/bin/mpiexec

Three parts:

    overlap   how much of reading shows beside a computation that takes longer: ranks sleep after
              each batch for 1.2, 2 and 4 times what its reading takes alone. Cold: on the
              modelled parallel file system, a mount for each node, and on this machine's own
              storage. One rank with its root, and two ranks on two nodes; below 1 % must show
              where ranks and roots are no more than there are cores
    cpu       what a root's filling thread takes of a core while it waits for a slot (its rank
              computes and uses none up), for its turn, for DM's cursor; and what a rank that is
              no root takes in next() while no block comes. Letters between roots are held back to
              make them wait (--away): below 5 % and 0.5 %
    hops      how long a token is on its way from root to root, while the ranks' main threads wait
              in next(), sleep, or compute in Python; with every MPI of --mpiexec

What is waited for is small and, but for the overlap, in memory: only waiting is measured. However
it ends, nothing stays mounted or running.

The exit status is 0 if all bounds were kept, 1 if one was not, 69 if this machine lacks something
(one line says what), 70 if a step failed, 128 and the signal's number if it was interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.cluster import cluster
from benchmarks.cluster.judged import Verdict, summaries
from benchmarks.cluster.run import MIB, prepare, words_of
from benchmarks.cluster.sweep import SETS
from benchmarks.cluster.table import verdict_table
from benchmarks.cluster.waited import HEADS, Case, judge, row
from benchmarks.pfs import pfs
from lmdbio.bench import measure, processes
from lmdbio.planning.mode import ENGINES

WAITER = "benchmarks.cluster.waiter"
PARTS = ("overlap", "cpu", "hops")
MODEL, LOCAL = "modelled store", "own storage"
STORES = {"model": MODEL, "local": LOCAL}
#: Ranks and nodes: of an overlap; of roots that wait, each with a rank that is none; of hops.
OVERLAP_SHAPES, CPU_RANKS_PER_NODE, HOP_NODES = ((1, 1), (2, 2)), 2, (2, 4)
#: Of each rank in an iteration of an overlap: so much that it takes some tens of ms, of which
#: handing out a batch, 0.2 ms after a sleep, is little.
OVERLAP_BYTES = {"model": 6 * MIB, "local": 64 * MIB}
#: How many times as much this machine's own storage is asked for.
LOCAL_TIMES = 8
#: Of each rank in an iteration of the other parts.
PACE_BYTES = 256 * 1024
#: The same where letters are held back.
LETTER_BYTES = 64 * 1024
#: A root that does not know yet how long a round takes has little patience, and reads out of turn.
ROUNDS_BEFORE = 3
#: Of the time that a token is away.
CURSOR_SHARE = 1.5


@dataclass(slots=True)
class Measured:
    """A case and what its rounds told.

    Attributes:
        mpiexec: that started its ranks.
        error: of the ranks; they ended.
    """

    case: Case
    mpiexec: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


# --- the command line ----------------------------------------------------------------------


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.waits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # fmt: off
    add = parser.add_argument
    add("--parts", default="all", metavar="PARTS", help=f"of {','.join(PARTS)}, or all")
    add("--sets", default="192k,3k", metavar="SETS", help=f"of an overlap: of {','.join(SETS)}")
    add("--stores", default="model,local", metavar="S,...",
        help=f"of an overlap: of {','.join(STORES)}")
    add("--factors", default="1.2,2,4", metavar="F,...",
        help="of an overlap: what computing takes of what reading takes (1.2,2,4)")
    add("--engine", default="", choices=ENGINES, metavar="E",
        help=f"that all read with, instead of the modes' own: of {','.join(ENGINES)}")
    add("--slots", type=int, default=3, metavar="N", help="of the window, of every Reader (3)")
    add("--nodes", type=int, default=4, metavar="N", help="whose roots wait (4)")
    add("--seconds", type=float, default=4.0, metavar="S",
        help="of each look at CPU and hops (4); shorter ones are less sure")
    add("--settle", type=float, default=1.0, metavar="S",
        help="of each Reader's life before that, and some rounds of what is held back (1)")
    add("--away", type=float, default=0.06, metavar="S",
        help="how long a token that is held back at each root takes to come round, where turns "
        "are waited for; a cursor takes 1.5 of that. A root has patience for some rounds, "
        "0.25 to 2 s, and 1 s for a cursor (0.06)")
    add("--user-ms", type=float, default=20.0, metavar="MS",
        help="how long ranks sleep, or compute, after a batch, where hops are timed (20)")
    add("--mpiexec", default="", metavar="PATH,...",
        help="that start the ranks of hops, each in turn, the first one all others "
        "(the one beside this Python, or in PATH)")
    add("--only", action="append", default=[], metavar="TEXT",
        help="those cases alone whose 'PART: SHAPE, STORE; NAME' has this, or one of these")
    add("--rounds", type=int, default=3, metavar="N", help="of each (3)")
    add("--mib", type=int, default=128, metavar="N",
        help="that an overlap reads from the modelled store; of this machine's own, eight times "
        "as much, which is the size of each data set's file (128)")
    add("--data", type=Path, default=Path("cluster-data"), metavar="FOLDER",
        help="of the data sets; kept, and reused (cluster-data)")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help=f"another constant of the model; x2 is twice the usual: {' '.join(pfs.constants())}")
    add("--limit-seconds", type=float, default=120.0, help="a longer run has failed (120)")
    add("--json", type=Path, metavar="FILE", help="everything, rank by rank")
    # fmt: on
    asked = parser.parse_args(words)
    try:
        settle(asked)
    except ValueError as error:
        parser.error(str(error))
    return asked


def settle(asked: argparse.Namespace) -> None:
    """Words to values.

    Raises:
        ValueError: one of them makes no sense.
    """
    asked.parts = words_of(PARTS, asked.parts)
    asked.sets = words_of(tuple(SETS), asked.sets)
    asked.stores = words_of(tuple(STORES), asked.stores)
    asked.factors = tuple(float(word) for word in asked.factors.split(","))
    asked.constants = pfs.constants(asked.set)
    usual = processes.mpiexec() or "mpiexec"
    asked.mpiexec = tuple(asked.mpiexec.split(",")) if asked.mpiexec else (usual,)
    positive = (asked.seconds, asked.away, asked.user_ms, asked.rounds, asked.mib)
    if min(*asked.factors, *positive) <= 0 or asked.settle < 0:
        raise ValueError("numbers are above 0")
    if min(asked.nodes, asked.slots) < 2:
        raise ValueError("there are at least 2 nodes, and 2 slots")


# --- cases ---------------------------------------------------------------------------------


def records_of(dataset: str, size: int) -> int:
    """Records of about so many bytes together."""
    return max(1, size // SETS[dataset].value_bytes)


def overlap_cases(asked: argparse.Namespace) -> Iterator[Case]:
    cores = len(os.sched_getaffinity(0))
    for store in asked.stores:
        size = asked.mib * MIB * (LOCAL_TIMES if store == "local" else 1)
        each = min(OVERLAP_BYTES[store], size // 16)
        for ranks, nodes in OVERLAP_SHAPES:
            for dataset in asked.sets:
                batch = ranks * records_of(dataset, each)
                run = {
                    "kind": "overlap",
                    "dataset": dataset,
                    "mode": "coal" if nodes == 1 else "stag",
                    "tokens": 0 if nodes == 1 else 1,
                    "block_iterations": 0,
                    "batch": batch,
                    "assignment": "strided",
                    "iterations": max(2, size * 9 // 10 // (batch * SETS[dataset].value_bytes)),
                }
                for factor in (0.0, *asked.factors):
                    words = f"compute {factor:g} x I/O" if factor else "no compute"
                    yield Case(
                        "overlap", f"{words}, {dataset}", ranks, nodes, STORES[store],
                        run | {"factor": factor}, is_bounded=ranks + nodes <= cores,
                    )  # fmt: skip


def pace(
    asked: argparse.Namespace, mode: str, ranks: int, size: int, **more: Any
) -> dict[str, Any]:
    """A run in which ranks ask for batches of 3 KB records, of so many bytes each."""
    usual = {
        "kind": "pace", "seconds": asked.seconds, "settle_s": asked.settle,
        "dataset": "3k", "mode": mode, "tokens": 1 if mode == "stag" else 0,
        "block_iterations": 0, "batch": ranks * records_of("3k", size), "assignment": "blocked",
        "user": "next", "root_user": "next", "user_s": None, "held": (), "hold_s": 0.0,
    }  # fmt: skip
    return usual | more


def cpu_cases(asked: argparse.Namespace) -> Iterator[Case]:
    """A rank that sleeps keeps its slots, so that its root and the node's other rank wait. Roots
    that wait for letters read one iteration at a time: there is little to do but to wait."""
    ranks = asked.nodes * CPU_RANKS_PER_NODE
    runs = {
        f"a slot, {mode}": pace(asked, mode, ranks, PACE_BYTES, root_user="sleep", stage="idle")
        for mode in ("coal", "stag", "dm")
    }
    for name, mode, kind, away_s in (
        ("its turn, stag", "stag", "TOKEN", asked.away),
        ("the cursor, dm", "dm", "CURSOR", CURSOR_SHARE * asked.away),
    ):
        runs[name] = pace(
            asked, mode, ranks, LETTER_BYTES, block_iterations=1, held=(kind,),
            hold_s=away_s / asked.nodes, settle_s=asked.settle + ROUNDS_BEFORE * away_s,
            stage="turn",
        )  # fmt: skip
    for name, run in runs.items():
        yield Case("cpu", name, ranks, asked.nodes, LOCAL, run)


def hop_cases(asked: argparse.Namespace) -> Iterator[Case]:
    users = {"next": "wait in next()", "sleep": "sleep", "python": "compute in Python"}
    for nodes in HOP_NODES:
        for user, words in users.items():
            run = pace(
                asked, "stag", nodes, PACE_BYTES, user=user, root_user=user,
                user_s=asked.user_ms / 1e3,
            )  # fmt: skip
            yield Case("hops", words, nodes, nodes, LOCAL, run, is_bounded=False)


CASES: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "overlap": overlap_cases,
    "cpu": cpu_cases,
    "hops": hop_cases,
}


# --- the order of events -------------------------------------------------------------------


def in_turns(made: Sequence[Measured], rounds: int) -> list[Measured]:
    """Every other round backwards, but that what computes knows what reading takes alone."""
    order: list[Measured] = []
    for turn in range(rounds):
        ordered = list(made) if turn % 2 == 0 else list(reversed(made))
        # Stable: what only reads goes first, of each round.
        order += sorted(ordered, key=lambda one: one.case.run.get("factor", 0.0) > 0)
    return order


class Waits:
    """Measures cases, launch after launch."""

    def __init__(self, asked: argparse.Namespace, folder: Path, console: Console) -> None:
        self.asked, self.folder, self.console = asked, folder, console
        self.made: list[Measured] = []

    def run(self) -> None:
        """All parts, by the same ranks where shape, store and MPI are the same."""
        for part in self.asked.parts:
            cases = [one for one in CASES[part](self.asked) if self.is_wanted(one)]
            programs = self.asked.mpiexec if part == "hops" else self.asked.mpiexec[:1]
            launches = dict.fromkeys(
                (one.store, one.ranks, one.nodes, mpi) for one in cases for mpi in programs
            )
            for store, ranks, nodes, mpi in launches:
                made = [
                    Measured(one, mpi)
                    for one in cases
                    if (one.store, one.ranks, one.nodes) == (store, ranks, nodes)
                ]
                self.made += made
                with self.store(store, nodes) as mounted:
                    self.launch(mounted, made, cluster.launcher(mpi))
                self.console.print(part_table(made))

    def is_wanted(self, case: Case) -> bool:
        line = f"{case.part}: {case}; {case.name}"
        return not self.asked.only or any(text in line for text in self.asked.only)

    @contextlib.contextmanager
    def store(self, store: str, nodes: int) -> Iterator[cluster.Store]:
        if store == MODEL:
            with cluster.modelled(self.folder, nodes, self.asked.constants) as mounted:
                yield mounted
        else:
            with cluster.local(self.folder, nodes) as mounted:
                yield mounted

    def launch(
        self, store: cluster.Store, made: Sequence[Measured], mpi: cluster.Launcher
    ) -> None:
        order = in_turns(made, self.asked.rounds)
        plan = {
            "drop_all": False,
            "engine": self.asked.engine,
            "slots": self.asked.slots,
            "runs": [dict(one.case.run) for one in order],
        }
        case = made[0].case
        with self.console.status(f"{case}: starting ranks") as status:

            def say(number: int, _seconds: float) -> None:
                now = order[min(number, len(order) - 1)].case
                status.update(f"{now}: {now.name} ({number + 1} of {len(order)})")

            done = 0
            try:
                for told in cluster.run_ranks(
                    store,
                    case.ranks,
                    plan,
                    seconds_max=self.asked.limit_seconds,
                    waiting=say,
                    program=WAITER,
                    mpi=mpi,
                ):
                    order[told["run"]].runs.append(told)
                    done += 1
                    say(done, 0.0)
            except cluster.Failed as error:
                if done < len(order):
                    order[done].error = str(error)
                raise


# --- what is told --------------------------------------------------------------------------


def part_table(made: Sequence[Measured]) -> Table:
    """The cases of one launch."""
    case = made[0].case
    out = Table(title=f"{case.part}: {case}", title_justify="left", box=SIMPLE, pad_edge=False)
    for place, head in enumerate(HEADS[case.part]):
        out.add_column(head, justify="right" if place else "left", overflow="fold")
    for one in made:
        out.add_row(*(escape(word) for word in row(one.case, one.runs)))
    return out


def verdicts(made: Sequence[Measured]) -> list[Verdict]:
    return [verdict for one in made for verdict in judge(one.case, one.runs)]


def deliver(waits: Waits, told: dict[str, Any], file: Path | None) -> list[Verdict]:
    """Shows what must hold, and writes the file that was asked for."""
    found = verdicts(waits.made)
    waits.console.print(verdict_table(summaries(found)))
    if file is not None:
        cases = [asdict(one) for one in waits.made]
        judged = [asdict(one) | {"state": one.state} for one in found]
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(told | {"verdicts": judged, "cases": cases}, indent=1)
        file.write_text(text + "\n", encoding="utf-8")
    return found


def measured(asked: argparse.Namespace, words: Sequence[str]) -> Callable[[], int]:
    console = Console(width=max(170, Console().width) if not sys.stdout.isatty() else None)

    def measure_all() -> int:
        modelled = "overlap" in asked.parts and "model" in asked.stores
        lacking = cluster.missing() if modelled else cluster.missing_mpi()
        if lacking:
            raise cluster.Missing(lacking)
        size = LOCAL_TIMES * asked.mib
        folder = asked.data / f"{size}-mib"
        for name in dict.fromkeys((*asked.sets, "3k")):
            prepare(name, folder, size, console)
        machine = asdict(measure.machine(folder))
        console.print(
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}",
            style="dim", highlight=False,
        )  # fmt: skip
        waits = Waits(asked, folder, console)
        began, begun = datetime.now(timezone.utc), time.monotonic()
        try:
            waits.run()
        finally:
            told = {
                "schema": 1,
                "began": began.isoformat(timespec="seconds"),
                "command": ["waits.py", *words],
                "seconds": time.monotonic() - begun,
                "machine": machine,
                "model": asked.constants,
            }
            found = deliver(waits, told, asked.json)
        return int(any(one.reached is False for one in found))

    return measure_all


def main(words: list[str]) -> int:
    return cluster.guarded(measured(parse(words), words), "waits-")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
