"""The ledger sums up what objects read until they are closed or die, and keeps none of them.

Goal: no count is lost or doubled, whichever way an object ends, in whichever thread or process.
Method: objects with counts of their own, and a real environment for its descriptors.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lmdbio
from lmdbio.observe import active, ledger
from lmdbio.observe.ledger import Facts, Ledger, Line
from lmdbio.observe.stats import StageCounter, Stats
from tests.support import databases


class Source:
    """Something whose reads are counted."""

    def __init__(self, requests: int) -> None:
        self.requests = requests

    def counts(self) -> Stats:
        return Stats(requests=self.requests)


class Owner:
    """An object that reads."""

    def __init__(self, requests: int, file: str = "f") -> None:
        self.source = Source(requests)
        self.counter = StageCounter(self.source.counts)
        facts = Facts("Owner", file, "pread")
        ledger.follow(self, lambda _: facts, self.counter, self.source.counts)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    book = Ledger()
    monkeypatch.setattr(active, "ledger", book)
    yield book


def only(book: Ledger) -> Line:
    (line,) = book.lines().values()
    return line


def test_without_a_ledger_nothing_is_asked() -> None:
    def fail(_: object) -> Any:
        raise AssertionError("facts were asked for")

    owner = Owner.__new__(Owner)
    ledger.follow(owner, fail)
    ledger.ended(owner)


def test_what_is_open_closed_and_dead_is_one_sum(kept: Ledger) -> None:
    held, closed, dead = Owner(1), Owner(10), Owner(100)
    ledger.ended(closed)
    ledger.ended(closed)
    del dead
    gc.collect()
    assert only(kept).stats.requests == 111
    assert only(kept).opened == 3
    del held, closed
    assert only(kept).stats.requests == 111
    assert only(kept).opened == 3


def test_what_is_read_later_counts(kept: Ledger) -> None:
    owner = Owner(1)
    owner.source.requests = 5
    owner.counter.count(records=1)
    assert only(kept).stats.requests == 5
    assert only(kept).stats.records == 1


def test_objects_in_a_circle_are_counted_when_they_are_collected(kept: Ledger) -> None:
    for _ in range(50):
        owner: Any = Owner(2)
        owner.itself = owner
    del owner
    gc.collect()
    assert only(kept).stats.requests == 100
    assert not kept._open


def test_lines_are_kept_apart_by_file(kept: Ledger) -> None:
    owners = [Owner(1, "a"), Owner(2, "b")]
    found = {Path(facts.file).name: line.stats.requests for facts, line in kept.lines().items()}
    assert found == {"a": 1, "b": 2}
    assert all(Path(facts.file).is_absolute() for facts in kept.lines())
    del owners


def test_threads_lose_nothing(kept: Ledger) -> None:
    def work() -> None:
        for _ in range(200):
            Owner(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert only(kept).stats.requests == only(kept).opened == 800


def test_a_child_counts_what_it_does_itself(kept: Ledger) -> None:
    owner, closed = Owner(10), Owner(100)
    ledger.ended(closed)
    child = os.fork()
    if not child:
        owner.source.requests += 3
        more = Owner(20)
        line = only(kept)
        os._exit(0 if (line.stats.requests, line.opened) == (23, 1) and more else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert only(kept).stats.requests == 110


def test_a_dead_environment_has_no_descriptor(kept: Ledger, tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, databases.records(10, lambda i: 100))
    env.close()
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    opened = lmdbio.open(str(tmp_path / "env"), readonly=True, lock=False)
    with opened.begin() as txn:
        assert txn.get(b"00000001")
    del opened, txn
    gc.collect()
    assert len(list(descriptors.iterdir())) == before
    assert only(kept).stats.records == 1
    (seen,) = kept.first_seen.values()
    assert seen.bytes == (tmp_path / "env" / "data.mdb").stat().st_size
