"""_core: the seam to the C core, the only room that touches ``ffi`` and ``lib``.

Uses ``errors``, ``remote``, ``system.fork`` and the extension, whose Python objects are made by
glue/*.h.

Each file is a thin, typed shape over rooms of ``csrc/``: it owns what C hands out, turns
status codes into exceptions that name the file, and passes arrays by address.

Long waits are sliced (at most ``SLICE_MS``) back to Python, so that signals are seen.
"""

from lmdbio._core import compiled  # noqa: F401  (before any module that needs the extension)
from lmdbio._core.bookmark import (
    BOOKMARK_BYTES_MAX,
    bookmark_of,
    go_to,
    skip_records,
    walk_records,
)
from lmdbio._core.cells import Cells
from lmdbio._core.checksum import CHECKED_PAGE_BYTES, compare_sums, crc32c, sum_pages
from lmdbio._core.clock import CLOCK_FLAGS, SOURCES, run_clock
from lmdbio._core.codec import (
    BLOCK_LEAVES_MAX,
    BLOCK_RAW_BYTES_MAX,
    BLOCK_RECORDS_MAX,
    LEAF,
    Block,
    BlockForm,
    Leaves,
    check_leaves,
    decode_block,
    decode_leaves,
    encode_block,
    encode_leaves,
)
from lmdbio._core.copier import Copier, Copying
from lmdbio._core.cursor import (
    WANT_KEY,
    WANT_VALUE,
    Cursor,
    EmptyKeyError,
    Move,
    NoDuplicatesError,
    Pages,
    Snapshot,
    UnplacedError,
    fetcher,
    finder,
)
from lmdbio._core.descriptor import Descriptor
from lmdbio._core.engine import Engine, Ticket
from lmdbio._core.exchange import (
    ASKING,
    SERVING,
    Arrival,
    Exchange,
    Exchanged,
    MpiLibrary,
    Shipment,
    probe_mpi,
)
from lmdbio._core.extents import (
    count_inside,
    count_same,
    extents_beyond,
    find_extents,
    footprint,
    largest_run,
    mark_extents,
    pack_extents,
    place_extents,
    split_rows,
    take_extents,
)
from lmdbio._core.format import (
    Database,
    Layout,
    Look,
    Meta,
    look,
    look_whole,
    meta_bytes,
    newest_txnid,
    read_meta,
    watch,
)
from lmdbio._core.gather import Gatherer
from lmdbio._core.history import History, Replayed, SplitRule, capacities, replay
from lmdbio._core.insertion import compare_keys, settle_keys
from lmdbio._core.items import LeafItems, key_places, leaf_items, leaf_keys, tree_items
from lmdbio._core.joined import PART, PART_ALIGNMENT, JoinedEngine
from lmdbio._core.keys import KEY_BYTES_MAX, KEY_RUNS_MAX, KeyFinder, KeyForm, KeyRun
from lmdbio._core.locate import (
    DEPTH_MAX,
    Chunk,
    Trees,
    Walk,
    database_key,
    find_database,
    leaf_databases,
    leaf_extents,
    leaves_of,
)
from lmdbio._core.memory import (
    MappedMemory,
    Memory,
    MemoryPool,
    address_of,
    copy_rows,
    keep_heap,
    lend,
)
from lmdbio._core.opened import Counters, EngineCounts
from lmdbio._core.opening import open_data
from lmdbio._core.order import Shuffling
from lmdbio._core.peek import Branch, Peeked, peek, read_branch, read_part
from lmdbio._core.plan import Plan, PlanTotals, make_plan
from lmdbio._core.position import Stands
from lmdbio._core.prefetch import Prefetch, Sweep
from lmdbio._core.remote import RemoteFile
from lmdbio._core.rows import (
    ROW_ALIGNMENT,
    TABLE_ROW_BYTES,
    LaidOut,
    Loaded,
    lay_out,
    rows_room,
    write_table,
)
from lmdbio._core.scan import Items, Scan
from lmdbio._core.soonest import NEVER, Soonest, Used
from lmdbio._core.sources import (
    NO_HOME,
    Keepers,
    RoundTable,
    Seats,
    find_block_sources,
    find_home_uses,
    find_homes,
    find_records,
    find_round_uses,
    find_teams,
)
from lmdbio._core.status import EXTENT, READ, SLICE_MS, Extents
from lmdbio._core.storage import Ground, look_at, release_range
from lmdbio._core.trace import SpanKind, Traced, ring
from lmdbio._core.traffic import TRAFFIC_FLAGS, run_traffic
from lmdbio._core.transaction import Begins, Names, Transacts
from lmdbio._core.values import Values, value_holder
from lmdbio._core.window import Mapping, Window, map_again, populate

__all__ = [
    "ASKING",
    "Arrival",
    "Exchange",
    "JoinedEngine",
    "PART",
    "PART_ALIGNMENT",
    "Exchanged",
    "MpiLibrary",
    "SERVING",
    "Shipment",
    "probe_mpi",
    "Begins",
    "Stands",
    "Names",
    "Transacts",
    "BLOCK_LEAVES_MAX",
    "BLOCK_RAW_BYTES_MAX",
    "BLOCK_RECORDS_MAX",
    "Block",
    "BlockForm",
    "DEPTH_MAX",
    "Chunk",
    "Copier",
    "Copying",
    "Counters",
    "Cursor",
    "Database",
    "Descriptor",
    "EXTENT",
    "EmptyKeyError",
    "Engine",
    "Extents",
    "Gatherer",
    "Ground",
    "History",
    "Items",
    "KEY_BYTES_MAX",
    "KEY_RUNS_MAX",
    "KeyFinder",
    "KeyForm",
    "KeyRun",
    "LEAF",
    "Layout",
    "Look",
    "LeafItems",
    "Leaves",
    "NO_HOME",
    "CHECKED_PAGE_BYTES",
    "compare_sums",
    "crc32c",
    "sum_pages",
    "MappedMemory",
    "Memory",
    "MemoryPool",
    "Meta",
    "Move",
    "NoDuplicatesError",
    "Pages",
    "BOOKMARK_BYTES_MAX",
    "Plan",
    "PlanTotals",
    "Branch",
    "Peeked",
    "peek",
    "read_branch",
    "read_part",
    "READ",
    "RemoteFile",
    "Replayed",
    "SLICE_MS",
    "Scan",
    "Snapshot",
    "SpanKind",
    "SplitRule",
    "Prefetch",
    "Sweep",
    "EngineCounts",
    "Ticket",
    "Traced",
    "UnplacedError",
    "Values",
    "WANT_KEY",
    "WANT_VALUE",
    "Trees",
    "Walk",
    "Window",
    "address_of",
    "capacities",
    "check_leaves",
    "count_inside",
    "count_same",
    "database_key",
    "decode_block",
    "decode_leaves",
    "encode_block",
    "encode_leaves",
    "fetcher",
    "finder",
    "compare_keys",
    "find_database",
    "find_extents",
    "extents_beyond",
    "footprint",
    "go_to",
    "keep_heap",
    "key_places",
    "largest_run",
    "mark_extents",
    "leaf_databases",
    "leaf_extents",
    "leaf_items",
    "leaf_keys",
    "leaves_of",
    "copy_rows",
    "lend",
    "look_at",
    "release_range",
    "make_plan",
    "look",
    "look_whole",
    "meta_bytes",
    "newest_txnid",
    "open_data",
    "pack_extents",
    "place_extents",
    "LaidOut",
    "Loaded",
    "ROW_ALIGNMENT",
    "TABLE_ROW_BYTES",
    "RoundTable",
    "Seats",
    "Shuffling",
    "find_block_sources",
    "find_home_uses",
    "find_homes",
    "find_records",
    "lay_out",
    "rows_room",
    "take_extents",
    "write_table",
    "find_round_uses",
    "find_teams",
    "Keepers",
    "Cells",
    "NEVER",
    "Soonest",
    "Used",
    "CLOCK_FLAGS",
    "SOURCES",
    "run_clock",
    "TRAFFIC_FLAGS",
    "run_traffic",
    "bookmark_of",
    "populate",
    "read_meta",
    "replay",
    "ring",
    "skip_records",
    "split_rows",
    "settle_keys",
    "tree_items",
    "value_holder",
    "walk_records",
    "watch",
    "Mapping",
    "map_again",
]
