"""Random plans by which a server fails, and the law that a reader keeps whatever happens.

The law: a read gives the right bytes, or an exception of a file (``OSError``, ``lmdb.Error``) that
names its URL and a reason, and it does so within the stated time.

    python -m tests.remote.fault_plans --count 1000 [--seed 7]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from typing import Any

import lmdb
import numpy as np

from lmdbio import _core
from lmdbio.remote.http import HttpFile
from lmdbio.remote.retry import RetryPolicy
from tests.support.range_server import Asked, Fault, RangeServer

POLICY = RetryPolicy(
    connect_s=0.5,
    stall_s=0.3,
    total_s=3.0,
    attempts=4,
    backoff_s=0.01,
    backoff_s_max=0.05,
    retry_after_s_max=0.2,
)
#: A machine that does other things as well wakes a thread up late.
SLACK_S = 4.0
CONTENT = random.Random(5).randbytes(1 << 20)
PATH = "/set/data.mdb"


def _cut(rng: random.Random) -> Fault:
    return Fault(cut=rng.randrange(20_000), reset=rng.random() < 0.3)


def _stall(rng: random.Random) -> Fault:
    return Fault(cut=rng.choice([None, 0, 5_000]), stall_s=rng.choice([0.05, 0.5, 20]))


def _wrong_range(rng: random.Random) -> Fault:
    told = rng.choice(["bytes 0-9/100", "bytes 5-1/2", "bites", "", "bytes 1-2/*", None])
    return Fault(headers={"Content-Range": told})


def _changed(rng: random.Random) -> Fault:
    return rng.choice(
        [
            Fault(headers={"ETag": '"other"'}),
            Fault(headers={"ETag": None, "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT"}),
            Fault(status=412),
        ]
    )


def _busy(rng: random.Random) -> Fault:
    status = rng.choice([408, 429, 500, 502, 503, 504])
    after = rng.choice([None, "0", "0.1", "1", "soon", "3600", "Fri, 27 Nov 2026 09:00:00 GMT"])
    return Fault(status=status, headers={"Retry-After": after})


def _refused(rng: random.Random) -> Fault:
    return Fault(status=rng.choice([400, 401, 403, 404, 410, 416, 418, 451, 200, 204, 304]))


def _odd(rng: random.Random) -> Fault:
    return rng.choice(
        [
            Fault(whole=True),
            Fault(refuse=True),
            Fault(delay_s=rng.choice([0.01, 0.5])),
            Fault(headers={"Content-Encoding": "gzip"}),
            Fault(headers={"Content-Length": rng.choice(["3", "x", "99999999"])}),
            Fault(headers={"Connection": "close"}),
            Fault(headers={"Content-Length": None, "Connection": "close"}),
            Fault(status=302, headers={"Location": rng.choice([None, PATH, "ftp://x/y", "/no"])}),
            Fault(status=200, headers={"Content-Range": "bytes 0-0/1"}),
        ]
    )


KINDS = (_cut, _stall, _wrong_range, _changed, _busy, _refused, _odd)


class Plan:
    """Fails some of the requests.

    Args:
        rng: what it does follows from it alone, but for the order in which requests come.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._share = rng, rng.choice([0.05, 0.3, 1.0])
        self._kinds = rng.sample(KINDS, rng.choice([1, 2, len(KINDS)]))
        self._first = rng.choice([0, 0, 1, 5])

    def __call__(self, asked: Asked) -> Fault | None:
        if asked.number < self._first or self._rng.random() >= self._share:
            return None
        return self._rng.choice(self._kinds)(self._rng)


def _reads(rng: random.Random) -> tuple[Any, _core.Memory]:
    count = rng.choice([1, 3, 12])
    reads = np.zeros(count, _core.READ)
    lengths = [rng.choice([1, 100, 4096, 100_000]) for _ in range(count)]
    memory = _core.Memory(sum(lengths))
    reads["offset"] = [rng.randrange(70_000, len(CONTENT) - length) for length in lengths]
    reads["length"] = reads["needed"] = lengths
    reads["into"] = memory.address + np.cumsum([0, *lengths[:-1]])
    return reads, memory


def _bytes_at(address: int, length: int, keep: object) -> bytes:
    return bytes(memoryview(_core.lend(address, length, keep)))


def try_plan(seed: int) -> str:
    """Read by one plan, and return what came of it.

    Raises:
        AssertionError: the law is broken.
    """
    rng, begun = random.Random(seed), time.monotonic()
    with RangeServer({PATH: CONTENT}) as server:
        server.plan = Plan(rng)
        named = f"127.0.0.1:{server.port}{PATH}"
        try:
            with _core.Engine.remote(HttpFile(server.url(PATH), POLICY), 4) as engine:
                opened = time.monotonic()
                reads, memory = _reads(rng)
                with engine.submit(reads, memory) as ticket:
                    ticket.wait()
            for read in reads:
                at, length = int(read["offset"]), int(read["length"])
                found = _bytes_at(int(read["into"]), length, memory)
                assert found == CONTENT[at : at + length], f"seed {seed}: wrong bytes at {at}"
            outcome = "read"
        except (OSError, lmdb.Error) as error:
            opened, told = begun, str(error)
            assert named in told, f"seed {seed}: {error!r} does not name the file"
            assert len(told) > len(named) + 10, f"seed {seed}: {error!r} gives no reason"
            outcome = type(error).__name__
        took = time.monotonic() - opened
        # The reads of one batch go four at a time.
        bound = 4 * POLICY.total_s + SLACK_S
        assert took <= bound, f"seed {seed}: took {took:.1f} s"
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        outcomes[try_plan(seed)] += 1
    print(f"{given.count} plans, seeds from {given.seed} on: {dict(outcomes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
