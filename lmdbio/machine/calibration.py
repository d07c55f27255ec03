"""Calibration: what ``lmdbio tune`` measured of a file system, and where that is stored.

By one process: ``Sample``, one way of making requests. By the ranks of a job: ``Staggering``, how
many of its roots should read at a time. The file keeps the figures of several jobs side by side.

One small JSON file for each file system in the user's cache folder, under a name made of the
file system's identity; it appears whole or not at all. A reader that opens a data set
reads it (``reading.engines``) if there is one. One that is damaged, or of another version, is as
good as none, and the note says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from lmdbio.machine import tuned_folder
from lmdbio.machine.storage import Storage
from lmdbio.system.amounts import PAGE_BYTES
from lmdbio.system.frozen import dataclass

__all__ = [
    "Calibration",
    "MEMORY",
    "NETWORK",
    "Pattern",
    "Sample",
    "SharedSample",
    "Staggering",
    "Stored",
    "TokenSample",
    "file_of",
    "forget",
    "identity",
    "load",
    "renewed",
    "store",
]

#: Of the file's form and of what its figures mean: others are not used.
VERSION = 1
#: No storage is as slow or as fast, bytes per second.
RATE_MIN, RATE_MAX = 16.0, 1e15
#: One is a few KiB; what is larger was not written here.
FILE_BYTES_MAX = 1 << 20
#: Jobs of so many shapes are remembered, the newest ones.
STAGGERINGS_MAX = 32
#: Items of each list. Numbers of nodes are powers of two, each measured in two ways; no round of
#: measuring has as many runs.
ITEMS_MAX = {"samples": 1 << 10, "staggerings": STAGGERINGS_MAX, "shared": 64, "rates": 1 << 10}
#: Counts, where no job has as many roots; and numbers: "measured" is in seconds since 1970, up to
#: the end of the year 9998.
COUNTS_MAX = {"request_bytes": 1 << 30, "depth": 256, "requests": 1 << 40}
ROOTS_MAX = 1 << 20
NUMBERS_MAX = {"measured": 253_370_764_800, "seconds": sys.float_info.max, "rate": RATE_MAX}

Pattern: TypeAlias = Literal["stream", "random"]
Kind: TypeAlias = Literal["pread", "direct"]
SampleKind: TypeAlias = Kind | Literal["memory", "network"]
KINDS = (*get_args(Kind), "memory", "network")
#: Identities of the memory of this user's machines, and of the network between them.
MEMORY, NETWORK = "memory", "network"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Sample:
    """One way of reading, measured on cold data.

    Attributes:
        kind: "pread" (through the page cache), "direct", "memory" (copied by threads), or
            "network" (messages that each node sends and receives at once).
        pattern: "stream" (each request follows the last one) or "random".
        request_bytes: size of each request, or message, bytes.
        depth: requests in flight, threads, or nodes.
        requests: number of requests made.
        seconds: seconds that these requests took together.
    """

    kind: SampleKind
    pattern: Pattern
    request_bytes: int
    depth: int
    requests: int
    seconds: float

    @property
    def bytes(self) -> int:
        """Bytes of all requests."""
        return self.requests * self.request_bytes

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds

    @property
    def latency(self) -> float:
        """Seconds from asking to having, on average."""
        return self.seconds * min(self.depth, self.requests) / self.requests


@dataclass(frozen=True, slots=True)
class TokenSample:
    """The rate at which a job read with so many tokens, on cold data.

    Attributes:
        tokens: roots that may read at a time; 0: whoever can, reads.
        rates: rate of each run, bytes of values per second by all ranks together.
    """

    tokens: int
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Bytes per second, the median."""
        return float(np.median(self.rates))


@dataclass(frozen=True, slots=True)
class Staggering:
    """How fast the roots of a job read together, by how many of them may at a time.

    Attributes:
        nodes, roots: number of the job's nodes, and of its roots.
        assignment: assignment of its Readers.
        measured: time of the measurement, seconds since 1970.
        samples: one measurement for each number of tokens.
    """

    nodes: int
    roots: int
    assignment: str
    measured: float
    samples: tuple[TokenSample, ...]

    @property
    def job(self) -> tuple[int, int, str]:
        """The job for which it was measured."""
        return self.nodes, self.roots, self.assignment


@dataclass(frozen=True, slots=True)
class SharedSample:
    """One way of reading, by several nodes at once.

    Attributes:
        readers: number of nodes.
        sample: measurement of all nodes together; its depth is that of each.
    """

    readers: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured figures of one file system.

    Attributes:
        identity: identity of the file system (``identity``).
        measured: time of the measurement, seconds since 1970.
        samples: samples in the order measured.
        staggerings: measurements of jobs, one for each shape; the newest last.
        shared: measurements by several nodes at once.
    """

    identity: str
    measured: float
    samples: tuple[Sample, ...]
    staggerings: tuple[Staggering, ...] = ()
    shared: tuple[SharedSample, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """The calibration of a file system, as its file has it.

    Attributes:
        calibration: None if there is none that can be used.
        file: path of the file, which need not exist; None: there is no folder for it.
        note: reason why a calibration that is there is not used, else "".
    """

    calibration: Calibration | None
    file: Path | None
    note: str = ""


def identity(storage: Storage) -> str:
    """Return what identifies a file system from one mount to the next.

    Local disks by their own number; others, whose numbers are given at mounting, by what is
    mounted, so that all nodes that mount a store know it by the same name.
    """
    what = f"{storage.id:016x}" if storage.disk and storage.id else storage.source or "unknown"
    return f"{storage.file_system or 'unknown'} {what}"


def file_of(identity: str) -> Path:
    """Return where the calibration of a file system is stored.

    Raises:
        OSError: this user has no home.
    """
    mark = hashlib.blake2b(os.fsencode(identity), digest_size=16).hexdigest()
    return Path(tuned_folder.folder()) / f"{mark}.json"


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def load(identity: str) -> Stored:
    """Read the calibration of a file system. A damaged file raises nothing."""
    try:
        file = file_of(identity)
    except OSError:
        return Stored(None, None, "no: there is no folder to keep it in")
    try:
        # A FIFO under that name would be waited for.
        with open(file, "rb", opener=_at_once) as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Stored(None, file)
    except OSError as error:
        return Stored(None, file, f"{file}: cannot be read ({error.strerror}), and is not used")
    try:
        return Stored(_decode(text, identity), file)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        note = f"{file}: no calibration that can be used ({reason}); run lmdbio tune again"
        return Stored(None, file, note)


def store(calibration: Calibration) -> Path:
    """Store a calibration; return where.

    Raises:
        OSError: the user's cache folder is not there, or cannot be written to.
    """
    from lmdbio.system.publish import Draft  # which those that read need not load

    file = file_of(calibration.identity)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = {"version": VERSION, **asdict(calibration)}
    with Draft(file, "what was measured") as draft:
        draft.write(json.dumps(content, indent=1).encode(), 0)
        draft.publish(overwrite=True)
    tuned_folder.changed()
    return file


def forget(identity: str) -> bool:
    """Remove what is stored of a file system; return False where nothing was.

    Raises:
        OSError: it cannot be removed, or this user has no home.
    """
    try:
        file_of(identity).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    tuned_folder.changed()
    return True


def renewed(known: Sequence[Staggering], measured: Sequence[Staggering]) -> tuple[Staggering, ...]:
    """Return the jobs to store once some were measured anew: others stay. Pure."""
    jobs = {one.job for one in measured}
    both = [*(one for one in known if one.job not in jobs), *measured]
    return tuple(both[-STAGGERINGS_MAX:])


def _decode(text: bytes, identity: str) -> Calibration:
    """Every value is checked: it decides how much memory is taken."""
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"more than {FILE_BYTES_MAX} bytes")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    if found.get("version") != VERSION:
        raise ValueError(f"version {found.get('version')!r}, not {VERSION}")
    if found.get("identity") != identity:
        raise ValueError("it is of another file system")
    return Calibration(
        identity,
        _number(found, "measured"),
        _several(found, "samples", _sample),
        # Not there in files of earlier versions.
        _several({"staggerings": []} | found, "staggerings", _staggering, least=0),
        _several({"shared": []} | found, "shared", _shared, least=0),
    )


def _sample(found: dict[str, Any]) -> Sample:
    if found["kind"] not in KINDS or found["pattern"] not in get_args(Pattern):
        raise ValueError(f"a sample of {found['kind']!r}, {found['pattern']!r}")
    sample = Sample(
        kind=found["kind"],
        pattern=found["pattern"],
        request_bytes=_count(found, "request_bytes"),
        depth=_count(found, "depth"),
        requests=_count(found, "requests"),
        seconds=_number(found, "seconds"),
    )
    if not RATE_MIN <= sample.rate <= RATE_MAX:
        raise ValueError(f"{sample.rate:g} bytes a second")
    if sample.kind in get_args(Kind) and sample.request_bytes % PAGE_BYTES:
        raise ValueError(f"request_bytes is {sample.request_bytes}, no multiple of {PAGE_BYTES}")
    return sample


def _shared(found: dict[str, Any]) -> SharedSample:
    return SharedSample(_count(found, "readers"), _sample(found["sample"]))


def _staggering(found: dict[str, Any]) -> Staggering:
    from lmdbio.planning.schedule import ASSIGNMENTS  # which brings all orders

    if found["assignment"] not in ASSIGNMENTS:
        raise ValueError(f"a job that reads {found['assignment']!r}")
    samples = _several(found, "samples", _token_sample)
    nodes, roots = _count(found, "nodes"), _count(found, "roots")
    if max(sample.tokens for sample in samples) > roots:
        raise ValueError("more tokens than roots")
    if len({sample.tokens for sample in samples}) < len(samples):
        raise ValueError("a number of tokens comes twice")
    return Staggering(nodes, roots, found["assignment"], _number(found, "measured"), samples)


def _token_sample(found: dict[str, Any]) -> TokenSample:
    rates = _several(found, "rates", lambda rate: _number({"rate": rate}, "rate"))
    return TokenSample(_count(found, "tokens", least=0), rates)


def _several(
    found: dict[str, Any], name: str, made: Callable[[Any], Item], *, least: int = 1
) -> tuple[Item, ...]:
    """Return what is made of each item of a list."""
    items = found[name]
    if not isinstance(items, list) or not least <= len(items) <= ITEMS_MAX[name]:
        raise ValueError(f"{name} is no list, or one of too many or too few")
    return tuple(map(made, items))


def _count(found: dict[str, Any], name: str, *, least: int = 1) -> int:
    value = found[name]
    most = COUNTS_MAX.get(name, ROOTS_MAX)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}")
    return value


def _number(found: dict[str, Any], name: str) -> float:
    value, most = found[name], NUMBERS_MAX[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise ValueError(f"{name} is {value!r}")
    return float(value)
