"""Stagger: measure how many roots of a job should read at a time, with the job's own ranks.

    mpiexec -n 16 lmdbio tune PATH
    torchrun --nproc-per-node 16 -m lmdbio tune PATH

Real Readers in mode "stag" read parts of the data set, with 1, 2, 4 and so on tokens, and without
turns (0). In each round every run reads as much, in another order than in the round before, and
every run reads the records after those of the run before, so that no figure comes from a cache
that another run has filled. Readers pass by the page cache where all nodes have O_DIRECT; else a
rank of each node puts the part out of it before, and a run counts only if the kernel says that
the part was gone.

Ranks that do not read sleep: they meet in steps that do not spin (``share.Job.together``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from lmdbio import _core, share
from lmdbio.errors import Error
from lmdbio.locate.open import open_record_index
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine import storage
from lmdbio.machine.calibration import Staggering, TokenSample
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.mode import Mode
from lmdbio.planning.schedule import ASSIGNMENTS
from lmdbio.provenance import data_file
from lmdbio.reader.block_size import TURN_BLOCK_BYTES_TARGET
from lmdbio.reader.reader import Reader
from lmdbio.remote import is_url
from lmdbio.tuning.job import settled
from lmdbio.tuning.tune import Progress, make_cold

__all__ = [
    "RunLength",
    "Staggered",
    "RankRun",
    "batch_size",
    "measure",
    "obstacle",
    "round_order",
    "run_seconds",
    "token_counts",
]

#: Runs with each number of tokens; and how many of them even where time is over before.
ROUNDS, ROUNDS_MIN = 5, 3
#: A rank's share of a batch, about: as training has it. Blocks hold as many batches as they need.
SHARE_BYTES = 512 << 10
#: Where records are large, a batch is no more than this part of the data set.
BATCH_PART = 8
#: A run reads so much for each root at least: four blocks of the usual size. When a run ends, the
#: roots whose turn comes last read alone, which they do not where reading goes on.
RUN_BYTES_MIN = 4 * TURN_BLOCK_BYTES_TARGET
#: Runs of a storage that is faster than time can be measured read no more for each root.
RUN_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Staggered:
    """The result of measuring turns.

    Attributes:
        staggerings: one for each assignment.
        reason: reason why there are none, else "".
        batch_size: number of records in a batch of the Readers; 0: no Reader was made.
        seconds: duration of all runs, and of the steps between them.
        bytes: size of the values that all ranks read.
    """

    staggerings: tuple[Staggering, ...] = ()
    reason: str = ""
    batch_size: int = 0
    seconds: float = 0.0
    bytes: int = 0


# --- planning: pure ------------------------------------------------------------------------


def obstacle(*, nodes: int, roots: int, is_threaded: bool) -> str:
    """Return why a job cannot measure turns; "" if it can."""
    if nodes < 2:
        return "all ranks are on one node, and turns are for roots of several"
    if roots < 2:
        return "there is one root alone"
    if not is_threaded:
        return "this MPI was initialised for one thread alone, and turns are handed on by others"
    return ""


def token_counts(roots: int) -> tuple[int, ...]:
    """Return the numbers of tokens to try: 1, 2, 4 and so on below ``roots``, and 0.

    With 0 no root waits for a turn.
    """
    return (*(1 << i for i in range((roots - 1).bit_length())), 0)


def round_order(tokens: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Return the numbers of tokens in the order of a round.

    Each round begins with the next one.
    """
    first = number % len(tokens)
    return tokens[first:] + tokens[:first]


def batch_size(ranks: int, count: int, record_bytes: float) -> int:
    """Return the records of a global batch; at least one for each rank.

    Args:
        ranks: number of ranks of the job.
        count: records of the data set.
        record_bytes: mean size of a record.
    """
    wanted = int(ranks * SHARE_BYTES / max(record_bytes, 1.0))
    return max(ranks, min(wanted, count // BATCH_PART))


class RunLength:
    """Computes how much the runs of each round read, so that all fill the time there is. Pure.

    Args:
        seconds: time for all runs.
        contestants: runs of a round.
        roots: number of roots of the job.
        batch_bytes: size of a batch, about.
        most: batches of the whole data set: a run reads nothing twice.
    """

    def __init__(
        self, seconds: float, contestants: int, *, roots: int, batch_bytes: float, most: int
    ) -> None:
        self._seconds, self._contestants = seconds, contestants
        self._roots, self._batch_bytes, self._most = roots, max(batch_bytes, 1.0), max(most, 1)
        self._rate = self._beside_s = 0.0

    def note(self, rate: float, beside_s: float) -> None:
        """Note the speed of the last run.

        Args:
            rate: bytes per second.
            beside_s: seconds that it took beside its reading, to begin and to end.
        """
        self._rate = (self._rate + rate) / 2 if self._rate else rate
        self._beside_s = max(0.0, beside_s)

    def plan(self, number: int, elapsed_s: float) -> int:
        """Return the batches that each run of a round reads.

        Args:
            number: number of the round, from 0.
            elapsed_s: time since the first run began.

        Returns:
            0: there is no time for another round.
        """
        rest_s = self._seconds - elapsed_s
        if number >= ROUNDS or (rest_s <= 0 and number >= ROUNDS_MIN):
            return 0
        share_s = rest_s / (self._contestants * (ROUNDS - number)) - self._beside_s
        wanted = min(
            max(share_s * self._rate, RUN_BYTES_MIN * self._roots), RUN_BYTES_MAX * self._roots
        )
        return max(1, min(int(wanted / self._batch_bytes), self._most))


# --- measuring -----------------------------------------------------------------------------


class RankRun(NamedTuple):
    """One rank's part in a run.

    Attributes:
        bytes: size of the values that it got.
        launched_s: time when it began to read for its team, by its node's clock; None: no root.
        ended_s: time at which it had its last batch.
    """

    bytes: int
    launched_s: float | None
    ended_s: float


def run_seconds(nodes: Sequence[Sequence[int]], parts: Sequence[RankRun]) -> float:
    """Return how long a run took: on the slowest node, whose ranks share a clock. Pure.

    Args:
        nodes: ranks of each node.
        parts: part of each rank, by rank.
    """
    spans = []
    for node in nodes:
        launched = [parts[rank].launched_s for rank in node]
        began = min(one for one in launched if one is not None)
        spans.append(max(parts[rank].ended_s for rank in node) - began)
    return max(1e-9, *spans)


def measure(
    path: str | os.PathLike[str],
    comm: Any,
    *,
    seconds: float,
    overrides: Overrides | None = None,
    progress: Progress | None = None,
) -> Staggered:
    """Measure how many tokens are best for these ranks. Collective over ``comm``; keeps nothing.

    Args:
        path: the environment's folder, or its file; may differ between nodes.
        comm: communicator, or transport, of the ranks (``share.world``).
        seconds: time for all runs of an assignment together, as the first rank says.
        overrides: depth, and sizes of requests and gaps, of the Readers; the first rank's count.
            How long a turn lasts depends on them, for it ends when the last request has begun.
        progress: function of (runs done, runs, name of the next).

    Returns:
        The figures, or why there are none; the first rank's text is for people.

    Raises:
        Error: the ranks cannot connect.
    """
    begun = time.monotonic()
    # A rank that cannot connect leaves: no other one could wait for it in a later step.
    job = share.connect(comm)
    try:
        made = _Measuring(path, job, settled(job), progress).measure(
            seconds, overrides or Overrides()
        )
        job.together(lambda: None)  # tells of an interrupt in the last wait: others would go on
    except BaseException as error:
        job.fail(error)
        if not isinstance(error, (Error, OSError, ValueError, LookupError, MemoryError)):
            raise
        made = Staggered(reason=" ".join(str(error).split()) or type(error).__name__)
    finally:
        job.free()
    return replace(made, seconds=time.monotonic() - begun)


class _Measuring:
    """Measures on one job. Each rank has one, and all ranks take the same steps."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        job: share.Job,
        ranks_per_node: int | None,
        progress: Progress | None,
    ) -> None:
        self._path, self._job, self._per_node = path, job, ranks_per_node
        self._progress = progress
        self._mode = Mode.named("stag")
        self._roots = sum(self._mode.roots(len(node)) for node in job.nodes)
        self._tokens = token_counts(self._roots)
        self._records, self._record_bytes = 0, 0.0
        self._overrides = Overrides()
        self._batch = 0
        self._start = 0  # where the next run begins
        self._bytes = 0
        #: The page cache, before each run.
        self._cleared: tuple[_core.Engine, RecordIndex] | None = None

    def measure(self, seconds: float, overrides: Overrides) -> Staggered:
        """Measure with each assignment in turn."""
        job = self._job
        lacking = obstacle(nodes=len(job.nodes), roots=self._roots, is_threaded=job.is_threaded)
        if lacking:
            return Staggered(reason=lacking)
        if is_url(self._path):
            return Staggered(reason="a server does not mind in which order it is asked")
        seconds, self._overrides = job.together(lambda: (seconds, overrides))[0]
        probed = job.together(lambda: self._probe() if job.rank == 0 else (0, 0.0))
        self._records, self._record_bytes = probed[0]
        self._batch = batch_size(job.size, self._records, self._record_bytes)
        if self._batch > self._records:
            return Staggered(reason=f"there are {self._records:,} records for {job.size} ranks")
        bypassing = all(job.together(self._has_direct))
        self._mode = replace(self._mode, engine="direct" if bypassing else "pread")
        with ExitStack() as stack:
            if not bypassing and job.node_rank == 0:
                source = stack.enter_context(self._open())
                engine = stack.enter_context(_core.Engine(data_file(self._path)))
                self._cleared = engine, source
            found = tuple(self._stagger(assignment, seconds) for assignment in ASSIGNMENTS)
        return Staggered(found, batch_size=self._batch, bytes=self._bytes)

    def _open(self) -> RecordIndex:
        return open_record_index(self._path, locate="provenance")

    def _probe(self) -> tuple[int, float]:
        """Return how many records there are, and their mean size."""
        with self._open() as source:
            return source.count, source.used_bytes / max(1, source.count)

    def _has_direct(self) -> bool:
        if self._job.node_rank:
            return True
        with _core.Engine(data_file(self._path)) as engine:
            return storage.inspect(engine, cached=False, thorough=True).direct is True

    # --- rounds

    def _stagger(self, assignment: str, seconds: float) -> Staggering:
        """Make all runs with one assignment."""
        length = RunLength(
            seconds,
            len(self._tokens),
            roots=self._roots,
            batch_bytes=self._batch * self._record_bytes,
            most=self._records // self._batch,
        )
        begun = time.monotonic()
        rates: dict[int, list[float]] = {tokens: [] for tokens in self._tokens}
        self._report(assignment, 0)
        # This run counts for no number of tokens: it brings to memory what all others need, and
        # says how fast reading is here.
        self._run(assignment, self._tokens[0], length.plan(0, 0.0), length)
        for number in range(ROUNDS):
            # As the first rank's clock says.
            planned = length.plan(number, time.monotonic() - begun)
            batches = self._job.together(partial(int, planned))[0]
            if not batches:
                break
            for done, tokens in enumerate(round_order(self._tokens, number)):
                self._report(assignment, number * len(self._tokens) + done)
                rates[tokens].append(self._run(assignment, tokens, batches, length))
        samples = tuple(TokenSample(tokens, tuple(each)) for tokens, each in rates.items())
        return Staggering(len(self._job.nodes), self._roots, assignment, time.time(), samples)

    def _report(self, assignment: str, done: int) -> None:
        """Report progress, where the caller wants it."""
        if self._progress is not None:
            runs = ROUNDS * len(self._tokens)
            place = ASSIGNMENTS.index(assignment) * runs
            self._progress(place + done, runs * len(ASSIGNMENTS), "turns")

    # --- one run

    def _run(self, assignment: str, tokens: int, batches: int, length: RunLength) -> float:
        """Read the next part of the data set, all ranks together; return bytes per second."""
        begun = time.monotonic()
        self._job.together(lambda: self._clear(batches))
        parts = self._job.together(lambda: self._read(assignment, tokens, batches))
        self._start = (self._start + batches * self._batch) % self._records
        size, seconds = sum(one.bytes for one in parts), run_seconds(self._job.nodes, parts)
        self._bytes += size
        rate = max(size, 1) / seconds  # records may all be empty
        length.note(rate, time.monotonic() - begun - seconds)
        return rate

    def _read(self, assignment: str, tokens: int, batches: int) -> RankRun:
        """Read this rank's part of a run."""
        with Reader(
            self._path,
            self._batch,
            comm=self._job.transport and self._job.transport.group,
            mode=replace(self._mode, tokens=tokens),
            assignment=assignment,
            start=self._start,
            iterations=batches,
            ranks_per_node=self._per_node,
            depth=self._overrides.depth,
            gap_bytes_max=self._overrides.gap_bytes_max,
            request_bytes_max=self._overrides.request_bytes_max,
        ) as reader:
            size = sum(int(batch.lengths.sum()) for batch in reader)
            return RankRun(size, reader.launched_s, time.monotonic())

    def _clear(self, batches: int) -> None:
        """Put the part that the next run reads out of this node's page cache.

        Raises:
            NotColdError: it stays there.
        """
        if self._cleared is None:
            return
        engine, source = self._cleared
        count, end = self._records, self._start + batches * self._batch
        for first, last in ((self._start, min(end, count)), (0, end - count)):
            if last > first:
                extents = source.run(first, last)
                low = int(extents["offset"].min())
                high = int((extents["offset"] + extents["length"]).max())
                make_cold(engine, low, high - low)
