"""Program: jobs over sockets, in each of which a rank is struck at a random moment.

    python struck.py SET CASES SEED [--stop SECONDS] [KIND ...]

A process that has loaded everything forks the ranks of each job: four, on two nodes of two, which
speak to each other by TCP. SET is a set of data.fixed_value, and every byte of every batch is
compared with it. A rank, or a node, is killed, interrupted or stopped from outside, or raises,
exits or destroys its process group between two batches. The others go on with the right bytes to
the end, or each of them gets a PeerError that names a struck rank, within the bounds of
docs/guides/ranks.md. They hold no descriptor and no thread any more, no file is left, and all
processes end.

Prints one line of JSON: for each kind the number of cases, what the others got, and after how many
seconds at the latest. Ends with 1 where a case was not so, and says which.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from data import fixed_value  # noqa: E402 - of the folder above

import lmdbio  # noqa: E402
from lmdbio.errors import PeerError  # noqa: E402
from lmdbio.share import meeting, sockets  # noqa: E402

RANKS, PER_NODE, BATCH = 4, 2, 8
#: Batches of a job that may end well, and the last one after which ranks strike themselves.
BATCHES, STRUCK_MAX = 80, 30
#: From the start of a job, or its first batch, to a strike from outside, at most, seconds.
STRIKE_SECONDS_MAX = 0.5
#: How long the others may take to name the rank that is struck, and one that never came, and all
#: ranks to end, seconds. (Ends of an interpreter take their time on a machine that others fill.)
NAMED_SECONDS_MAX, MEET_SECONDS = 5.0, 6.0
END_SECONDS_MAX = 180.0


class Fire(Exception):
    """Raised by a struck rank."""


class Folder:
    """A store of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, key: str, value: str) -> None:
        draft = self.folder / f"{key}-draft"
        draft.write_text(value)
        draft.rename(self.folder / key)

    def get(self, key: str) -> bytes:
        return (self.folder / key).read_bytes()

    def check(self, keys: list[str]) -> bool:
        return all((self.folder / key).exists() for key in keys)

    def delete_key(self, key: str) -> None:
        (self.folder / key).unlink()


# --- a rank -------------------------------------------------------------------------------


def held() -> tuple[int, int]:
    """Descriptors and threads of this process.

    Not those of windows that wait for a next Reader, nor the epoll of the mesh that these hold.
    """
    deadline = time.monotonic() + 5
    while True:
        open_now = []
        for fd in Path("/proc/self/fd").iterdir():
            try:
                open_now.append(os.readlink(fd))  # noqa: PTH115 - no path, but a name
            except OSError:
                continue
        windows = sum("lmdbio-window" in name or "[event" in name for name in open_now)
        counts = len(open_now) - windows, len(list(Path("/proc/self/task").iterdir()))
        if counts[1] == 1 or time.monotonic() > deadline:
            return counts
        time.sleep(0.01)


class Rank:
    """One rank of a job: what it does, and what it notes."""

    def __init__(
        self, rank: int, folder: Path, path: str, strike: Callable[[], None] | None
    ) -> None:
        self.rank, self.folder, self.path, self.strike = rank, folder, path, strike
        self.batches = 0

    def note(self, how: str, began_s: float, before: tuple[int, int]) -> None:
        waited_s = [began_s, time.monotonic()]
        gc.collect()
        text = json.dumps([how, waited_s, self.batches, before, held()])
        (self.folder / f"rank{self.rank}").write_text(text)

    def read(self, comm: Any, at: int, endless: bool, closes: bool) -> None:
        reader = lmdbio.Reader(
            self.path, BATCH, comm=comm, iterations=None if endless else BATCHES
        )
        if closes:
            with reader:
                self.loop(reader, at)
        else:
            self.loop(reader, at)
            reader.close()

    def loop(self, reader: Any, at: int) -> None:
        first, end = (self.rank * BATCH // RANKS, (self.rank + 1) * BATCH // RANKS)
        total = reader.count
        for number, batch in enumerate(reader):
            wanted = [(number * BATCH + i) % total for i in range(first, end)]
            assert batch.indices.tolist() == wanted, (number, batch.indices, wanted)
            assert [bytes(view) for view in batch] == [fixed_value(i) for i in wanted]
            self.batches += 1
            del batch
            if number == 0:
                (self.folder / "begun").touch()
            if self.strike is not None and number == at:
                (self.folder / "struck").write_text(str(time.monotonic()))
                self.strike()
            time.sleep(0.002)

    def run(self, kind: str, at: int, closes: bool) -> None:
        before, began_s = held(), time.monotonic()
        try:
            self.read_as(kind, at, closes)
        except PeerError as error:
            self.note(f"PeerError: {error}", began_s, before)
        else:
            self.note("finished", began_s, before)

    def read_as(self, kind: str, at: int, closes: bool) -> None:
        endless = kind in ENDLESS
        if kind != "destroyed":
            transport = sockets.SocketTransport(self.rank, RANKS, Folder(self.folder))
            try:
                self.read(transport, at, endless, closes)
            finally:
                if sys.exc_info()[0] in (None, PeerError):
                    for thread in set(threading.enumerate()) - {threading.current_thread()}:
                        thread.join(END_SECONDS_MAX)  # a root's tells other nodes, as at exit
                    transport.leave()
            return
        import torch.distributed as dist

        where = f"file://{self.folder}/torch"
        dist.init_process_group("gloo", init_method=where, rank=self.rank, world_size=RANKS)
        self.read(dist.group.WORLD, at, endless, closes)
        if dist.is_initialized():
            dist.destroy_process_group()


def fire() -> NoReturn:
    raise Fire("the rank is on fire")


def destroy() -> None:
    import torch.distributed as dist

    dist.destroy_process_group()


#: Calls by which a struck rank ends itself, or its group.
OWN: dict[str, Callable[[], None]] = {
    "raised": fire,
    "exited": lambda: sys.exit(3),
    "exited quietly": lambda: sys.exit(0),
    "exited at once": lambda: os._exit(3),
    "destroyed": destroy,
}
KINDS = ["killed", "node killed", "interrupted", *OWN, "stopped"]
#: Kinds after which the others cannot go on.
ENDLESS = {"killed", "node killed", "interrupted", "raised", "exited at once"}
#: Kinds after which all go on.
HARMLESS = {"stopped", "destroyed"}


# --- a case -------------------------------------------------------------------------------


class Case:
    """One job."""

    def __init__(self, path: str, kind: str, seed: str, stop_seconds: float) -> None:
        chance = random.Random(seed)
        self.path, self.kind, self.seed = path, kind, seed
        self.folder = Path(tempfile.mkdtemp(prefix="struck-"))
        struck = chance.randrange(RANKS)
        self.struck = {struck}
        if kind == "node killed":
            self.struck = set(
                range(struck // PER_NODE * PER_NODE, (struck // PER_NODE + 1) * PER_NODE)
            )
        elif kind == "destroyed":
            self.struck = set(chance.sample(range(RANKS), chance.randint(1, RANKS)))
        self.after_s = chance.random() * STRIKE_SECONDS_MAX
        self.while_reading = chance.random() < 0.6
        self.at = chance.randrange(STRUCK_MAX)
        self.closes = chance.random() < 0.7
        self.stop_seconds = stop_seconds
        self.pids: dict[int, int] = {}
        self.status: dict[int, int] = {}

    def begin(self) -> bool:
        """Fork the ranks; return whether this is one of them, which has ended its work."""
        for rank in range(RANKS):
            pid = os.fork()
            if pid == 0:
                self.be(rank)
                return True
            self.pids[rank] = pid
        return False

    def be(self, rank: int) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(self.folder / f"{name}{rank}", os.O_CREAT | os.O_WRONLY), number)
        faulthandler.enable()
        os.environ["LMDBIO_RANKS_PER_NODE"] = str(PER_NODE)
        os.environ["TMPDIR"] = str(self.folder)
        near = sockets.own_near()
        sockets.own_near = lambda: f"{near}/{rank // PER_NODE}"
        patience_s = self.stop_seconds if self.kind == "stopped" else 0
        meeting.MEET_SECONDS_MAX, meeting.WORD_SECONDS = MEET_SECONDS + patience_s, 1.0
        own = OWN.get(self.kind) if rank in self.struck else None
        Rank(rank, self.folder, self.path, own).run(self.kind, self.at, self.closes)

    def strike(self) -> float:
        """Strike from outside; return when that was."""
        if self.kind in OWN:
            return time.monotonic()
        deadline = time.monotonic() + END_SECONDS_MAX
        while self.while_reading and not (self.folder / "begun").exists():
            if time.monotonic() > deadline:
                break  # some rank waits for ever, which is found out below
            time.sleep(0.003)
        time.sleep(self.after_s)
        number = {"stopped": signal.SIGSTOP, "interrupted": signal.SIGINT}.get(
            self.kind, signal.SIGKILL
        )
        when = time.monotonic()
        for rank in self.struck:
            os.kill(self.pids[rank], number)
        if self.kind == "stopped":
            time.sleep(self.stop_seconds)
            for rank in self.struck:
                os.kill(self.pids[rank], signal.SIGCONT)
        return when

    def wait(self) -> bool:
        """Wait for all; return whether they ended in time. Else kill them."""
        deadline, again = time.monotonic() + END_SECONDS_MAX, time.monotonic() + 1
        while len(self.status) < RANKS and time.monotonic() < deadline:
            for rank, pid in self.pids.items():
                if rank not in self.status:
                    done, status = os.waitpid(pid, os.WNOHANG)
                    if done:
                        self.status[rank] = os.waitstatus_to_exitcode(status)
            if self.kind == "interrupted" and time.monotonic() > again:
                again += 1  # the first one may have come in a destructor, where Python drops it
                for rank in self.struck - self.status.keys():
                    os.kill(self.pids[rank], signal.SIGINT)
            time.sleep(0.003)
        late = self.pids.keys() - self.status.keys()
        for rank in late:
            os.kill(self.pids[rank], signal.SIGABRT)
            os.waitpid(self.pids[rank], 0)
        return not late

    def judge(self, when: float, in_time: bool) -> tuple[list[str], Counter[str], float]:
        """Return what is wrong, what the others got, and the seconds until the last one had it."""
        wrong, got, latest = [] if in_time else ["does not end"], Counter[str](), 0.0
        if (self.folder / "struck").exists():  # by itself, later than ``strike`` has returned
            when = float((self.folder / "struck").read_text())
        for rank in sorted(self.pids.keys() - (self.struck - self.own_survivors())):
            try:
                how, (began_s, told_s), batches, before, after = json.loads(
                    (self.folder / f"rank{rank}").read_text()
                )
            except (OSError, ValueError):
                wrong.append(f"rank {rank} notes nothing, and ends with {self.status.get(rank)}")
                continue
            got[how.split(":")[0]] += 1
            if self.status.get(rank) != 0:
                wrong.append(f"rank {rank} ends with {self.status.get(rank)} after {how!r}")
            if before != after:
                wrong.append(f"rank {rank} holds {after} descriptors and threads, not {before}")
            if how == "finished":
                if batches != BATCHES or self.kind in ENDLESS:
                    wrong.append(f"rank {rank} has finished after {batches} batches")
                continue
            if self.kind in HARMLESS or not any(f"rank {one} " in how for one in self.struck):
                wrong.append(f"rank {rank}: {how}")
            seconds = told_s - max(when, began_s)
            latest = max(latest, seconds)
            # Rank 0 may still come behind an address that reaches nobody, as behind none.
            is_met = not any(text in how for text in ("not come", "cannot be reached"))
            limit = NAMED_SECONDS_MAX + (0.0 if is_met else MEET_SECONDS)
            if seconds > limit:
                wrong.append(f"rank {rank} was told after {seconds:.1f} s: {how}")
        known = {
            *("torch", "begun", "struck", "lmdbio"),
            *(f"{name}{rank}" for name in ("out", "err", "rank") for rank in range(RANKS)),
        }
        left = {path.name for path in self.folder.iterdir()} - known
        return wrong + [f"left: {name}" for name in sorted(left)], got, latest

    def own_survivors(self) -> set[int]:
        return self.struck if self.kind in HARMLESS else set()

    def said(self) -> str:
        return "\n".join(
            f"--- {name}{rank}\n" + (self.folder / f"{name}{rank}").read_text()[-1500:]
            for rank in range(RANKS)
            for name in ("rank", "err")
            if (self.folder / f"{name}{rank}").exists()
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("cases", type=int)
    parser.add_argument("seed")
    parser.add_argument("--stop", type=float, default=1.0)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []])
    asked = parser.parse_args()
    kinds = asked.kinds or KINDS
    if "destroyed" in kinds:
        import torch.distributed  # noqa: F401
    lmdbio.Reader(asked.path, BATCH, iterations=1).close()  # loads the modules
    gc.freeze()  # the ranks' ends do not go through what is this process's
    report: dict[str, Any] = {}
    bad = 0
    for kind in kinds:
        total, latest_s = Counter[str](), 0.0
        for number in range(asked.cases):
            case = Case(asked.path, kind, f"{asked.seed}/{kind}/{number}", asked.stop)
            if case.begin():
                return 0
            when = case.strike()
            wrong, got, latest = case.judge(when, case.wait())
            total, latest_s = total + got, max(latest_s, latest)
            if wrong:
                bad += 1
                print(f"WRONG {case.seed}, rank {case.struck} after {case.after_s:.3f} s")
                print("\n".join(wrong), case.said(), sep="\n", flush=True)
            shutil.rmtree(case.folder)
        report[kind] = {"cases": asked.cases, "got": total, "seconds": round(latest_s, 2)}
        print(kind, report[kind], file=sys.stderr, flush=True)
    print(json.dumps({"struck": report, "bad": bad}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
