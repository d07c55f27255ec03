"""The names of ``_core``, with their types."""

from lmdbio._core.arrays import (
    EXTENT as EXTENT,
    READ as READ,
    Extents as Extents,
    SpanKind as SpanKind,
)
from lmdbio._core.bookmark import (
    BOOKMARK_BYTES_MAX as BOOKMARK_BYTES_MAX,
    bookmark_of as bookmark_of,
    go_to as go_to,
    skip_records as skip_records,
    walk_records as walk_records,
)
from lmdbio._core.checksum import (
    CHECKED_PAGE_BYTES as CHECKED_PAGE_BYTES,
    compare_sums as compare_sums,
    crc32c as crc32c,
    sum_pages as sum_pages,
)
from lmdbio._core.clock import (
    SOURCES as SOURCES,
    run_clock as run_clock,
)
from lmdbio._core.codec import (
    BLOCK_LEAVES_MAX as BLOCK_LEAVES_MAX,
    BLOCK_RAW_BYTES_MAX as BLOCK_RAW_BYTES_MAX,
    BLOCK_RECORDS_MAX as BLOCK_RECORDS_MAX,
    LEAF as LEAF,
    Block as Block,
    BlockForm as BlockForm,
    Leaves as Leaves,
    check_leaves as check_leaves,
    decode_block as decode_block,
    decode_leaves as decode_leaves,
    encode_block as encode_block,
    encode_leaves as encode_leaves,
)
from lmdbio._core.cursor import (
    WANT_KEY as WANT_KEY,
    WANT_VALUE as WANT_VALUE,
    Cursor as Cursor,
    EmptyKeyError as EmptyKeyError,
    Move as Move,
    NoDuplicatesError as NoDuplicatesError,
    Pages as Pages,
    Snapshot as Snapshot,
    UnplacedError as UnplacedError,
    fetcher as fetcher,
    finder as finder,
)
from lmdbio._core.datum import (
    DATUM as DATUM,
    copy_datum_floats as copy_datum_floats,
    parse_datums as parse_datums,
)
from lmdbio._core.engine import (
    Engine as Engine,
    Ticket as Ticket,
)
from lmdbio._core.exchange import (
    ASKING as ASKING,
    SERVING as SERVING,
    Arrival as Arrival,
    Exchange as Exchange,
    Exchanged as Exchanged,
    MpiLibrary as MpiLibrary,
    Shipment as Shipment,
    probe_mpi as probe_mpi,
)
from lmdbio._core.extents import (
    Packed as Packed,
    count_inside as count_inside,
    count_same as count_same,
    extents_beyond as extents_beyond,
    find_extents as find_extents,
    footprint as footprint,
    mark_extents as mark_extents,
    pack_extents as pack_extents,
    place_extents as place_extents,
    split_rows as split_rows,
    take_extents as take_extents,
)
from lmdbio._core.format import (
    Database as Database,
    Layout as Layout,
    Meta as Meta,
    Probe as Probe,
    meta_bytes as meta_bytes,
    monitor as monitor,
    newest_txnid as newest_txnid,
    probe as probe,
    probe_whole as probe_whole,
    read_meta as read_meta,
)
from lmdbio._core.history import (
    History as History,
    Replayed as Replayed,
    SplitRule as SplitRule,
    capacities as capacities,
    compare_keys as compare_keys,
    replay as replay,
    settle_keys as settle_keys,
)
from lmdbio._core.joined import (
    PART as PART,
    PART_ALIGNMENT as PART_ALIGNMENT,
    JoinedEngine as JoinedEngine,
)
from lmdbio._core.keys import (
    KEY_RUNS_MAX as KEY_RUNS_MAX,
    KeyFinder as KeyFinder,
    KeyForm as KeyForm,
    KeyRun as KeyRun,
)
from lmdbio._core.locate import (
    DEPTH_MAX as DEPTH_MAX,
    Chunk as Chunk,
    LeafItems as LeafItems,
    Trees as Trees,
    Walk as Walk,
    database_key as database_key,
    find_database as find_database,
    key_places as key_places,
    leaf_databases as leaf_databases,
    leaf_extents as leaf_extents,
    leaf_items as leaf_items,
    leaf_keys as leaf_keys,
    leaves_of as leaves_of,
    tree_items as tree_items,
)
from lmdbio._core.memory import (
    MappedMemory as MappedMemory,
    Memory as Memory,
    MemoryPool as MemoryPool,
    address_of as address_of,
    copy_rows as copy_rows,
    keep_heap as keep_heap,
    lend as lend,
)
from lmdbio._core.mesh import Mesh as Mesh, MeshMessage as MeshMessage, PeerState as PeerState
from lmdbio._core.opened import EngineCounts as EngineCounts
from lmdbio._core.peeked import (
    Branch as Branch,
    Peeked as Peeked,
    read_branch as read_branch,
    read_head as read_head,
    read_part as read_part,
)
from lmdbio._core.plan import (
    Plan as Plan,
    PlanTotals as PlanTotals,
    make_plan as make_plan,
)
from lmdbio._core.prefetch import (
    Prefetch as Prefetch,
)
from lmdbio._core.remote import (
    RemoteFile as RemoteFile,
)
from lmdbio._core.rows import (
    ROW_ALIGNMENT as ROW_ALIGNMENT,
    TABLE_ROW_BYTES as TABLE_ROW_BYTES,
    Copier as Copier,
    Copying as Copying,
    LaidOut as LaidOut,
    Loaded as Loaded,
    lay_out as lay_out,
    rows_room as rows_room,
    write_table as write_table,
)
from lmdbio._core.scan import (
    Items as Items,
    Scan as Scan,
)
from lmdbio._core.sources import (
    NO_HOME as NO_HOME,
    OwnerTable as OwnerTable,
    RoundTable as RoundTable,
    Seats as Seats,
    Shuffling as Shuffling,
    find_block_sources as find_block_sources,
    find_home_uses as find_home_uses,
    find_homes as find_homes,
    find_records as find_records,
    find_round_uses as find_round_uses,
    find_teams as find_teams,
)
from lmdbio._core.status import SLICE_MS as SLICE_MS
from lmdbio._core.storage import (
    Descriptor as Descriptor,
    Ground as Ground,
    inspect_at as inspect_at,
    release_range as release_range,
)
from lmdbio._core.trace import (
    Traced as Traced,
    ring as ring,
)
from lmdbio._core.transaction import (
    Begins as Begins,
    Names as Names,
    Stands as Stands,
    Transacts as Transacts,
)
from lmdbio._core.values import (
    Gatherer as Gatherer,
    Values as Values,
    value_getter as value_getter,
)
from lmdbio._core.window import (
    Mapping as Mapping,
    Window as Window,
    map_again as map_again,
    populate as populate,
)

absence: str

def need(what: str) -> None: ...
