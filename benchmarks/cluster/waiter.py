"""The program of each rank that waits: what waiting costs, run after run of a plan.

    mpiexec -n RANKS python -m mpi4py waiter.py PLAN.json

Two kinds of runs:

    overlap   reads all iterations of a cold data set, and sleeps after each for so many times what
              an iteration's reading took when nothing was computed
    pace      ranks ask for batch after batch at a pace of their own, for some seconds, in which
              each thread's CPU time, its waking, and the letters of the roots are counted

Rank 0 writes one line of JSON for each run. Letters are seen where lmdbio sends and receives them
(``share.Mail``); there they can be held back, as on a slow network, so that roots wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import Any

from mpi4py import MPI

from benchmarks.cluster.rank import COMM, Ranks, run_plan, together
from benchmarks.cluster.waited import hops
from benchmarks.cluster.ways import FILLER
from lmdbio import share
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader

#: CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED. Source: Linux, include/linux/posix-timers_types.h.
THREAD_CLOCK = 4 | 2
NS = 1e9


# --- letters -------------------------------------------------------------------------------


@dataclass(slots=True)
class Post:
    """Sees every letter of this rank, and holds back those of some kinds.

    Attributes:
        sent, came: (kind, the other's rank, moment in ns), in order.
        held: names of kinds that are held back.
        hold_ns: for so long.
        waiting: came, and are not handed over yet: (moment, letter).
    """

    sent: list[tuple[str, int, int]] = field(default_factory=list)
    came: list[tuple[str, int, int]] = field(default_factory=list)
    held: frozenset[str] = frozenset()
    hold_ns: int = 0
    waiting: deque[tuple[int, share.Letter]] = field(default_factory=deque)

    def begin(self, held: frozenset[str], hold_s: float) -> None:
        """For a new Reader, when there is no other one's thread any more."""
        self.sent, self.came = [], []
        self.held, self.hold_ns = held, int(hold_s * NS)

    def release(self) -> None:
        """Holds nothing back any more, so that roots can say goodbye."""
        self.held = frozenset()

    def watch(self) -> None:
        """Puts itself between lmdbio and its letters."""
        send, receive = share.Mail.send, share.Mail.receive

        def seen_send(mail: share.Mail, to: int, kind: share.Kind, body: bytes) -> None:
            self.sent.append((kind.name, to, monotonic_ns()))
            send(mail, to, kind, body)

        def seen_receive(mail: share.Mail) -> share.Letter | None:
            while (letter := receive(mail)) is not None:
                held_ns = self.hold_ns if letter.kind.name in self.held else 0
                self.waiting.append((monotonic_ns() + held_ns, letter))
            is_late = bool(self.held) and self.waiting and self.waiting[0][0] > monotonic_ns()
            if not self.waiting or is_late:
                return None
            _, found = self.waiting.popleft()
            self.came.append((found.kind.name, found.sender, monotonic_ns()))
            return found

        share.Mail.send = seen_send  # type: ignore[method-assign,assignment]
        share.Mail.receive = seen_receive  # type: ignore[method-assign,assignment]


# --- clocks --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread up to a moment: CPU time, and how often it was woken."""

    cpu_s: float
    wakes: int


def cpu_seconds(thread: int) -> float:
    """CPU time of a thread of this process, exact also while it runs.

    Args:
        thread: its number in the kernel.
    """
    return time.clock_gettime(~thread << 3 | THREAD_CLOCK)


def threads() -> dict[int, Thread]:
    """All threads of this process, those of C included, by number."""
    found = {}
    for folder in Path("/proc/self/task").iterdir():
        number = int(folder.name)
        try:
            lines = (folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
            cpu_s = cpu_seconds(number)
        except OSError:  # it has ended
            continue
        switches = (line for line in lines if line.startswith("voluntary_ctxt_switches"))
        found[number] = Thread(cpu_s, int(next(switches).split()[1]))
    return found


class Meter(threading.Thread):
    """Looks at all threads at two moments, whatever these do.

    Args:
        begin_s, end_s: moments of ``time.monotonic``.

    Attributes:
        spent: by whose thread: "main", "filler" and "others" (engines', MPI's): CPU seconds and
            wakes between the two looks.
        window_s: between them.
    """

    def __init__(self, begin_s: float, end_s: float) -> None:
        super().__init__(name="meter", daemon=True)
        self.begin_s, self.end_s = begin_s, end_s
        self.spent: dict[str, dict[str, float]] = {}
        self.window_s = 0.0

    def run(self) -> None:
        names = self.names()
        time.sleep(max(0.0, self.begin_s - time.monotonic()))
        begun, before = time.monotonic(), threads()
        time.sleep(max(0.0, self.end_s - time.monotonic()))
        after, self.window_s = threads(), time.monotonic() - begun
        spent = {who: {"cpu_s": 0.0, "wakes": 0.0} for who in ("main", "filler", "others")}
        for number, now in after.items():
            who = names.get(number, "others")
            if who in spent:
                was = before.get(number, Thread(0.0, 0))
                spent[who]["cpu_s"] += now.cpu_s - was.cpu_s
                spent[who]["wakes"] += now.wakes - was.wakes
        self.spent = spent

    def names(self) -> dict[int, str]:
        known = {FILLER: "filler", self.name: "meter"}
        found = {
            one.native_id: known[one.name]
            for one in threading.enumerate()
            if one.name in known and one.native_id is not None
        }
        return found | {os.getpid(): "main"}


# --- what the user does --------------------------------------------------------------------


def compute(seconds: float) -> None:
    """Python alone, which leaves its lock to another thread only when that asks for it."""
    end, count = perf_counter() + seconds, 0
    while perf_counter() < end:
        for _ in range(200):
            count += 1


def at_once(_seconds: float) -> None:
    """The user asks for the next batch."""


USERS: Mapping[str, Callable[[float], None]] = {
    "next": at_once,
    "sleep": time.sleep,
    "python": compute,
}


# --- runs ----------------------------------------------------------------------------------


class Waiter(Ranks):
    """The ranks of one shape.

    Args:
        plan: as of ``Ranks``, without cells, and of every Reader "slots" and "engine" ("": the
            mode's); each of the runs says "kind",
            "dataset", "mode", "tokens" and "block_iterations" (0: the mode's), "batch",
            "assignment", and
            of an overlap "iterations", "factor" (0: only reads);
            of a pace "user" and "root_user" (of ``USERS``), "user_s" (None: to the end), "held"
            and "hold_s" (kinds of letters, and how long they are held back), "settle_s" (from
            making the Reader to the first look at the clocks), "seconds" (to the second).
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        #: Of an iteration, by whose data set and mode.
        self.io_s: dict[tuple[str, str], float] = {}
        self.post = Post()
        self.post.watch()

    def reader(self, run: Mapping[str, Any], iterations: int | None) -> Reader:
        mode = Mode.named(run["mode"])
        if run["tokens"]:
            mode = replace(mode, tokens=run["tokens"])
        if run["block_iterations"]:
            mode = replace(mode, block_iterations=run["block_iterations"])
        if self.plan["engine"]:
            mode = replace(mode, engine=self.plan["engine"])
        return Reader(
            self.mount / run["dataset"],
            run["batch"],
            comm=COMM,
            mode=mode,
            assignment=run["assignment"],
            iterations=iterations,
            ranks_per_node=self.per_node,
            slots=self.plan["slots"],
        )

    def perform(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """One run, by all ranks; what came of it, on rank 0."""
        self.post.begin(frozenset(run.get("held", ())), run.get("hold_s", 0.0))
        own = self.overlap(run) if run["kind"] == "overlap" else self.pace(run)
        told = COMM.gather(own | {"rank": COMM.rank, "node": COMM.rank // self.per_node})
        if told is None:
            return None
        result: dict[str, Any] = {"mpi": MPI.get_vendor()[0], "ranks": told}
        if run["kind"] == "pace":
            result["hops"] = hops([(one.pop("sent"), one.pop("came")) for one in told],
                                  told[0]["begin_ns"], told[0]["end_ns"])  # fmt: skip
        elif not run["factor"]:
            per_iteration = max(one["reading_s"] for one in told) / run["iterations"]
            self.io_s[run["dataset"], run["mode"]] = per_iteration
        return result

    def overlap(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Asks for all batches, and sleeps after each.

        The first call waits for the first block, which nothing could have hidden; what is read
        while the first batch is used, and later, could be hidden all.
        """
        known = self.io_s.get((run["dataset"], run["mode"]), 0.0)
        compute_s = run["factor"] * COMM.bcast(known)
        resident = self.make_cold(run["dataset"]) if COMM.rank == 0 else 0.0
        together()
        opening = perf_counter()
        reader = self.reader(run, run["iterations"])
        begun = perf_counter()
        waits_s = []
        for _ in range(run["iterations"]):
            asked = perf_counter()
            next(reader)
            waits_s.append(perf_counter() - asked)
            if compute_s:
                time.sleep(compute_s)
        ended = perf_counter()
        reader.close()
        stats = reader.stats()
        together()
        return {
            "open_s": begun - opening,
            "compute_s": compute_s,
            "reading_s": ended - begun,
            "waits_s": waits_s,
            "stats": asdict(stats),
            "resident": resident,
        }

    def pace(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Asks for batches until the time is over."""
        reader = self.reader(run, None)
        opened = time.monotonic()
        begin = COMM.bcast(opened + run["settle_s"])
        end = begin + run["seconds"]
        is_root = any(one.name == FILLER for one in threading.enumerate())
        meter = Meter(begin, end)
        meter.start()
        user = USERS[run["root_user"] if is_root else run["user"]]
        # A rank that never computes to the end of the window holds up the others' slots.
        user_s = end - opened if run["user_s"] is None else run["user_s"]
        while True:
            next(reader)
            user(user_s)
            if time.monotonic() >= end:
                break
        meter.join()
        closing = time.monotonic()
        self.post.release()
        reader.close()
        for thread in threading.enumerate():
            if thread.name == FILLER:  # other roots may still need it
                thread.join()
        stats = asdict(reader.stats())  # a wait is counted when it is over
        together()
        return {
            "is_root": is_root,
            "window_s": meter.window_s,
            "threads": meter.spent,
            "whole_s": closing - opened,
            "stats": stats,
            "begin_ns": int(begin * NS),
            "end_ns": int(end * NS),
            "sent": self.post.sent,
            "came": self.post.came,
        }


if __name__ == "__main__":
    run_plan(Waiter)
