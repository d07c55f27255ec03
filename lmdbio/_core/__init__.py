"""_core: the seam to the C core, the only room that touches ``ffi`` and ``lib``.

Uses ``errors``, ``system`` and the extension, whose Python objects are made by glue/.

Each file is a thin, typed shape over rooms of ``csrc/``: it owns what C hands out, turns
status codes into exceptions that name the file, and passes arrays by address.

Long waits are sliced (at most ``SLICE_MS``) back to Python, so that signals are seen.

A name is loaded when it is first asked for: ``lmdbio.open`` uses few of these modules, and most
others need NumPy, which takes longer to load than a file to open. For type checkers
``__init__.pyi`` has all names of these modules; tests/_core holds lmdbio to those listed here.

Where the extension is not here (macOS, Windows, ``LMDBIO_CORE=0``), ``compiled`` stands for its
names: lmdbio reads through py-lmdb then (``portable``), and ``need`` refuses all else.
"""

import os

#: The reason why the C core is not here, as a clause; "": it is.
absence = ""
try:
    if os.environ.get("LMDBIO_CORE") == "0":
        raise ImportError("LMDBIO_CORE=0 leaves it out")
    from lmdbio._core import _lmdbio as _lmdbio
except ImportError as error:
    from lmdbio._core import compiled as compiled

    absence = compiled.explain(error)
    compiled.report(absence)

#: The names of each module.
_NAMES = {
    "arrays": ("EXTENT", "Extents", "READ", "SpanKind"),
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
        "mark_extents",
        "pack_extents",
        "place_extents",
        "split_rows",
        "take_extents",
    ),
    "format": (
        "Database",
        "Layout",
        "Probe",
        "Meta",
        "probe",
        "probe_whole",
        "meta_bytes",
        "newest_txnid",
        "read_meta",
        "monitor",
    ),
    "history": (
        "capacities",
        "compare_keys",
        "History",
        "replay",
        "Replayed",
        "settle_keys",
        "SplitRule",
    ),
    "joined": ("JoinedEngine", "PART", "PART_ALIGNMENT"),
    "keys": ("KEY_RUNS_MAX", "KeyFinder", "KeyForm", "KeyRun"),
    "locate": (
        "Chunk",
        "database_key",
        "DEPTH_MAX",
        "find_database",
        "key_places",
        "leaf_databases",
        "leaf_extents",
        "leaf_items",
        "leaf_keys",
        "LeafItems",
        "leaves_of",
        "tree_items",
        "Trees",
        "Walk",
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
    "mesh": ("Mesh", "MeshMessage", "PeerState"),
    "opened": ("EngineCounts",),
    "peeked": ("Branch", "Peeked", "read_head", "read_branch", "read_part"),
    "plan": ("Plan", "PlanTotals", "make_plan"),
    "prefetch": ("Prefetch",),
    "remote": ("RemoteFile",),
    "rows": (
        "Copier",
        "Copying",
        "LaidOut",
        "lay_out",
        "Loaded",
        "ROW_ALIGNMENT",
        "rows_room",
        "TABLE_ROW_BYTES",
        "write_table",
    ),
    "scan": ("Items", "Scan"),
    "sources": (
        "find_block_sources",
        "find_home_uses",
        "find_homes",
        "find_records",
        "find_round_uses",
        "find_teams",
        "OwnerTable",
        "NO_HOME",
        "RoundTable",
        "Seats",
        "Shuffling",
    ),
    "status": ("SLICE_MS",),
    "storage": ("Descriptor", "Ground", "inspect_at", "release_range"),
    "trace": ("Traced", "ring"),
    "transaction": ("Begins", "Names", "Stands", "Transacts"),
    "values": ("Gatherer", "value_getter", "Values"),
    "window": ("Mapping", "Window", "map_again", "populate"),
}
_LATER = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_LATER)


def need(what: str) -> None:
    """Raise ImportError where the C core is not here.

    Args:
        what: name of what cannot do without it, for people.
    """
    if absence:
        raise ImportError(
            f"{what} needs lmdbio's C core, which is not here: {absence}. Here work lmdbio.open, "
            "Records, Mix, Zip and Writer, and of lmdbio.torch Dataset, BatchSampler, "
            "IterableDataset and Loader without cache=",
            name=f"{__name__}._lmdbio",
        )


def __getattr__(name: str) -> object:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if absence:
        found = globals()[name] = compiled.stand_in(name, need)
        return found
    found = globals()[name] = getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*_LATER, *globals()})
