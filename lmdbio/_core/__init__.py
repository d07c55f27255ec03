"""_core: the seam to the C core, the only room that touches ``ffi`` and ``lib``.

Uses ``errors``, ``system`` and the extension, whose Python objects are made by glue/.

Each file is a thin, typed shape over rooms of ``csrc/``: it owns what C hands out, turns
status codes into exceptions that name the file, and passes arrays by address.

Long waits are sliced (at most ``SLICE_MS``) back to Python, so that signals are seen.

A name is loaded when it is first asked for: ``lmdbio.open`` uses few of these modules, and most
others need NumPy, which takes longer to load than a file to open. ``__init__.pyi`` has the same
names, with their types.
"""

try:
    from lmdbio._core import _lmdbio as _lmdbio
except ImportError:
    from lmdbio._core import compiled as compiled  # which says in words what is missing

    raise

#: The names of each module.
_NAMES = {
    "arrays": ("EXTENT", "Extents", "READ"),
    "bookmark": ("BOOKMARK_BYTES_MAX", "bookmark_of", "go_to", "skip_records", "walk_records"),
    "checksum": ("CHECKED_PAGE_BYTES", "compare_sums", "crc32c", "sum_pages"),
    "clock": ("SOURCES", "run_clock"),
    "codec": (
        "BLOCK_LEAVES_MAX",
        "BLOCK_RAW_BYTES_MAX",
        "BLOCK_RECORDS_MAX",
        "Block",
        "BlockForm",
        "LEAF",
        "Leaves",
        "check_leaves",
        "decode_block",
        "decode_leaves",
        "encode_block",
        "encode_leaves",
    ),
    "copier": ("Copier", "Copying"),
    "cursor": (
        "Cursor",
        "EmptyKeyError",
        "Move",
        "NoDuplicatesError",
        "Pages",
        "Snapshot",
        "UnplacedError",
        "WANT_KEY",
        "WANT_VALUE",
        "fetcher",
        "finder",
    ),
    "datum": ("DATUM", "copy_datum_floats", "parse_datums"),
    "descriptor": ("Descriptor",),
    "engine": ("Engine", "Ticket"),
    "exchange": (
        "ASKING",
        "Arrival",
        "Exchange",
        "Exchanged",
        "MpiLibrary",
        "SERVING",
        "Shipment",
        "probe_mpi",
    ),
    "extents": (
        "Packed",
        "count_inside",
        "count_same",
        "extents_beyond",
        "find_extents",
        "footprint",
        "largest_run",
        "mark_extents",
        "pack_extents",
        "place_extents",
        "split_rows",
        "take_extents",
    ),
    "format": (
        "Database",
        "Layout",
        "Look",
        "Meta",
        "look",
        "look_whole",
        "meta_bytes",
        "newest_txnid",
        "read_meta",
        "watch",
    ),
    "gather": ("Gatherer",),
    "history": ("History", "Replayed", "SplitRule", "capacities", "replay"),
    "insertion": ("compare_keys", "settle_keys"),
    "items": ("LeafItems", "key_places", "leaf_items", "leaf_keys", "tree_items"),
    "joined": ("JoinedEngine", "PART", "PART_ALIGNMENT"),
    "keys": ("KEY_RUNS_MAX", "KeyFinder", "KeyForm", "KeyRun"),
    "locate": (
        "Chunk",
        "DEPTH_MAX",
        "Trees",
        "Walk",
        "database_key",
        "find_database",
        "leaf_databases",
        "leaf_extents",
        "leaves_of",
    ),
    "memory": (
        "MappedMemory",
        "Memory",
        "MemoryPool",
        "address_of",
        "copy_rows",
        "keep_heap",
        "lend",
    ),
    "opened": ("Counters", "EngineCounts"),
    "order": ("Shuffling",),
    "peeked": ("Branch", "Peeked", "peek", "read_branch", "read_part"),
    "plan": ("Plan", "PlanTotals", "make_plan"),
    "position": ("Stands",),
    "prefetch": ("Prefetch",),
    "remote": ("RemoteFile",),
    "rows": (
        "LaidOut",
        "Loaded",
        "ROW_ALIGNMENT",
        "TABLE_ROW_BYTES",
        "lay_out",
        "rows_room",
        "write_table",
    ),
    "scan": ("Items", "Scan"),
    "sources": (
        "Keepers",
        "NO_HOME",
        "RoundTable",
        "Seats",
        "find_block_sources",
        "find_home_uses",
        "find_homes",
        "find_records",
        "find_round_uses",
        "find_teams",
    ),
    "status": ("SLICE_MS",),
    "storage": ("Ground", "look_at", "release_range"),
    "spans": ("SpanKind",),
    "trace": ("Traced", "ring"),
    "transaction": ("Begins", "Names", "Transacts"),
    "values": ("Values", "value_holder"),
    "window": ("Mapping", "Window", "map_again", "populate"),
}
_LATER = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_LATER)


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*_LATER, *globals()})
