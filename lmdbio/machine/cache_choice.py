"""cache_choice: what ``cache="auto"`` comes to, and what another order would gain. Pure.

    asked, nodes, storage            -> does a job keep what it has read?
    memory and disk of a node        -> how much of it, at most
    what is kept, records, the order -> a hint

"auto" never changes an order, an assignment or a mode: what would gain by that is told as a hint.

| where | "auto" keeps | because |
|---|---|---|
| one node | nothing | its page cache keeps what is read, and gives way to programs |
| several nodes, disks of their own | nothing | the same, on each node |
| several nodes, one file | homes: each part on one node | each byte is read once for all nodes |

No other placement reads less in an exact order: in each epoch all records are used once, so that
whatever is kept, as many bytes as have no room are read again.

A node keeps up to half of the memory that it has left, and half of what is free in the folder that
LMDBIO_CACHE_DIR names, if it names one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmdbio.machine.choice import Reason
from lmdbio.system.amounts import PAGE_BYTES
from lmdbio.system.frozen import dataclass

if TYPE_CHECKING:  # which brings all orders
    from lmdbio.placement.cache import Cache

__all__ = [
    "FOLDER_VARIABLE",
    "AutoCache",
    "auto_cache",
    "auto_memory",
    "choose_cache",
    "order_hint",
]

#: "auto" takes a part of the memory that a node has left, at most: a half.
AUTO_PART = 2
#: The folder of a disk for "auto".
FOLDER_VARIABLE = "LMDBIO_CACHE_DIR"
#: A hint is given where another order needs so many times fewer requests, of so many at least.
FEWER, FEW = 4, 256

MIB = 1 << 20


def choose_cache(
    asked: Cache | str | None, *, nodes: int, is_shared: bool
) -> tuple[Cache | str | None, Reason]:
    """Return which cache roots are to have, and why.

    Args:
        asked: choice of the caller; "auto": a cache where several nodes read one file.
        nodes: number of nodes in the job.
        is_shared: whether all roots read one file on storage that nodes share.

    Returns:
        A cache; "auto": as much as there is; None: none.
    """
    gains = nodes > 1 and is_shared
    if asked is None:
        more = '; with cache="auto" each part of the file would be read once for all nodes'
        return None, Reason("keyword", "no root keeps what it has read" + more * gains)
    if not isinstance(asked, str | None) or gains:
        return asked, Reason("keyword", "")
    what = "there is one node" if nodes == 1 else "nodes share no storage that is far"
    return None, Reason("facts", f"{what}: the page cache keeps what is read")


def auto_memory(available_bytes: int, beside_bytes: int) -> int:
    """Return how many bytes of memory "auto" keeps at most.

    Args:
        available_bytes: memory that a root can have, bytes.
        beside_bytes: part of that memory which the root takes beside the cache, bytes.
    """
    return max(0, available_bytes - beside_bytes) // AUTO_PART


@dataclass(frozen=True, slots=True)
class AutoCache:
    """The room behind "auto" in a job of several nodes like this one.

    Attributes:
        memory_bytes: largest part of each node's memory, bytes; 0: nothing is kept.
        disk_bytes: largest part of the folder's disk, bytes; 0: there is none.
        nodes: number of nodes that hold the whole file; 0: nothing is kept.
        reason: reason for the outcome.
    """

    memory_bytes: int
    disk_bytes: int
    nodes: int
    reason: Reason


def auto_cache(
    file_bytes: int, *, is_far: bool, available_bytes: int, beside_bytes: int, disk_bytes: int = 0
) -> AutoCache:
    """Return what "auto" comes to in a job of several nodes like this one, with a root each.

    Args:
        file_bytes: size of the data file, bytes.
        is_far: whether it lies neither on a disk of this machine nor in its memory.
        available_bytes, beside_bytes: memory of a root, as of ``auto_memory``, bytes.
        disk_bytes: free for caches in the folder that the environment names.
    """
    if not is_far:
        text = "a file of this machine: its page cache keeps what is read"
        return AutoCache(0, 0, 0, Reason("facts", text))
    memory = auto_memory(available_bytes, beside_bytes)
    room = memory + disk_bytes
    if not room:
        return AutoCache(0, 0, 0, Reason("facts", "a node has no memory left for it"))
    nodes = max(1, -(-file_bytes // room))
    text = f"half of the memory that this node has left, {memory // MIB:,} MiB"
    if disk_bytes:
        text += f", and of what is free on its disk, {disk_bytes // MIB:,} MiB"
    whole = f"{nodes} such nodes hold" if nodes > 1 else "a node holds"
    return AutoCache(memory, disk_bytes, nodes, Reason("facts", f"{text}: {whole} the whole file"))


def order_hint(*, left_records: int, left_bytes: int, request_bytes: int, is_cached: bool) -> str:
    """Return what an order by windows would gain over an exact one; "" where that is little.

    Args:
        left_records: number of records of an epoch that no node keeps, each read by itself.
        left_bytes: number of bytes of the file that these records take.
        request_bytes: size of the largest request, bytes.
        is_cached: whether other records are kept.
    """
    if left_records < FEW:
        return ""
    each = left_bytes / left_records
    single = left_records * max(1.0, -(-each // request_bytes))
    joined = max(1, -(-left_bytes // request_bytes))
    if single < FEWER * joined or each >= request_bytes - PAGE_BYTES:
        return ""
    words = 'a Reader\'s shuffle="window"'
    words = (
        f"{words} and placement=mixed" if is_cached else f"{words} (a Loader's Shuffle.windows)"
    )
    return (
        f"an epoch reads {left_records:,} records one by one; with {words}, which is another "
        f"order, about {joined:,} request{'s' * (joined > 1)}"
    )
