# What type checkers see of the package: as py-lmdb's own stubs, values are bytes, or memoryview
# with buffers=True. Kept beside the code because one call opens either package's environment.

import os
from collections.abc import Iterable, Iterator
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
    type_check_only,
)

from lmdb import (
    BadChecksumError as BadChecksumError,
    BadDbiError as BadDbiError,
    BadRslotError as BadRslotError,
    BadTxnError as BadTxnError,
    BadValsizeError as BadValsizeError,
    CorruptedError as CorruptedError,
    CryptoFailError as CryptoFailError,
    CursorFullError as CursorFullError,
    DbsFullError as DbsFullError,
    DiskError as DiskError,
    EnvEncryptionError as EnvEncryptionError,
    Error as Error,
    IncompatibleError as IncompatibleError,
    InvalidError as InvalidError,
    InvalidParameterError as InvalidParameterError,
    KeyExistsError as KeyExistsError,
    LockError as LockError,
    MapFullError as MapFullError,
    MapResizedError as MapResizedError,
    MemoryError as MemoryError,
    NotFoundError as NotFoundError,
    PageFullError as PageFullError,
    PageNotFoundError as PageNotFoundError,
    PanicError as PanicError,
    ProblemError as ProblemError,
    ReadersFullError as ReadersFullError,
    ReadonlyError as ReadonlyError,
    TlsFullError as TlsFullError,
    TxnFullError as TxnFullError,
    VersionMismatchError as VersionMismatchError,
    enable_drop_gil as enable_drop_gil,
    version as version,
)
from typing_extensions import Buffer, Self

from lmdbio.errors import (
    NotReadonlyWarning as NotReadonlyWarning,
    PeerError as PeerError,
    ProvenanceError as ProvenanceError,
    ShortReadError as ShortReadError,
    StaleError as StaleError,
)
from lmdbio.ingest.writer import Writer as Writer
from lmdbio.observe.stats import Stats as Stats
from lmdbio.observe.tracing import trace as trace
from lmdbio.placement.cache import Cache as Cache
from lmdbio.planning.mode import Mode as Mode
from lmdbio.planning.shuffle import Shuffle as Shuffle
from lmdbio.reader.reader import Reader as Reader
from lmdbio.reading.batch import Batch as Batch
from lmdbio.records.mix import Mix as Mix
from lmdbio.records.records import Records as Records
from lmdbio.records.zipped import Zip as Zip

__version__: Final[str]

_T = TypeVar("_T")
_V = TypeVar("_V", bound=bytes | memoryview)
_V_co = TypeVar("_V_co", bound=bytes | memoryview, covariant=True)
_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Engine: TypeAlias = Literal["auto", "pread", "direct", "uring", "mmap"]

@type_check_only
class _Stat(TypedDict):
    psize: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int

@type_check_only
class _Info(TypedDict):
    map_addr: int
    map_size: int
    last_pgno: int
    last_txnid: int
    max_readers: int
    num_readers: int

@type_check_only
class _Flags(TypedDict):
    subdir: bool
    readonly: bool
    metasync: bool
    sync: bool
    map_async: bool
    readahead: bool
    writemap: bool
    meminit: bool
    lock: bool

@type_check_only
class _DatabaseFlags(TypedDict):
    reverse_key: bool
    dupsort: bool
    integerkey: bool
    integerdup: bool
    dupfixed: bool

class _Database:
    def flags(self, txn: Transaction[Any] | None = None) -> _DatabaseFlags: ...

class Environment:
    def __new__(
        cls,
        path: _Path,
        map_size: int = 10485760,
        subdir: bool = True,
        readonly: bool = False,
        metasync: bool = True,
        sync: bool = True,
        map_async: bool = False,
        mode: int = 0o755,
        create: bool = True,
        readahead: bool = True,
        writemap: bool = False,
        meminit: bool = True,
        max_readers: int = 126,
        max_dbs: int = 0,
        max_spare_txns: int = 0,
        lock: bool = True,
        lib_version: int | None = None,
        *,
        engine: _Engine = "auto",
        depth: int | None = None,
        cache_bytes: int = ...,
        block_bytes_max: int = ...,
        provenance: bool | str | os.PathLike[str] | None = None,
        order: Literal["key", "insertion"] = "key",
    ) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    @overload
    def begin(
        self,
        db: _Database | None = None,
        parent: Transaction[Any] | None = None,
        write: bool = False,
        buffers: Literal[False] = False,
    ) -> Transaction[bytes]: ...
    @overload
    def begin(
        self,
        db: _Database | None = None,
        parent: Transaction[Any] | None = None,
        write: bool = False,
        *,
        buffers: Literal[True],
    ) -> Transaction[memoryview]: ...
    @overload
    def begin(
        self,
        db: _Database | None,
        parent: Transaction[Any] | None,
        write: bool,
        buffers: Literal[True],
    ) -> Transaction[memoryview]: ...
    def open_db(
        self,
        key: bytes | None = None,
        txn: Transaction[Any] | None = None,
        reverse_key: bool = False,
        dupsort: bool = False,
        create: bool = True,
        integerkey: bool = False,
        integerdup: bool = False,
        dupfixed: bool = False,
    ) -> _Database: ...
    def dbs(self, txn: Transaction[Any] | None = None) -> list[bytes]: ...
    def copy(
        self, path: str, compact: bool = False, txn: Transaction[Any] | None = None
    ) -> None: ...
    def copyfd(
        self, fd: int, compact: bool = False, txn: Transaction[Any] | None = None
    ) -> None: ...
    def sync(self, force: bool = False) -> None: ...
    def set_mapsize(self, map_size: int) -> None: ...
    def stat(self) -> _Stat: ...
    def stats(self) -> Stats: ...
    def info(self) -> _Info: ...
    def flags(self) -> _Flags: ...
    def path(self) -> str: ...
    def lib_version(self) -> tuple[int, int, int]: ...
    def max_key_size(self) -> int: ...
    def max_readers(self) -> int: ...
    def readers(self) -> str: ...
    def reader_check(self) -> int: ...
    def close(self) -> None: ...

open = Environment

class Transaction(Generic[_V_co]):
    @overload
    def __new__(
        cls,
        env: Environment,
        db: _Database | None = None,
        parent: Transaction[Any] | None = None,
        write: bool = False,
        buffers: Literal[False] = False,
    ) -> Transaction[bytes]: ...
    @overload
    def __new__(
        cls,
        env: Environment,
        db: _Database | None = None,
        parent: Transaction[Any] | None = None,
        write: bool = False,
        *,
        buffers: Literal[True],
    ) -> Transaction[memoryview]: ...
    @overload
    def __new__(
        cls,
        env: Environment,
        db: _Database | None,
        parent: Transaction[Any] | None,
        write: bool,
        buffers: Literal[True],
    ) -> Transaction[memoryview]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    @overload
    def get(
        self, key: Buffer, default: None = None, db: _Database | None = None
    ) -> _V_co | None: ...
    @overload
    def get(self, key: Buffer, default: _T, db: _Database | None = None) -> _V_co | _T: ...
    def cursor(self, db: _Database | None = None) -> Cursor[_V_co]: ...
    def stat(self, db: _Database | None = None) -> _Stat: ...
    def id(self) -> int: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def put(
        self,
        key: Buffer,
        value: Buffer,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: _Database | None = None,
    ) -> bool: ...
    def replace(self, key: Buffer, value: Buffer, db: _Database | None = None) -> _V_co | None: ...
    def pop(self, key: Buffer, db: _Database | None = None) -> _V_co | None: ...
    def delete(self, key: Buffer, value: Buffer = b"", db: _Database | None = None) -> bool: ...
    def drop(self, db: _Database, delete: bool = True) -> None: ...

# Of iterators, by what they yield where nothing is said: both, values, keys.

@type_check_only
class _Items(Protocol[_V_co]):
    @overload
    def __call__(
        self, keys: Literal[True] = True, values: Literal[True] = True
    ) -> Iterator[tuple[_V_co, _V_co]]: ...
    @overload
    def __call__(self, keys: Literal[False], values: Literal[True] = True) -> Iterator[_V_co]: ...
    @overload
    def __call__(self, keys: bool = True, *, values: Literal[False]) -> Iterator[_V_co]: ...
    @overload
    def __call__(self, keys: bool, values: Literal[False]) -> Iterator[_V_co]: ...

@type_check_only
class _Values(Protocol[_V_co]):
    @overload
    def __call__(self, keys: Literal[False] = False, values: bool = True) -> Iterator[_V_co]: ...
    @overload
    def __call__(
        self, keys: Literal[True], values: Literal[True] = True
    ) -> Iterator[tuple[_V_co, _V_co]]: ...
    @overload
    def __call__(self, keys: Literal[True], values: Literal[False]) -> Iterator[_V_co]: ...

@type_check_only
class _Keys(Protocol[_V_co]):
    @overload
    def __call__(self, keys: bool = True, values: Literal[False] = False) -> Iterator[_V_co]: ...
    @overload
    def __call__(
        self, keys: Literal[True] = True, *, values: Literal[True]
    ) -> Iterator[tuple[_V_co, _V_co]]: ...
    @overload
    def __call__(
        self, keys: Literal[True], values: Literal[True]
    ) -> Iterator[tuple[_V_co, _V_co]]: ...
    @overload
    def __call__(self, keys: Literal[False], values: Literal[True]) -> Iterator[_V_co]: ...

class Cursor(Generic[_V_co]):
    def __new__(cls, db: _Database, txn: Transaction[_V_co]) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __iter__(self) -> Iterator[tuple[_V_co, _V_co]]: ...
    def close(self) -> None: ...
    def first(self) -> bool: ...
    def first_dup(self) -> bool: ...
    def last(self) -> bool: ...
    def last_dup(self) -> bool: ...
    def next(self) -> bool: ...
    def next_dup(self) -> bool: ...
    def next_nodup(self) -> bool: ...
    def prev(self) -> bool: ...
    def prev_dup(self) -> bool: ...
    def prev_nodup(self) -> bool: ...
    def set_key(self, key: Buffer) -> bool: ...
    def set_key_dup(self, key: Buffer, value: Buffer) -> bool: ...
    def set_range(self, key: Buffer) -> bool: ...
    def set_range_dup(self, key: Buffer, value: Buffer) -> bool: ...
    def key(self) -> _V_co: ...
    def value(self) -> _V_co: ...
    def item(self) -> tuple[_V_co, _V_co]: ...
    def count(self) -> int: ...
    def index(self) -> int: ...
    def set_index(self, index: int) -> bool: ...
    @overload
    def get(self, key: Buffer, default: None = None) -> _V_co | None: ...
    @overload
    def get(self, key: Buffer, default: _T) -> _V_co | _T: ...
    @overload
    def getmulti(
        self,
        keys: Iterable[Buffer],
        dupdata: bool = False,
        dupfixed_bytes: int | None = None,
        keyfixed: Literal[False] = False,
        values: Literal[True] = True,
    ) -> list[tuple[_V_co, _V_co]]: ...
    @overload
    def getmulti(
        self,
        keys: Iterable[Buffer],
        dupdata: Literal[False] = False,
        dupfixed_bytes: None = None,
        keyfixed: Literal[False] = False,
        *,
        values: Literal[False],
    ) -> list[_V_co]: ...
    @overload
    def getmulti(
        self,
        keys: Iterable[Buffer],
        dupdata: Literal[True],
        dupfixed_bytes: int,
        keyfixed: Literal[True],
        values: Literal[True] = True,
    ) -> memoryview: ...
    @overload
    def getmulti(
        self,
        keys: Iterable[Buffer],
        *,
        dupdata: Literal[True],
        dupfixed_bytes: int,
        keyfixed: Literal[True],
        values: Literal[True] = True,
    ) -> memoryview: ...
    @property
    def iternext(self) -> _Items[_V_co]: ...
    @property
    def iterprev(self) -> _Items[_V_co]: ...
    @property
    def iternext_dup(self) -> _Values[_V_co]: ...
    @property
    def iterprev_dup(self) -> _Values[_V_co]: ...
    @property
    def iternext_nodup(self) -> _Keys[_V_co]: ...
    @property
    def iterprev_nodup(self) -> _Keys[_V_co]: ...
    def put(
        self,
        key: Buffer,
        value: Buffer,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> bool: ...
    def putmulti(
        self,
        items: Iterable[tuple[Buffer, Buffer]],
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> tuple[int, int]: ...
    def replace(self, key: Buffer, value: Buffer) -> _V_co | None: ...
    def pop(self, key: Buffer) -> _V_co | None: ...
    def delete(self, dupdata: bool = False) -> bool: ...
