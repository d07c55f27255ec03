"""The plan of runs: shapes of the cluster, ways to read, and their order. Pure.

A *shape* is a number of ranks on a number of emulated nodes. A *cell* is one data set read in one
shape, in batches of one size: everybody who reads there takes turns. A *lane* is one way to
read. A *run* is a lane's turn in a cell.

Strong scaling keeps the batch and spreads it over more ranks; weak scaling keeps the share of a
rank. In both the job consumes the whole data set once.

Source: LMDBIO (ACM TOPC 2019), sections 3.2, 5.2 and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from benchmarks.harness import turns
from lmdbio.bench.findings import size_text
from lmdbio.placement.cache import RECORD_PLACEMENTS, Cache
from lmdbio.placement.policy import READERS, Policy
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.system.amounts import count_text

KIB, MIB = 2**10, 2**20

#: Everybody who reads records, as asked for on the command line, in the paper's order.
PY_LMDB, PLAIN = "py-lmdb", "plain"
#: Shuffles of a Reader in mode "auto".
SHUFFLES = ("global", "group", "window")
#: Exact order out of memory that roots keep for all epochs; and an order of windows, of which
#: they keep as much, and the rest streams.
CACHED, MIXED = "cached", "mixed"
#: Exact order, and of each batch ranks take what their root keeps.
LOCAL = "local"
#: Of each root, as ``lmdbio.Cache`` has it.
CACHE = "memory=1G"
#: Mode "coal" whose roots read slices in two phases.
TWO_PHASE = "two-phase"
MODES = (
    PY_LMDB, "lmdb", "lmm", "dm", "dio", "prov", "coal", "stag", TWO_PHASE, "auto", *SHUFFLES,
    CACHED, LOCAL, MIXED, PLAIN,
)  # fmt: skip
#: Loaders of PyTorch's: names, kinds, and processes of each rank.
LOADERS = {
    "dataloader-0": ("dataloader", 0),
    "dataloader-2": ("dataloader", 2),
    "dataloader-2-noahead": ("dataloader-noahead", 2),
    "webdataset": ("webdataset", 0),
    "webdataset-2": ("webdataset", 2),
    "streaming-2": ("streaming", 2),
    "loader": ("loader", 0),
    "loader-cached": ("loader", 0),
}
#: Placements in one exact order: as "auto" chooses, nothing kept, or those of ``Cache``.
PLACEMENTS = ("auto", "none", "home", *RECORD_PLACEMENTS)
#: The policies that a Reader runs, but for the one that reads nothing ahead: a Reader does.
POLICIES = tuple(name for name in READERS if name != "naive")
SCALINGS = ("strong", "weak")


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that stands for one of the paper's.

    Attributes:
        name: on the command line.
        words: for people.
        kind: of ``lmdbio.bench.datasets``.
        value_bytes: of a record's value, about.
        iterations: of a strong run, from which its batch follows.
    """

    name: str
    words: str
    kind: str
    value_bytes: int
    iterations: int


SETS = {
    one.name: one
    for one in (
        # Datum messages of raw 3 x 32 x 32 images.
        DataSet("3k", "CIFAR10-Large-like, 3 KB", "cifar", 3088, 64),
        # ImageNet's files, on average.
        DataSet("110k", "ImageNet-like, 110 KB", "fixed", 112_640, 32),
        # 256 x 256 x 3, raw, as the paper's ImageNet was converted.
        DataSet("192k", "ImageNet-like, 192 KB", "fixed", 196_608, 16),
    )
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks on emulated nodes, the same number on each."""

    ranks: int
    nodes: int

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.ranks < self.nodes or self.ranks % self.nodes:
            raise ValueError(f"{self.ranks} ranks cannot be shared evenly by {self.nodes} nodes")

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes

    def __str__(self) -> str:
        return f"{count_text(self.ranks, 'rank')} on {count_text(self.nodes, 'node')}"


@dataclass(frozen=True, slots=True)
class Lane:
    """A way to read.

    Attributes:
        name: in tables and JSON; no two lanes of a cell have the same.
        kind: "py-lmdb" (Caffe's pattern), "reader" (lmdbio.Reader), "plain" (bytes of the file,
            as IOR reads them), "mapped" (bytes of the file, copied out of a mapping), or a
            loader of PyTorch's ("dataloader", "webdataset", "streaming", "loader"; ``others``).
        mode: of a Reader.
        tokens: of a Reader in mode "stag"; 0: as the mode says.
        engine: of a Reader; "": the mode's.
        phases: of a Reader; 0: the mode's.
        shuffle, cache: of a Reader; "": none.
        assignment: of a Reader; "": the cell's.
        policy: or placement, that a Reader follows, which is simulated, too; "": none.
        workers: processes that load for a rank.
        seed: of orders by chance, beside the cell's.
        transport: carrier of a Reader's messages, of ``launch.TRANSPORTS``; "": there are none.
        is_busy: ranks compute in Python after each iteration, where others sleep.
        block_iterations: of a Reader that coalesces; 0: as it chooses.
        access: of plain readers: "sequential" (each process one contiguous segment) or
            "strided" (processes take turns, a transfer each).
        transfer: bytes of a request, of plain readers.
        processes: of a node, that read; 0: all ranks.
        depth: requests that a process keeps in flight.
        direct: O_DIRECT.
    """

    name: str
    kind: str
    mode: str = ""
    tokens: int = 0
    engine: str = ""
    block_iterations: int = 0
    access: str = ""
    transfer: int = 0
    processes: int = 0
    depth: int = 1
    direct: bool = False
    shuffle: str = ""
    cache: str = ""
    phases: int = 0
    assignment: str = ""
    policy: str = ""
    workers: int = 0
    seed: int = 0
    transport: str = ""
    is_busy: bool = False

    @property
    def reads_records(self) -> bool:
        return self.kind in ("py-lmdb", "reader")


@dataclass(frozen=True, slots=True)
class Cell:
    """One data set, in one shape, in batches of one size.

    Attributes:
        dataset: in SETS.
        shape: who reads.
        scaling: "strong" or "weak".
        assignment: of a Reader; py-lmdb has Caffe's, which is "strided".
        batch: records of an iteration, over all ranks.
        iterations: of a run, the last of which may be short.
        count: records of a run: whole epochs. 0: as many as full iterations have.
        factor: of the store's usual cost of a request out of order.
        compute_ms: that a rank sleeps after each iteration.
        epochs: of a run.
        seed: of orders by chance.
    """

    dataset: str
    shape: Shape
    scaling: str
    assignment: str
    batch: int
    iterations: int
    factor: float = 1.0
    compute_ms: float = 0.0
    count: int = 0
    epochs: int = 1
    seed: int = 0

    @property
    def records(self) -> int:
        return self.count or self.batch * self.iterations

    def __str__(self) -> str:
        text = (
            f"{self.dataset}, {self.shape}, {self.assignment}, {self.scaling}: "
            f"{self.iterations} x {self.batch} records"
        )
        text += "" if self.factor == 1 else f", out of order x{self.factor:g}"
        return text + (f", computing {self.compute_ms:g} ms" if self.compute_ms else "")


@dataclass(frozen=True, slots=True)
class Run:
    """A lane's turn.

    Attributes:
        cell: its place in the list of cells.
        lane: who reads.
        round: from 0; -1 looks at every byte and is not timed.
        bytes_max: of the file, for plain readers.
    """

    cell: int
    lane: Lane
    round: int
    bytes_max: int = 0

    @property
    def verifies(self) -> bool:
        return self.round < 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verifies": self.verifies}


# --- cells ---------------------------------------------------------------------------------


def cells(
    dataset: DataSet,
    count: int,
    shapes: Sequence[Shape],
    scalings: Sequence[str],
    assignments: Sequence[str],
    *,
    share: int,
    batch: int = 0,
    factor: float = 1.0,
    compute_ms: float = 0.0,
    epochs: int = 1,
) -> Iterator[Cell]:
    """Every cell of a data set, in the order of its shapes.

    Args:
        dataset: one of SETS.
        count: its records.
        shapes: who reads.
        scalings: of SCALINGS.
        assignments: of ``Reader``.
        share: records of a rank's part of a batch, in weak scaling.
        batch: of strong scaling; 0: so many that a run has the data set's iterations.
        factor: of the cost of a request out of order.
        compute_ms: that a rank sleeps after each iteration.
        epochs: of a run.
    """
    for shape in shapes:
        for scaling in scalings:
            size = share * shape.ranks
            if scaling == "strong":
                size = batch or max(1, count // dataset.iterations)
            size = min(size, count)
            for assignment in assignments:
                yield Cell(
                    dataset.name, shape, scaling, assignment, size, -(-epochs * count // size),
                    factor, compute_ms, epochs * count, epochs,
                )  # fmt: skip


# --- lanes ---------------------------------------------------------------------------------


#: Modes that read by an engine which may be another one.
EXPLICIT = ("dio", "prov", "coal", "stag")


def mode_lanes(
    modes: Sequence[str],
    tokens: Sequence[int],
    engines: Sequence[str] = ("",),
    block_iterations: int = 0,
    cache: str = CACHE,
) -> list[Lane]:
    """The lanes that read records.

    Args:
        modes: of MODES.
        tokens: mode "stag" runs once with each number.
        engines: modes with explicit reads run once with each; "": as the mode says.
        block_iterations: of those that coalesce; 0: as they choose.
        cache: of modes "cached", "local" and "mixed".
    """
    made = [Lane(PY_LMDB, "py-lmdb")] if PY_LMDB in modes else []
    for mode in modes:
        iterations = block_iterations if mode in EXPLICIT[2:] else 0
        for engine in engines if mode in EXPLICIT else ("",):
            for count in tokens if mode == "stag" else (0,):
                if mode in SHUFFLES:
                    made.append(Lane(mode, "reader", "auto", shuffle=mode))
                elif mode == CACHED:
                    made.append(Lane(mode, "reader", "auto", shuffle="global", cache=cache))
                elif mode == MIXED:
                    words = f"{cache},placement=mixed"
                    made.append(Lane(mode, "reader", "auto", shuffle="window", cache=words))
                elif mode == LOCAL:
                    lane = Lane(mode, "reader", "auto", shuffle="global", cache=cache)
                    made.append(replace(lane, assignment="local"))
                elif mode == TWO_PHASE:
                    made.append(Lane(mode, "reader", "coal", phases=2))
                elif mode not in (PY_LMDB, PLAIN):
                    name = f"{mode}/{count} {engine}" if count else f"{mode} {engine}"
                    made.append(Lane(name.rstrip(), "reader", mode, count, engine, iterations))
    return made


def policy_lanes(policies: Sequence[str], cache: str) -> list[Lane]:
    """The lanes of policies, in global order or by windows.

    Args:
        policies: of POLICIES.
        cache: tiers of each root, of which each takes what it uses.
    """
    windows, made = Shuffle.windows(2, 1), []  # stands for one whose sizes suit the data set
    for name in policies:
        words = Policy.named(name).words(Cache.parse(cache), GLOBAL, windows)
        assert words is not None  # all of POLICIES have some
        shuffle = "window" if words.shuffle == windows else "global"
        made.append(
            Lane(name, "reader", "auto", shuffle=shuffle, cache=cache_text(words.cache),
                 assignment=words.assignment, policy=name)
        )  # fmt: skip
    return made


def placement_lanes(placements: Sequence[str], cache: str) -> list[Lane]:
    """The lanes of placements, all in one exact order.

    Args:
        placements: of PLACEMENTS.
        cache: tiers of each root.
    """
    words = {"auto": "auto", "none": ""}
    return [
        Lane(name, "reader", "auto", shuffle="global", policy="" if name == "auto" else name,
             cache=words.get(name, f"{cache},placement={name}"))
        for name in placements
    ]  # fmt: skip


def loader_lanes(names: Sequence[str], cache: str) -> list[Lane]:
    """The lanes of loaders of PyTorch's.

    Args:
        names: of LOADERS.
        cache: tiers of each root, of the one that keeps something.
    """
    return [
        Lane(name, kind, cache=cache if name.endswith("cached") else "", workers=workers)
        for name, (kind, workers) in ((name, LOADERS[name]) for name in names)
    ]


def variants(
    lanes: Sequence[Lane], transports: Sequence[str], *, has_busy: bool = False
) -> list[Lane]:
    """Return each lane over each transport, the first of which needs no word in its name.

    Args:
        lanes: lanes of records, or of loaders.
        transports: transports; a lane without messages is there once.
        has_busy: whether each is there a second time, beside main threads that compute in Python.
    """
    found = []
    for lane in lanes:
        of_lane = transports if lane.kind in ("reader", "loader") else ("",)
        for number, transport in enumerate(of_lane):
            name = f"{lane.name} {transport}" if number else lane.name
            one = replace(lane, name=name, transport=transport)
            found += [one, replace(one, name=f"{name} busy", is_busy=True)][: 1 + has_busy]
    return found


def cache_text(cache: Cache | None) -> str:
    """Return the words of a cache, as ``Cache.parse`` takes them; None: none."""
    if cache is None:
        return ""
    given = ((field.name, getattr(cache, field.name)) for field in fields(cache))
    return ",".join(f"{name}={value}" for name, value in given if value)


def plain(
    access: str, transfer: int, processes: int, depth: int, direct: bool, shape: Shape
) -> Lane:
    """Return a plain reader of a pattern; ``processes`` of each node read."""
    pattern = "segments" if access == "sequential" else "interleaved"
    name = (
        f"plain {'O_DIRECT' if direct else 'buffered'} {pattern}, {size_text(transfer)}, "
        f"{min(processes, shape.ranks_per_node)} a node{f', depth {depth}' * (depth > 1)}"
    )
    return Lane(name, "plain", access=access, transfer=transfer, depth=depth, direct=direct,
                processes=0 if processes >= shape.ranks_per_node else processes)  # fmt: skip


def ior_words(lane: Lane, shape: Shape, size: int) -> str:
    """Return the command with which IOR reads as much in the same way; its tasks take the place
    of a process's requests in flight."""
    tasks = (lane.processes or shape.ranks_per_node) * shape.nodes * lane.depth
    each = size // tasks // lane.transfer
    block, segments = (each, 1) if lane.access == "sequential" else (1, each)
    words = f"mpiexec -n {tasks} ior -a POSIX -r -E -k -t {lane.transfer // KIB}k"
    words += f" -b {block * lane.transfer // KIB}k -s {segments}"
    return f"{words}{' --posix.odirect' if lane.direct else ''} -o FILE"


def candidates(shape: Shape) -> list[Lane]:
    """Return plain readers from which a calibration chooses: patterns, O_DIRECT or not, sizes of
    requests, processes of a node, depths."""
    every = shape.ranks_per_node
    settings = [(MIB, 1, 4), (4 * MIB, 1, 4), (256 * KIB, every, 2), (MIB, every, 1),
                (MIB, every, 2), (4 * MIB, every, 2)]  # fmt: skip
    found = [
        plain(access, size, processes, depth, direct, shape)
        for access in ("sequential", "strided")
        for direct in (True, False)
        for size, processes, depth in settings
    ]
    return list({lane.name: lane for lane in found}.values())


def block_sizes() -> list[Lane]:
    """One process, one request at a time, in blocks of every size: copied out of a mapping, read
    through the page cache, and past it."""
    sizes = [4 * KIB * 4**i for i in range(7)]
    return [
        Lane(f"{name} {size // KIB} KiB", kind, access="sequential", transfer=size, processes=1,
             direct=direct)
        for size in sizes
        for name, kind, direct in (
            ("mmap", "mapped", False), ("pread", "plain", False), ("O_DIRECT", "plain", True)
        )
    ]  # fmt: skip


# --- order ---------------------------------------------------------------------------------


def in_turns(cell: int, lanes: Sequence[Lane], rounds: int, bytes_max: int) -> list[Run]:
    """Everybody who reads records looks at every byte once; then all alternate, every other
    round backwards."""
    runs = [Run(cell, lane, -1) for lane in lanes if lane.reads_records]
    return runs + [Run(cell, lane, turn, bytes_max) for turn, lane in turns(lanes, rounds)]
