"""facts: what was seen of a data set, of the storage under it, and of the machine. Pure.

None: not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lmdbio.machine.storage import Storage

__all__ = [
    "DataFacts",
    "Facts",
    "LockFacts",
    "MachineFacts",
    "ProvenanceFacts",
    "SampleFacts",
    "TransformFacts",
    "TunedFacts",
]


@dataclass(frozen=True, slots=True)
class DataFacts:
    """A data file, and the database in it that is looked at.

    Attributes:
        file_bytes, used_bytes: size of the file, and of its part up to the last page in use.
        free_bytes: size of the pages within it that nothing uses.
        entries: number of entries of the database.
        tree_bytes: size of the pages of its tree, without values of their own pages.
        named: the databases that it names.
        holds_named_only: whether it holds nothing else.
        damage: damage that was met among its pages, in words; "": none was.
    """

    file_bytes: int = 0
    used_bytes: int = 0
    free_bytes: int | None = None
    entries: int = 0
    tree_bytes: int = 0
    named: Sequence[str] = ()
    holds_named_only: bool = False
    damage: str = ""


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """Some records of it, spread evenly.

    Attributes:
        records: number of records that were looked at.
        median_bytes, largest_bytes: sizes of their values.
        kinds: kinds of values, the most frequent first, in words.
        keys: the forms of keys, in words.
        ascending: share of neighbours in the sample that lie in the order of their keys on disk.
        adjacent: share of records that lie right behind the one before them.
    """

    records: int = 0
    median_bytes: int = 0
    largest_bytes: int = 0
    kinds: str = ""
    keys: str = ""
    ascending: float | None = None
    adjacent: float | None = None


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock file, in which readers hold their snapshots.

    Attributes:
        exists: whether it is there.
        is_writable: whether this user may write to it, or make it.
        readers, stale: slots that are held, and those of processes that have ended.
        behind: transactions since the oldest snapshot that is held.
        unseen: reason why slots were not looked at; "": they were.
    """

    exists: bool = False
    is_writable: bool | None = None
    readers: int | None = None
    stale: int | None = None
    behind: int | None = None
    unseen: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine, and this process's limits there; None: there is none, or it is not known.

    Attributes:
        available_bytes: size of the memory that this process can still get.
        is_grouped: whether its control group, not the machine, is what bounds that.
        budget_bytes: budget that a Records or a Reader takes unless told otherwise.
        cached_bytes_max: bytes of the largest file that the page cache is asked to keep whole.
        shm_free_bytes: size of what is free in /dev/shm, of ranks' windows.
        processors, machine_processors: number of processors for this process, and of all.
        quota: processors' time that its control group allows, in processors.
        open_files, open_files_hard: descriptors, now and as far as the process may raise them.
        locked_bytes, address_bytes: limits of the memory that may be locked, and of address space.
        mappings: number of mappings that a process may have.
        mpi4py: version of mpi4py; "": it is not installed.
        launcher, library: the mpiexec that is found, and its MPI; "": none.
        ranks: number of ranks in the job of this process; 0: no launcher has started it.
        machines: number of machines that torchrun runs them on; 0: the launcher is one of MPI.
        address: address by which they would ask for this machine over sockets; "": there is none.
        unreachable: reason why they would not reach it, in words; "": they would, or need not.
        reported_order: order of the smallest free blocks of memory that go back to the host of a
            virtual machine (``machine.page_reporting``).
    """

    available_bytes: int = 0
    is_grouped: bool = False
    budget_bytes: int = 0
    cached_bytes_max: int = 0
    shm_free_bytes: int | None = None
    processors: int = 1
    machine_processors: int = 1
    quota: float | None = None
    open_files: int | None = None
    open_files_hard: int | None = None
    locked_bytes: int | None = None
    address_bytes: int | None = None
    mappings: int | None = None
    mpi4py: str = ""
    launcher: str = ""
    library: str = ""
    ranks: int = 0
    machines: int = 0
    address: str = ""
    unreachable: str = ""
    reported_order: int | None = None


@dataclass(frozen=True, slots=True)
class ProvenanceFacts:
    """The provenance file.

    Attributes:
        status: "good", "absent", "stale", "damaged", "unproven" or "unreadable".
        reason: reason for the status.
        deep_bytes: size of what opening would hash; 0: nothing.
    """

    status: str = "absent"
    reason: str = ""
    deep_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TunedFacts:
    """Rates of this file system that ``lmdbio tune`` measured.

    Attributes:
        when: date of the measurement, in words; "": there is none.
        stream_rate, random_rate: bytes a second in order, and at random in requests of
            ``random_bytes``.
    """

    when: str = ""
    stream_rate: float | None = None
    random_rate: float | None = None
    random_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TransformFacts:
    """A transform that the user named, timed on some records.

    Attributes:
        name: name that the user gave it; "": none was named.
        seconds: time of a call by one thread; None: there are no records.
        gain: ratio of calls a second by two threads at the same time to those by one; None: there
            is one processor.
        free_gain: the same of a function that is known to let go of Python's lock.
        error: exception that it raised, in words; "": none.
    """

    name: str = ""
    seconds: float | None = None
    gain: float | None = None
    free_gain: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All of them.

    Attributes:
        path: path as the user named it.
        name: name of the database that is looked at; "": the main one.
        uring: an io_uring can be had; None: it was not tried.
        the others: facts of their classes.
    """

    path: str
    name: str = ""
    data: DataFacts = field(default_factory=DataFacts)
    sample: SampleFacts = field(default_factory=SampleFacts)
    storage: Storage = field(default_factory=Storage)
    uring: bool | None = None
    locks: LockFacts = field(default_factory=LockFacts)
    machine: MachineFacts = field(default_factory=MachineFacts)
    provenance: ProvenanceFacts = field(default_factory=ProvenanceFacts)
    tuned: TunedFacts = field(default_factory=TunedFacts)
    transform: TransformFacts = field(default_factory=TransformFacts)
