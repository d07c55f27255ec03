"""The cells that are measured, and the bounds in each. Pure.

A *cell* is one data set at one place in one access: everybody in it takes turns. A *lane* is a
contestant in it. A *rule* compares lanes of one cell, or a lane with a number; a rule without a
bound only reports.

Source of the bounds: benchmarks/README.md, "Targets".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: Of LMDB: large values lie in pages of their own, behind one header.
PAGE, PAGE_HEADER = 4 * KIB, 16


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set that is made where it is not there.

    Attributes:
        record_bytes: bytes of a value.
        bytes: bytes of all values.
        order: the order in which records are put (``lmdbio.bench.datasets.Recipe``).
        is_converted: it has a provenance file.
    """

    record_bytes: int
    bytes: int = 2 * GIB
    order: str = "key"
    is_converted: bool = True


SETS = {
    "3k": DataSet(3072),
    "110k": DataSet(113_011),
    "192k": DataSet(196_608),
    # As scripts write them that are not Caffe's.
    "random": DataSet(3072, 176 * MIB, "random", is_converted=False),
    "text": DataSet(3072, 176 * MIB, "text", is_converted=False),
    "small": DataSet(6000, 46 * MIB, is_converted=False),
}
LARGE, WILD = ("3k", "110k", "192k"), ("random", "text", "small")

#: The lane of the best plain reader (fio, ior), whose setting a calibration finds.
PLAIN = "plain"
GROUPS = ("cold", "wild", "model", "capped", "random", "warm", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Lane:
    """A contestant of a cell.

    Attributes:
        name: in the rules.
        contestant: in ``lmdbio.bench.trials.CONTESTANTS``; "" for PLAIN.
        processes: that read at once, as MPI's ranks where it is ``Reader``.
        bytes_max: of the file, for who is so slow that a part must do; 0: as the cell says.
    """

    name: str
    contestant: str = ""
    processes: int = 1
    bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A bound on lanes of a cell.

    Attributes:
        group: one of GROUPS.
        words: what it is about, for people.
        lanes: each of them is judged.
        rivals: lanes; the best of them is the measure. Empty: ``number`` is.
        number: the measure, in the quantity's unit.
        least, most: bounds of lane over measure; None: reported only.
        quantity: "rate" (MiB/s of the file), "records" (a second), "cpu" (seconds per GiB of the
            file) or "peak" (bytes).
        bounded_by_link: no reader can be faster than the place's link.
    """

    group: str
    words: str
    lanes: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    number: float = 0.0
    least: float | None = None
    most: float | None = None
    quantity: str = "rate"
    bounded_by_link: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One data set, at one place, in one access.

    Attributes:
        name: for people.
        dataset: in SETS.
        access: as in ``lmdbio.bench.trials``.
        lanes: who takes part.
        rules: what is judged.
        place: "disk", "model" or "capped" (``places``).
        warm: in the page cache; every byte of every value is then looked at.
        batch: records of a batch.
        bytes_max: of the file, per run.
        transfers: of the plain readers, from which a calibration chooses; 0: a record's pages.
        plain: contestants from which it chooses.
        environment: variables of the runs.
    """

    name: str
    dataset: str
    access: str
    lanes: tuple[Lane, ...]
    rules: tuple[Rule, ...]
    place: str = "disk"
    warm: bool = False
    batch: int = 256
    bytes_max: int = 4 * GIB
    transfers: tuple[int, ...] = ()
    plain: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


LMDB = Lane("py-lmdb", "lmdb")
#: At one page a fault its rate does not depend on how much it reads.
BARE = Lane("py-lmdb, no readahead", "lmdb-noreadahead", bytes_max=64 * MIB)
OPEN = Lane("open", "open")
RECORDS = Lane("records", "records")
SLICES = Lane("slices", "slices")
READ = Lane("read", "read")
ARRAYS = Lane("read, as arrays", "arrays")
BATCHES = Lane("batches, 3 ahead", "batches")
READER = Lane("reader", "reader")
RANKS = Lane("reader, 4 ranks", "reader", processes=4)
BEST = Lane(PLAIN)

IN_ORDER = (OPEN, RECORDS, SLICES, READER, RANKS)
ORDERED = tuple(lane.name for lane in IN_ORDER)
AT_RANDOM = (READ.name, BATCHES.name)
EITHER = (LMDB.name, BARE.name)

IN_ORDER_PLAIN = ("fio-pread", "fio-queue", "fio-queue-32", "fio-uring-32", "ior-pread",
                  "ior-direct")  # fmt: skip
AT_RANDOM_PLAIN = ("fio-queue", "fio-queue-32", "fio-queue-128", "fio-uring-32")

CPU = Rule("cpu", "CPU, cold, not above py-lmdb's", (), (LMDB.name,), most=1.0, quantity="cpu")


def cold(dataset: str) -> Cell:
    return Cell(
        f"cold, in order, {dataset}",
        dataset,
        "sequential",
        (LMDB, BARE, *IN_ORDER, BEST),
        (
            Rule("cold", "0.90 of the best of fio and ior", ORDERED, (PLAIN,), least=0.90),
            Rule("cold", "not below py-lmdb's default", ORDERED, (LMDB.name,), least=1.0),
            Rule("cold", "10 times py-lmdb without readahead", ORDERED, (BARE.name,), least=10.0),
            replace(CPU, lanes=ORDERED),
        ),
        transfers=(512 * KIB, MIB, 4 * MIB),
        plain=IN_ORDER_PLAIN,
    )


def wild_in_order(dataset: str) -> Cell:
    lanes = (OPEN, RECORDS, READER)
    words, least = "not below py-lmdb's default", 1.0
    if SETS[dataset].order == "random":
        words, least = "1.5 times py-lmdb's default", 1.5
    return Cell(
        f"wild, in key order, {dataset}",
        dataset,
        "sequential",
        (LMDB, *lanes),
        (
            Rule("wild", words, tuple(lane.name for lane in lanes), (LMDB.name,), least=least),
        ),
    )  # fmt: skip


def wild_at_random(dataset: str) -> Cell:
    least = 1.1 if SETS[dataset].bytes < 64 * MIB else 1.3
    return Cell(
        f"wild, a shuffled epoch, {dataset}",
        dataset,
        "random",
        (LMDB, READ, BATCHES),
        (Rule("wild", f"{least:g} times a py-lmdb get loop", AT_RANDOM, (LMDB.name,),
              least=least),),
    )  # fmt: skip


def model_in_order(dataset: str) -> Cell:
    return Cell(
        f"modelled store, in order, {dataset}",
        dataset,
        "sequential",
        (LMDB, *IN_ORDER, BEST),
        (
            Rule("model", "3 times py-lmdb's default", ORDERED, (LMDB.name,), least=3.0,
                 bounded_by_link=True),
            Rule("model", "0.90 of the best of fio and ior", ORDERED, (PLAIN,), least=0.90),
        ),
        place="model",
        bytes_max=GIB,
        transfers=(MIB, 4 * MIB),
        plain=("fio-queue", "fio-queue-32", "ior-pread", "ior-direct"),
    )  # fmt: skip


def model_at_random(dataset: str) -> Cell:
    return Cell(
        f"modelled store, random batches, {dataset}",
        dataset,
        "random",
        # 6 and 25 MB/s: one batch of images is enough.
        (
            replace(LMDB, bytes_max=48 * MIB), replace(BARE, bytes_max=24 * MIB),
            READ, BATCHES, BEST,
        ),
        (
            Rule("model", "5 times py-lmdb at its better readahead", AT_RANDOM, EITHER,
                 least=5.0, bounded_by_link=True),
            Rule("model", "0.90 of fio", AT_RANDOM, (PLAIN,), least=0.90),
        ),
        place="model",
        bytes_max=192 * MIB,
        transfers=(0,),
        plain=AT_RANDOM_PLAIN,
    )  # fmt: skip


#: Of the capped device (``places``).
CAP_BYTES, CAP_REQUESTS = 300 * MIB, 1500


def capped_strided(dataset: str) -> Cell:
    return Cell(
        f"capped device, strided shares, {dataset}",
        dataset,
        "strided",
        (RANKS,),
        (Rule("capped", "0.97 of the cap in bytes", (RANKS.name,), number=CAP_BYTES / MIB,
              least=0.97),),
        place="capped",
        bytes_max=GIB,
    )  # fmt: skip


def capped_at_random(dataset: str) -> Cell:
    size = SETS[dataset].record_bytes
    pages = -(-(size + PAGE_HEADER) // PAGE) * PAGE
    # A record is one request, which the device counts; 110 KB meet that cap long before 300 MiB/s.
    by_requests = CAP_REQUESTS * pages < CAP_BYTES
    rule = Rule("capped", "0.97 of the cap in bytes", (READ.name,), number=CAP_BYTES / MIB,
                least=0.97)  # fmt: skip
    if by_requests:
        rule = replace(rule, words="0.97 of the cap in requests", number=CAP_REQUESTS,
                       quantity="records")  # fmt: skip
    return Cell(
        f"capped device, random batches, {dataset}",
        dataset,
        "random",
        (READ,),
        (rule,),
        place="capped",
        bytes_max=(32 if size < PAGE else 768) * MIB,
    )


def at_random(dataset: str) -> Cell:
    small = SETS[dataset].record_bytes < 4 * KIB
    rules = [
        Rule("random", "0.80 of fio randread of the same size", AT_RANDOM, (PLAIN,), least=0.8),
        Rule("random", "2 times a py-lmdb get loop at its better readahead", AT_RANDOM, EITHER,
             least=2.0),
        replace(CPU, lanes=AT_RANDOM),
    ]  # fmt: skip
    if not small:
        rules.insert(
            2,
            Rule("random", "8 times a py-lmdb get loop without readahead", AT_RANDOM,
                 (BARE.name,), least=8.0),
        )  # fmt: skip
    return Cell(
        f"cold, random batches, {dataset}",
        dataset,
        "random",
        # The same for all: what py-lmdb's readahead brings too much serves later batches.
        (LMDB, replace(BARE, bytes_max=0), READ, BATCHES, BEST),
        tuple(rules),
        bytes_max=(80 if small else 256) * MIB,
        transfers=(0,),
        plain=AT_RANDOM_PLAIN,
    )


def warm_in_order(dataset: str) -> Cell:
    lanes = (
        LMDB, OPEN, RECORDS, Lane("py-lmdb, buffers", "lmdb-buffers"),
        Lane("open, mmap, buffers", "open-mmap-buffers"), Lane("open, buffers", "open-buffers"),
    )  # fmt: skip
    views, mapped = ("py-lmdb, buffers",), ("open, mmap, buffers",)
    return Cell(
        f"warm, in order, {dataset}",
        dataset,
        "sequential",
        lanes,
        (
            Rule("warm", "iterating with bytes: py-lmdb's speed", (OPEN.name,), (LMDB.name,),
                 least=1.0),
            Rule("warm", "iterating with buffers, mmap: 0.9 of py-lmdb's", mapped, views,
                 least=0.9),
            Rule("warm", "iterating with buffers, default engine: reported", ("open, buffers",),
                 views),
            Rule("warm", "iterating Records: reported", (RECORDS.name,), (LMDB.name,)),
        ),
        warm=True,
        bytes_max=GIB,
    )  # fmt: skip


def warm_at_random(dataset: str) -> Cell:
    small = SETS[dataset].record_bytes < 4 * KIB
    bound = 2.0 if small else None
    # The sum over a batch in one call, which a loop of gets cannot have.
    arrays = (ARRAYS,) if small else ()
    return Cell(
        f"warm, random keys, {dataset}",
        dataset,
        "random",
        (LMDB, OPEN, READ, *arrays),
        (
            Rule("warm", "get of random keys over 2 GB: 0.8 of py-lmdb's", (OPEN.name,),
                 (LMDB.name,), least=0.8, quantity="records"),
            Rule("warm", "Records.read of 256: " + ("2 times a get loop" if bound else "reported"),
                 (READ.name, *(lane.name for lane in arrays)), (LMDB.name,), least=bound,
                 quantity="records"),
        ),
        warm=True,
        bytes_max=(400 if small else 1024) * MIB,
    )  # fmt: skip


def memory(dataset: str, access: str, budget: int, *, warm: bool = False) -> Cell:
    lanes: tuple[Lane, ...] = IN_ORDER if access == "sequential" else (READ,)
    if warm:  # what is mapped of the file counts too
        lanes = (OPEN, RECORDS) if access == "sequential" else (OPEN, READ)
    words = f"peak within the budget of {budget // MIB:,} MiB and 10 %"
    return Cell(
        f"memory, {'warm, ' * warm}{'in order' if access == 'sequential' else 'random batches'}, "
        f"{dataset}, {budget // MIB:,} MiB",
        dataset,
        access,
        lanes,
        (Rule("memory", words, tuple(lane.name for lane in lanes), number=budget, most=1.1,
              quantity="peak"),),
        warm=warm,
        environment=(("LMDBIO_MEMORY_BYTES", str(budget)),),
    )  # fmt: skip


CELLS = (
    *map(cold, LARGE),
    *map(wild_in_order, WILD),
    *map(wild_at_random, WILD),
    *map(at_random, ("3k", "110k")),
    *map(warm_in_order, ("3k", "192k")),
    *map(warm_at_random, ("3k", "192k")),
    *map(model_in_order, LARGE),
    model_at_random("110k"),
    *map(capped_strided, ("3k", "110k")),
    *map(capped_at_random, ("3k", "110k", "192k")),
    *(memory(dataset, "sequential", 256 * MIB) for dataset in LARGE),
    memory("110k", "random", 256 * MIB),
    # Room enough to bring the whole file to memory behind small random reads.
    memory("3k", "random", 3584 * MIB),
    memory("3k", "sequential", 256 * MIB, warm=True),
    memory("3k", "random", 256 * MIB, warm=True),
)


def chosen(
    groups: Iterable[str], sets: Iterable[str], cells: Iterable[Cell] = CELLS
) -> list[Cell]:
    """The cells that have rules of these groups, with these rules and the lanes that they need."""
    groups, sets = set(groups), set(sets)
    found = []
    for cell in cells:
        rules = tuple(rule for rule in cell.rules if rule.group in groups)
        if not rules or cell.dataset not in sets:
            continue
        needed = {name for rule in rules for name in (*rule.lanes, *rule.rivals)}
        lanes = tuple(lane for lane in cell.lanes if lane.name in needed)
        found.append(replace(cell, rules=rules, lanes=lanes))
    return found
