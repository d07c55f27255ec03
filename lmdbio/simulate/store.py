"""store: a striped parallel file system and its clients, as a value. Pure.

    nodes      link_rate each; mappings ask for readahead windows, roots for large requests
      |
    servers    each takes pieces of stripes in the order of their coming: the bytes at server_rate,
               and a move first for a piece that does not follow the last one of its file there

``servers`` runs the events, ``modes`` reads a data set with them, or by closed forms.
Sizes are bytes, rates bytes per second.

Source: LMDBIO (ACM TOPC 2019), sections 3.3 and 4; benchmarks/pfs/model.h for the servers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from lmdbio.planning.reads import GAP_BYTES_MAX, PAGE_BYTES

__all__ = ["STORES", "Store"]

KIB, MIB = 1 << 10, 1 << 20
#: Of servers and requests; more are a mistake.
NUMBER_MAX = 100_000
#: Of durations, seconds.
SECONDS_MAX = 1e6
#: Of sizes and rates, bytes.
BYTES_MAX = 1e18


@dataclass(frozen=True, slots=True)
class Store:
    """A store, the links to it, and how its clients ask.

    Attributes:
        servers: number of servers that a file is striped over.
        stripe_bytes: consecutive bytes on one server.
        server_rate: bytes per second that a server's disks give, to all nodes together.
        memory_rate: bytes per second that a server gives of what it has just read for another
            node, to all nodes together; 0: it keeps nothing. Of readers that walk; roots read
            no byte twice.
        request_seconds: latency of a request, of network and scheduling; overlaps between
            requests.
        out_of_order_seconds: a server's, before a piece that does not follow the last one.
        link_rate: bytes per second of each node.
        readahead_bytes: size of a window that the kernel reads for a mapping.
        readahead_windows: number of such windows in flight for one reader.
        request_bytes: largest size of an explicit read.
        depth: explicit reads of a root that are in flight.
        gap_bytes: unneeded bytes that an explicit read takes rather than ending before them.
        block_bytes: size of what a root coalesces, about.
        buffer_bytes: size of a root's buffer for a block.
        early_turns: a root hands its token on when it has asked for all of a block; else when it
            has all of it.
        hop_seconds: time until a token or a cursor is at the next root.
        fault_seconds: time of a process to map one page.
        wake_seconds: time of a node's scheduler to wake one process in vain when a page has come.

    Raises:
        ValueError: a value out of range; names it.
    """

    servers: int
    stripe_bytes: int
    server_rate: float
    request_seconds: float
    out_of_order_seconds: float
    link_rate: float
    memory_rate: float = 0.0
    readahead_bytes: int = 128 * KIB
    readahead_windows: int = 2
    request_bytes: int = MIB
    depth: int = 8
    gap_bytes: int = 0
    block_bytes: int = 2_500_000_000
    buffer_bytes: int = 2_500_000_000
    early_turns: bool = False
    hop_seconds: float = 0.0
    fault_seconds: float = 0.0
    wake_seconds: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value, name = getattr(self, each.name), each.name
            if name.endswith("seconds"):
                least, most = 0.0, SECONDS_MAX
            elif name in ("servers", "depth", "readahead_windows"):
                least, most = 1, NUMBER_MAX
            elif name in ("memory_rate", "early_turns", "gap_bytes"):
                least, most = 0, BYTES_MAX
            else:
                least, most = PAGE_BYTES if name.endswith("bytes") else 1, BYTES_MAX
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least:g} to {most:g}, not {value}")


#: How a Reader reads through mounts of the benchmarks' modelled store.
MODEL = Store(
    # benchmarks/pfs/model.conf.
    servers=4,
    stripe_bytes=MIB,
    server_rate=100e6,
    request_seconds=0.5e-3,
    out_of_order_seconds=2e-3,
    link_rate=150e6,
    # The kernel asks FUSE for no more at once, and where there is no disk 16 are in flight.
    request_bytes=MIB,
    depth=16,
    # A block aims for so much where roots take turns (reader/block_size).
    gap_bytes=GAP_BYTES_MAX,
    block_bytes=16 * MIB,
    early_turns=True,
    # Between threads of Python.
    hop_seconds=1.5e-3,
)

#: Bebop's GPFS of 110 TB behind 10 servers, as the paper's section 3.1 describes it. Three ratios
#: were fitted on three factors that the paper prints of 4,608 ranks (LMDB over LMM-DM, PROV and
#: STAG): memory_rate and out_of_order_seconds to server_rate, and readahead_windows. The others
#: stand where such a system had them in 2018. The paper prints no seconds, so all rates and times
#: could be longer by one and the same factor.
BEBOP = Store(
    servers=10,
    # A block of GPFS; 0.25 to 4 MiB were usual.
    stripe_bytes=512 * KIB,
    # Some RAIDs of 7,200 rpm disks, whose blocks GPFS scatters: half of their rate in order.
    server_rate=400e6,
    # A link of 10 Gb/s that jobs of two clusters share: half of it.
    memory_rate=640e6,
    # A round trip and the two daemons.
    request_seconds=0.2e-3,
    # Such a disk seeks and turns for 8 ms, and a RAID has several places at work.
    out_of_order_seconds=2.4e-3,
    # Omni-Path, 100 Gb/s.
    link_rate=10e9,
    # A mapping waits for what it touches (section 3.3.3): one window at a time.
    readahead_windows=1,
    # GPFS reads whole blocks, and some ahead of one stream.
    request_bytes=512 * KIB,
    depth=16,
    # Section 4.5.
    block_bytes=2_500_000_000,
    buffer_bytes=2_500_000_000,
    # A small message from root to root, and two processes that find it.
    hop_seconds=10e-6,
    # A minor fault of 0.5 to 1 us maps up to 16 pages that are there.
    fault_seconds=0.25e-6,
    # Two switches of a context, about 1 us each.
    wake_seconds=2e-6,
)

STORES = {"bebop": BEBOP, "model": MODEL}
