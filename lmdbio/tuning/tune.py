"""Tune: measure how one file's storage likes to be read, in bounded time and on cold data.

Each trial keeps ``depth`` requests of one size in flight for a moment, somewhere else in the
file than the others:

    random, small     requests a second: what a gap may cost
    random, medium    how many requests must be in flight
    stream            how many, and how large

through O_DIRECT, and the best of both patterns through the page cache as well. A trial that reads
through the page cache puts its ranges out of it before (POSIX_FADV_DONTNEED, those ranges only,
which needs no rights), and counts only if the kernel says that they were gone: no figure here
comes from memory. A file elsewhere is in no page cache, and is read one way. Caches on the other
side (a server's, a hypervisor's) cannot be seen.

Of memory: each of some threads copies chunks at random places of more than any processor's cache
holds into a place of its own, one at a time, as a root copies records of its cache into a slot.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError
from lmdbio.locate.refusals import refuse_cut
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, Kind, Pattern, Sample
from lmdbio.machine.choice import FAR_STREAM_DEPTH, FAR_STREAM_REQUEST_BYTES_MAX
from lmdbio.machine.storage import Storage
from lmdbio.provenance import find_data
from lmdbio.remote import open_data
from lmdbio.system.amounts import PAGE_BYTES, size_text
from lmdbio.tuning.threads import call_at_once

__all__ = [
    "SECONDS",
    "CHUNK_BYTES",
    "FLIGHT_BYTES_MAX",
    "NotColdError",
    "Progress",
    "Trial",
    "Tuning",
    "make_cold",
    "measure",
    "measure_folder",
    "measure_memory",
    "run_trial",
    "trials",
]

#: Seconds of all trials together, unless the caller says otherwise.
SECONDS = 10.0
#: Others use the storage too: each trial runs so many times, far apart.
PASSES = 2
#: A trial asks for requests in so many parts of ``depth``, and one part more.
STEPS = 4
#: One trial reads no more than this; a fast disk gives it in a fraction of its time.
TRIAL_BYTES_MAX = 512 << 20
#: Bytes in flight at once: 16 MiB requests run less deep than small ones. The trials take memory
#: for twice that.
FLIGHT_BYTES_MAX = 64 << 20
#: A file of fewer bytes says nothing of its storage.
FILE_BYTES_MIN = 1 << 20
#: The file that is made to measure a folder: no cheaper one tells a disk from its cache.
FOLDER_BYTES, FOLDER_BYTES_MIN, BLOCK_BYTES = 512 << 20, 64 << 20, 1 << 20
#: Memory: seconds for all numbers of threads together, bytes that are read, and that are copied at
#: a time: some records of a batch.
MEMORY_SECONDS, SOURCE_BYTES, CHUNK_BYTES = 0.5, 256 << 20, 1 << 20
#: Pages in the page cache that are no reason to drop a figure: one in so many
CACHED_SHARE = 50
#: The largest piece in which the page cache keeps a file.
FOLIO_BYTES = 2 << 20

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """One way of reading to measure: ``depth`` requests of one size in flight."""

    kind: Kind
    pattern: Pattern
    request_bytes: int
    depth: int

    def __str__(self) -> str:
        size = size_text(self.request_bytes)
        return f"{self.kind}, {self.pattern}, {self.depth} x {size}"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of measuring one file's storage.

    Attributes:
        storage: Storage of the file.
        calibration: the samples; None when no trial gave a figure.
        left_out: trials that gave none, and why.
        seconds: duration of all trials.
        bytes: size of what they read.
    """

    storage: Storage
    calibration: Calibration | None
    left_out: tuple[tuple[Trial, str], ...]
    seconds: float
    bytes: int


def trials(file_bytes: int, *, direct: bool) -> tuple[Trial, ...]:
    """Return the trials for a file of this size, most telling first. Pure.

    Args:
        direct: whether O_DIRECT is possible; else all goes through the page cache.
    """
    kind: Kind = "direct" if direct else "pread"
    medium, large = 128 << 10, 1 << 20
    wanted = [
        *(Trial(kind, "stream", large, depth) for depth in (8, 1, 32)),
        *(Trial(kind, "random", medium, depth) for depth in (32, 1, 8, 64)),
        *(Trial(kind, "random", PAGE_BYTES, depth) for depth in (32, 1)),
        Trial(kind, "stream", FAR_STREAM_REQUEST_BYTES_MAX, FAR_STREAM_DEPTH),
        *(Trial(kind, "stream", size << 10, 8) for size in (64, 256, 2048, 8192)),
        Trial(kind, "stream", 16 << 20, 4),
    ]
    if direct:
        wanted += [
            Trial("pread", "stream", large, 8),
            Trial("pread", "random", medium, 32),
            Trial("pread", "random", PAGE_BYTES, 32),
        ]
    # At least two places in the file for each, and what is in flight fits memory.
    return tuple(
        trial
        for trial in wanted
        if 2 * trial.request_bytes <= file_bytes
        and trial.request_bytes * trial.depth <= FLIGHT_BYTES_MAX
    )


def measure(
    path: str | os.PathLike[str],
    *,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> Tuning:
    """Measure how the storage of a data set likes to be read. Keeps nothing.

    Args:
        path: the environment's folder, or its file.
        seconds: time for all trials together.
        progress: function of (trials done, trials, name of the next).

    Raises:
        ValueError: the file is too small to tell anything, or ``seconds`` is not positive.
        InvalidError, ShortReadError: it is no LMDB file, or is cut.
        OSError, Error: it cannot be read.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")
    with open_data(find_data(path)) as engine:
        size = engine.size()
        if size < FILE_BYTES_MIN:
            raise ValueError(
                f"{engine.path}: {size} bytes are too few to measure storage with; take a data "
                "set of some hundred MiB"
            )
        refuse_cut(engine, _core.read_meta(engine))
        return _measured(engine, size, seconds, progress)


def measure_folder(
    folder: str | os.PathLike[str], *, seconds: float = SECONDS, progress: Progress | None = None
) -> Tuning:
    """Measure how the storage of a folder likes to be read, with a file of no name.

    Args:
        folder: folder for the file, which has ``FOLDER_BYTES``, or a quarter of what is free.
        seconds: time for all trials together; making the file takes its own time.
        progress: function of (trials done, trials, name of the next).

    Raises:
        ValueError: there is no room for a file that would tell anything.
        OSError, Error: the file cannot be made or read.
    """
    size = min(FOLDER_BYTES, shutil.disk_usage(folder).free // 4) // BLOCK_BYTES * BLOCK_BYTES
    if size < FOLDER_BYTES_MIN:
        raise ValueError(
            f"{os.fspath(folder)}: less than {4 * FOLDER_BYTES_MIN >> 20} MiB are free, too few "
            "to measure it with"
        )
    fd, name = tempfile.mkstemp(dir=folder, prefix=".lmdbio-tune-")
    with os.fdopen(fd, "wb", buffering=0) as file:
        try:
            engine = _core.Engine(name)
        finally:
            Path(name).unlink()  # whatever ends this process, nothing stays
        with engine:
            _fill(file, size, os.fspath(folder))
            return _measured(engine, size, seconds, progress)


def _fill(file: io.FileIO, size: int, folder: str) -> None:
    """Write bytes that nothing compresses.

    Raises:
        OSError: the folder's storage takes no more; names it.
    """
    block = memoryview(np.random.default_rng(0).bytes(BLOCK_BYTES))
    try:
        for _ in range(size // BLOCK_BYTES):
            done = 0
            while done < BLOCK_BYTES:
                done += file.write(block[done:])
        os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, f"a file to measure with: {error.strerror}", folder) from error


def _measured(
    engine: _core.Engine, size: int, seconds: float, progress: Progress | None
) -> Tuning:
    """Run all trials on a file."""
    begun = time.monotonic()
    found = storage.inspect(engine, thorough=True)
    todo = trials(size, direct=found.direct is not False) * PASSES
    done, left = _run_all(engine, todo, size, begun + seconds, progress)
    made = None
    if done:
        made = Calibration(calibration.identity(found), time.time(), tuple(done.values()))
    return Tuning(
        storage=found,
        calibration=made,
        left_out=tuple(left.items()),
        seconds=time.monotonic() - begun,
        bytes=sum(sample.bytes for sample in done.values()),
    )


def _run_all(
    engine: _core.Engine,
    todo: tuple[Trial, ...],
    size: int,
    until_s: float,
    progress: Progress | None,
) -> tuple[dict[Trial, Sample], dict[Trial, str]]:
    """Run trials until a moment (``time.monotonic``), each several times.

    Returns:
        The sum of each trial's samples; and of trials that gave none, why.
    """
    memory = _core.Memory(2 * FLIGHT_BYTES_MAX)
    left: dict[Trial, str] = {}
    done: dict[Trial, Sample] = {}
    for number, trial in enumerate(todo):
        if progress is not None:
            progress(number, len(todo), str(trial))
        if trial in left:
            continue
        # Time that a trial leaves over, or takes too much, is more or less for the others.
        seconds = max(until_s - time.monotonic(), 0.0) / (len(todo) - number)
        try:
            sample = run_trial(engine, trial, size, seconds, memory, seed=number)
        except (IncompatibleError, NotColdError) as error:
            left[trial] = " ".join(str(error).split())
            continue
        if (before := done.get(trial)) is not None:
            sample = replace(
                sample,
                requests=before.requests + sample.requests,
                seconds=before.seconds + sample.seconds,
            )
        done[trial] = sample
    if progress is not None:
        progress(len(todo), len(todo), "done")
    return done, left


class NotColdError(Error):
    """The bytes to read lie in the page cache and do not leave it."""


def run_trial(
    engine: _core.Engine,
    trial: Trial,
    size: int,
    seconds: float,
    memory: _core.Memory,
    *,
    seed: int,
    begins: Fraction | int = 0,
) -> Sample:
    """Run one trial: ask for a few requests at a time, so that ``depth`` are in flight.

    Time counts from the first request to the last answer: bytes that a store has saved up and
    gives in one go are no rate.

    Args:
        engine: Engine of the file.
        trial: Trial to run.
        size: size of the file, bytes.
        seconds: duration of the trial, about.
        memory: memory of twice FLIGHT_BYTES_MAX.
        seed: seed of its places.
        begins: share of the file at which a trial in order begins, of one of several readers.

    Raises:
        IncompatibleError, NotColdError: it cannot be run.
        OSError, Error: the file cannot be read.
    """
    step = -(-trial.depth // STEPS)
    flying: deque[tuple[_core.Ticket, int]] = deque()
    requests = 0
    with engine.again(trial.kind, trial.depth) as own:
        begun = ended = time.monotonic()
        try:
            for number, offsets in enumerate(_places(own, trial, size, step, seed, begins)):
                if number == 0:
                    begun = time.monotonic()  # the data is cold now
                at = number % (STEPS + 2) * step * trial.request_bytes
                reads = _reads(trial, offsets, memory.address + at)
                flying.append((own.submit(reads, memory), len(reads)))
                if len(flying) * step <= trial.depth:
                    continue
                requests += _land(flying)
                ended = time.monotonic()
                if ended - begun >= seconds or requests * trial.request_bytes >= TRIAL_BYTES_MAX:
                    break
            while flying:
                requests += _land(flying)
                ended = time.monotonic()
        finally:
            for ticket, _ in flying:
                ticket.close()
    return Sample(
        kind=trial.kind,
        pattern=trial.pattern,
        request_bytes=trial.request_bytes,
        depth=trial.depth,
        requests=requests,
        seconds=max(ended - begun, 1e-9),
    )


def _land(flying: deque[tuple[_core.Ticket, int]]) -> int:
    """Wait for the oldest requests; return how many they were."""
    ticket, count = flying[0]
    ticket.wait()
    ticket.close()
    flying.popleft()
    return count


def _places(
    engine: _core.Engine, trial: Trial, size: int, step: int, seed: int, begins: Fraction | int
) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the offsets of ``step`` requests at a time; each trial begins elsewhere.

    Through the page cache no offset comes twice, and they end with the file or TRIAL_BYTES_MAX.

    Raises:
        NotColdError: the next bytes cannot be put out of the page cache.
    """
    places = size // trial.request_bytes
    chance = np.random.default_rng(seed)
    through = trial.kind == "pread" and engine.remote_file is None
    if trial.pattern == "stream":
        span = min(places, TRIAL_BYTES_MAX // trial.request_bytes)
        order = int(chance.integers(places - span + 1)) + np.arange(span)
        order = np.roll(order, -int(span * begins))
        if through:
            # All at once: pages that the kernel reads ahead meanwhile are to stay.
            make_cold(engine, int(order.min()) * trial.request_bytes, span * trial.request_bytes)
    else:
        order = chance.permutation(min(places, 1 << 20))
        if through:
            # As Records reads batches.
            os.posix_fadvise(engine.fd, 0, 0, os.POSIX_FADV_RANDOM)
    while True:
        for at in range(0, len(order), step):
            offsets = order[at : at + step].astype(np.uint64) * trial.request_bytes
            if through and trial.pattern == "random":
                for offset in offsets.tolist():
                    make_cold(engine, offset, trial.request_bytes)
            yield offsets
        if through:
            return


def _reads(trial: Trial, offsets: npt.NDArray[np.uint64], address: int) -> npt.NDArray[np.void]:
    reads = np.empty(len(offsets), _core.READ)
    reads["offset"] = offsets
    reads["length"] = reads["needed"] = trial.request_bytes
    reads["into"] = address + np.arange(len(offsets)) * trial.request_bytes
    return reads


def make_cold(engine: _core.Engine, offset: int, length: int) -> None:
    """Put bytes out of the page cache, and make sure that they are gone.

    Raises:
        NotColdError: they stay there, or the kernel does not say.
    """
    # A folio that is only partly in the range would stay whole.
    start = offset // FOLIO_BYTES * FOLIO_BYTES
    span = -(-(offset + length - start) // FOLIO_BYTES) * FOLIO_BYTES
    os.posix_fadvise(engine.fd, start, span, os.POSIX_FADV_DONTNEED)
    found = engine.cached_bytes_in(offset, length)
    if found is None:
        raise NotColdError("the kernel does not say what is in the page cache")
    if found * CACHED_SHARE > length:
        raise NotColdError("what would be read stays in the page cache")


# --- memory -------------------------------------------------------------------------------


def measure_memory(*, seconds: float = MEMORY_SECONDS) -> Calibration:
    """Measure the rate of copying, with 1, 2, 4 and so on threads and one for each processor.

    Args:
        seconds: time for all of them together, seconds.

    Raises:
        ValueError: ``seconds`` is not positive.
        MemoryError: there is no room for the copies.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")
    source = np.ones(SOURCE_BYTES, np.uint8)  # touched, so that all of it is there
    most = len(os.sched_getaffinity(0))
    counts = sorted({*(1 << i for i in range(most.bit_length()) if 1 << i <= most), most})
    samples = tuple(_copies(source, count, seconds / len(counts)) for count in counts)
    return Calibration(calibration.MEMORY, time.time(), samples)


def _copies(source: npt.NDArray[np.uint8], threads: int, seconds: float) -> Sample:
    """Let so many threads copy for a while."""
    copiers = [_copier(source, number) for number in range(threads)]
    copies, spent = zip(*call_at_once(copiers, seconds), strict=True)
    return Sample("memory", "random", CHUNK_BYTES, threads, sum(copies), max(spent))


def _copier(source: npt.NDArray[np.uint8], number: int) -> Callable[[], None]:
    """Return what copies another chunk at each call, to a place of its own."""
    order = np.random.default_rng(number).permutation(len(source) // CHUNK_BYTES)
    places = (int(place) * CHUNK_BYTES for place in cycle(order))
    chunks = (source[at : at + CHUNK_BYTES] for at in places)
    return map(partial(np.copyto, np.ones(CHUNK_BYTES, np.uint8)), chunks).__next__
