"""Choose engine, depth, size of requests and gaps, for one way of using a file. Pure.

    keyword  >  environment variable  >  what ``lmdbio tune`` measured  >  what is under the file

All defaults stand here, each with its reason; none of them changes what is read, only how fast.

| access | who | what it is like |
|---|---|---|
| "stream" | ``Reader`` | large blocks, mostly in the file's order |
| "batch" | ``Records`` | some records from anywhere, all asked for at once |
| "single" | ``lmdbio.open`` | pages and values one by one, and blocks once a cursor runs |
"""

from __future__ import annotations

from lmdbio.machine.overrides import FIELDS, VARIABLES, Overrides
from lmdbio.system.amounts import GAP_BYTES_MAX, PAGE_BYTES, REQUEST_BYTES_MAX
from lmdbio.system.frozen import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, TypeAlias

    from lmdbio.machine.calibration import Calibration, Pattern, Sample, TokenSample
    from lmdbio.machine.storage import Storage

    Access: TypeAlias = Literal["stream", "batch", "single"]
    Origin: TypeAlias = Literal["keyword", "environment", "tune", "facts"]

__all__ = [
    "ACCESSES",
    "Choice",
    "FAR_STREAM_DEPTH",
    "FAR_STREAM_REQUEST_BYTES_MAX",
    "READAHEAD_BYTES_LARGE",
    "Reason",
    "choose",
    "rate_text",
]

ACCESSES: tuple[Access, ...] = ("stream", "batch", "single")

#: Of streams: one 16 MiB request alone was measured at a third of the speed of four in flight,
#: so blocks are cut; below 2 MiB their memory's huge pages are not used.
STREAM_REQUEST_BYTES_MAX = 2 << 20
#: Where there is no disk, clients split a request for several servers: half as many of these get
#: 342 MB/s there instead of 327, with half the context switches.
FAR_STREAM_REQUEST_BYTES_MAX = 4 << 20
#: Larger requests than this leave too few of them in a block to be in flight together.
REQUEST_BYTES_LARGEST = 8 << 20
#: In order, eight requests of a stream's size cover any storage's latency.
STREAM_DEPTH = 8
#: At random each request is a place of its own, and disks sort them.
BATCH_DEPTH = 32
#: Where there is no disk, a request takes long and goes to one of several servers: the more are
#: asked, the less often one has nothing to do. On the modelled store 32 give 121 MB/s, 64 124.
FAR_BATCH_DEPTH = 64
#: A block and the next one: with 16, coalesced reads of 4 nodes get 331 MB/s there, with 8 320.
FAR_STREAM_DEPTH = 16
SINGLE_DEPTH = 8
#: A request to a server takes 20 to 50 ms before its first byte, and then gets 50 to 100 MB/s: of
#: 4 MiB, half of the time is spent on bytes. So many of them in flight fill a link of 10 Gbit/s,
#: and to read over a gap of 256 KiB takes a tenth of what another request would.
REMOTE_REQUEST_BYTES_MAX = 4 << 20
REMOTE_DEPTHS: Mapping[Access, int] = {"stream": 32, "batch": 64, "single": 16}
REMOTE_GAP_BYTES_MAX = 256 << 10
#: From here on the kernel's own readahead makes a stream as fast as requests in flight do.
READAHEAD_BYTES_LARGE = 1 << 20
#: So much of the file in the page cache already: it is read there.
CACHED_SHARE = 0.5
#: Slower than this, per second, a disk is no substitute for memory: NVMe is faster, SATA, and
#: most disks of the cloud, are not.
DIRECT_RATE_MIN = 512 << 20
#: A measured setting is taken instead of another if it is better by this much: storage swings.
BETTER = 1.1
#: A read past the page cache leaves nothing there for the next one, so it must gain more than
#: that.
BETTER_DIRECT = 1.25
#: The least depth, and the smallest request, that give so much of the best.
ENOUGH = 0.95


@dataclass(frozen=True, slots=True)
class Reason:
    """Where a choice comes from, and why."""

    origin: Origin
    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """How a file is read.

    Attributes:
        access: purpose of the reads.
        engine: "pread", "direct", "uring", "staged", "mmap" or "remote".
        may_bypass_cache: whether large reads bypass the page cache while that is as good
            (``lmdbio.reading.direct_path``); only with "pread" that nobody asked for by name.
        depth: requests in flight.
        request_bytes_max: largest single request.
        gap_bytes_max: largest gap that is read to save a request, bytes nobody asked for.
        reasons: reason for each of the four, by name.
    """

    access: Access
    engine: str
    may_bypass_cache: bool
    depth: int
    request_bytes_max: int
    gap_bytes_max: int
    reasons: Mapping[str, Reason]

    @property
    def demanded(self) -> bool:
        """The engine was asked for by name: no other will do."""
        return self.reasons["engine"].origin in ("keyword", "environment")

    @property
    def maps_cached(self) -> bool:
        """Return whether an engine copies what the page cache holds out of a mapping.

        A call of the kernel for 3 KB costs more than the copy, and it copies large values page by
        page, which takes twice as long. A caller that asks for "pread" gets all by calls,
        which tools can count (csrc/engine_mapped.h).
        """
        return self.engine == "pread" and self.access != "stream" and not self.demanded


# --- choosing -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """A value of one field and its reason, before any wish."""

    value: Any
    reason: Reason
    may_bypass_cache: bool = False


def choose(
    access: Access,
    storage: Storage,
    tuned: Calibration | None = None,
    *,
    keyword: Overrides | None = None,
    environment: Overrides | None = None,
) -> Choice:
    """How to read a file.

    Args:
        access: purpose of the reads.
        storage: storage under the file (``machine.storage.inspect``).
        tuned: calibration of that storage.
        keyword: choices that the caller made.
        environment: choices that ``overrides_from_env`` found.
    """
    found = _from_facts(access, storage)
    if tuned is not None:
        found.update(_from_samples(access, storage, tuned.samples, found))
    may_bypass_cache = found["engine"].may_bypass_cache
    values = {name: found[name].value for name in FIELDS}
    reasons = {name: found[name].reason for name in FIELDS}
    for name in FIELDS:
        asked, named = (
            getattr(keyword or Overrides(), name),
            getattr(environment or Overrides(), name),
        )
        if asked is not None and asked != "auto":
            values[name], reasons[name] = asked, Reason("keyword", "asked for")
        elif named is not None:
            values[name] = named
            reasons[name] = Reason("environment", f"{VARIABLES[name]}={named}")
    demanded = reasons["engine"].origin in ("keyword", "environment")
    return Choice(
        access=access,
        may_bypass_cache=may_bypass_cache and not demanded,
        reasons=reasons,
        **values,
    )


# --- from what is under the file ----------------------------------------------------------


def _fact(value: Any, text: str, *, may_bypass_cache: bool = False) -> _Found:
    return _Found(value, Reason("facts", text), may_bypass_cache)


def _from_facts(access: Access, storage: Storage) -> dict[str, _Found]:
    if storage.remote:
        far = f"each request to {storage.source} takes tens of milliseconds"
        return {
            "engine": _fact("remote", "it is asked for by requests to a server"),
            "depth": _fact(REMOTE_DEPTHS[access], f"{far}: many are in flight"),
            "request_bytes_max": _fact(REMOTE_REQUEST_BYTES_MAX, f"{far}: large ones"),
            "gap_bytes_max": _fact(REMOTE_GAP_BYTES_MAX, f"{far}: longer than to read so much"),
        }
    return {
        "engine": _engine_from_facts(access, storage),
        "depth": _depth_from_facts(access, storage),
        "request_bytes_max": _request_from_facts(access, storage),
        "gap_bytes_max": _fact(
            GAP_BYTES_MAX, f"to read {_size(GAP_BYTES_MAX)} takes less than a request's latency"
        ),
    }


def _engine_from_facts(access: Access, storage: Storage) -> _Found:
    if storage.in_memory:
        return _fact("pread", f"a file of {storage.file_system} is in memory already")
    if storage.disk:
        again = "a disk of this machine: read again, a file is found in the page cache"
        if storage.direct is False:
            return _fact("pread", again)
        passing = "; large reads pass by it while the disk is as good as a cache"
        return _fact("pread", again + passing, may_bypass_cache=True)
    if access != "stream":
        return _fact(
            "pread", "no disk of this machine: what is asked for again should be in memory"
        )
    readahead = storage.readahead_bytes or 0
    if readahead >= READAHEAD_BYTES_LARGE:
        return _fact("pread", f"the kernel reads {_size(readahead)} ahead of a stream by itself")
    if (storage.cached_share or 0.0) >= CACHED_SHARE:
        return _fact("pread", f"{storage.cached_share:.0%} of the file is in the page cache")
    if storage.direct is False:
        return _fact("pread", "the file system has no O_DIRECT")
    return _fact(
        "direct",
        f"no disk of this machine, and the kernel reads only {_size(readahead)} ahead: large "
        "requests in flight are faster without the page cache",
    )


def _depth_from_facts(access: Access, storage: Storage) -> _Found:
    if access == "single":
        return _fact(SINGLE_DEPTH, "pages are asked for a few at a time")
    is_near = storage.disk or storage.in_memory
    if access == "stream":
        usual = STREAM_DEPTH if is_near else FAR_STREAM_DEPTH
    else:
        usual = BATCH_DEPTH if is_near else FAR_BATCH_DEPTH
    if storage.stripes is not None and 2 * storage.stripes.count > usual:
        depth = min(2 * storage.stripes.count, 64)
        return _fact(depth, f"two for each of {storage.stripes.count} servers, at most 64")
    if not is_near:
        return _fact(usual, "no disk of this machine: latency, and servers to be kept busy")
    if access == "stream":
        return _fact(usual, "large requests in order: so many cover any latency")
    return _fact(usual, "a disk sorts what it has to do")


def _request_from_facts(access: Access, storage: Storage) -> _Found:
    if access != "stream":
        return _fact(REQUEST_BYTES_MAX, "several of this size in flight use a disk's bandwidth")
    is_near = storage.disk or storage.in_memory
    usual = STREAM_REQUEST_BYTES_MAX if is_near else FAR_STREAM_REQUEST_BYTES_MAX
    unit = storage.stripes.bytes if storage.stripes is not None else storage.block_bytes or 0
    if STREAM_REQUEST_BYTES_MAX < unit <= REQUEST_BYTES_LARGEST and unit % PAGE_BYTES == 0:
        what = "a stripe" if storage.stripes is not None else "a block of the file system"
        return _fact(unit, f"{what} has {_size(unit)}")
    return _fact(usual, "several of this size in flight are faster than one larger one")


# --- from what was measured ---------------------------------------------------------------


def _measured(value: Any, text: str, *, may_bypass_cache: bool = False) -> _Found:
    return _Found(value, Reason("tune", text), may_bypass_cache)


def _from_samples(
    access: Access, storage: Storage, samples: tuple[Sample, ...], facts: Mapping[str, _Found]
) -> dict[str, _Found]:
    """Return the fields that the samples say better than the facts do; others are absent."""
    pattern: Pattern = "stream" if access == "stream" else "random"
    mine = tuple(sample for sample in samples if sample.pattern == pattern)
    found = {
        "engine": _engine_from_samples(storage, mine, facts["engine"]),
        "gap_bytes_max": _gap_from_samples(samples),
    }
    if access == "stream":
        found.update(_stream_from_samples(mine, facts))
    elif access == "batch":
        found["depth"] = _depth_from_samples(mine, facts["depth"].value)
    return {name: what for name, what in found.items() if what is not None}


def _best(samples: tuple[Sample, ...], kind: str) -> Sample | None:
    """The fastest; small requests say nothing of bandwidth."""
    large = (s for s in samples if s.kind == kind and s.request_bytes >= 64 << 10)
    return max(large, key=lambda sample: sample.rate, default=None)


def _engine_from_samples(
    storage: Storage, samples: tuple[Sample, ...], facts: _Found
) -> _Found | None:
    bypassing, through = _best(samples, "direct"), _best(samples, "pread")
    has_none = storage.in_memory or storage.remote or storage.direct is False
    if bypassing is None or through is None or has_none:
        return None
    if facts.value == "pread" and (storage.cached_share or 0.0) >= CACHED_SHARE:
        return None
    text = f"measured {rate_text(bypassing)} past the page cache, {rate_text(through)} through it"
    if storage.disk:
        pays = bypassing.rate >= DIRECT_RATE_MIN and bypassing.rate >= BETTER * through.rate
        more = "large reads pass by it" if pays else "too little to give up the cache"
        return _measured("pread", f"{text}: {more}", may_bypass_cache=pays)
    # To leave the way that the facts suggest takes more than to keep to it.
    factor = BETTER_DIRECT if facts.value == "pread" else 1 / BETTER
    return _measured("direct" if bypassing.rate >= factor * through.rate else "pread", text)


def _series(samples: tuple[Sample, ...], by: str) -> tuple[Sample, ...]:
    """The samples that differ in ``by`` alone: the longest such series, the first of equals."""
    others = [name for name in ("kind", "request_bytes", "depth") if name != by]
    groups: dict[tuple[Any, ...], tuple[Sample, ...]] = {}
    for sample in samples:
        alike = tuple(getattr(sample, name) for name in others)
        groups[alike] = (*groups.get(alike, ()), sample)
    longest: tuple[Sample, ...] = ()
    for group in groups.values():
        longest = group if len(group) > len(longest) else longest
    return longest


def _depth_from_samples(samples: tuple[Sample, ...], usual: int) -> _Found | None:
    """The least depth that is fast enough; None where the usual one is."""
    series = _series(samples, "depth")
    best = max(series, key=lambda sample: sample.rate, default=None)
    if best is None or len(series) < 2:
        return None
    if any(s.depth == usual and BETTER * s.rate >= best.rate for s in series):
        return None
    enough = min((s for s in series if s.rate >= ENOUGH * best.rate), key=lambda s: s.depth)
    return _measured(
        enough.depth,
        f"measured {rate_text(enough)} at this depth, {rate_text(best)} at best (at {best.depth})",
    )


def _stream_from_samples(
    samples: tuple[Sample, ...], facts: Mapping[str, _Found]
) -> dict[str, _Found]:
    """Depth and size of requests that were measured together; nothing where the usual do."""
    kind = "direct" if any(sample.kind == "direct" for sample in samples) else "pread"
    series = [s for s in samples if s.kind == kind and s.request_bytes <= REQUEST_BYTES_LARGEST]
    if len(series) < 2:
        return {}
    best = max(series, key=lambda sample: sample.rate)
    usual = (facts["depth"].value, facts["request_bytes_max"].value)
    if any((s.depth, s.request_bytes) == usual and BETTER * s.rate >= best.rate for s in series):
        return {}
    enough = min(
        (s for s in series if s.rate >= ENOUGH * best.rate),
        key=lambda sample: sample.depth * sample.request_bytes,
    )
    text = (
        f"measured {rate_text(enough)} with {enough.depth} requests of "
        f"{_size(enough.request_bytes)}, {rate_text(best)} at best"
    )
    return {
        "depth": _measured(enough.depth, text),
        "request_bytes_max": _measured(enough.request_bytes, text),
    }


def _gap_from_samples(samples: tuple[Sample, ...]) -> _Found | None:
    """Return the bytes that a stream brings in the time of one more small request among many."""
    small = [s for s in samples if s.pattern == "random" and s.request_bytes == PAGE_BYTES]
    large = [s for s in samples if s.request_bytes >= 64 << 10]
    if not small or not large:
        return None
    most = max(small, key=lambda sample: sample.rate)
    bandwidth = max(sample.rate for sample in large)
    requests = most.rate / most.request_bytes
    gap = int(bandwidth / requests) // PAGE_BYTES * PAGE_BYTES
    gap = max(PAGE_BYTES, min(gap, REQUEST_BYTES_MAX))
    return _measured(
        gap,
        f"measured {requests:,.0f} small requests a second, and {bandwidth / 2**20:,.0f} MiB/s",
    )


def rate_text(sample: Sample | TokenSample) -> str:
    """Return what was measured, for people."""
    return f"{sample.rate / 2**20:,.0f} MiB/s"


def _size(count: int) -> str:
    return (
        f"{count >> 20} MiB"
        if count >= 1 << 20 and not count % (1 << 20)
        else (f"{count / 1024:,.0f} KiB")
    )
