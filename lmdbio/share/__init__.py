"""share: the ranks of a job, and the memory that those of one node share. All the MPI is here.

Uses mpi4py, ``planning`` and ``_core``.

    job       all ranks of the communicator
    machine   ranks that share memory and its budget (one kernel)
    node      ranks that share a window: those that share memory, split further by
              ``ranks_per_node`` to play several nodes on one machine
    team      the ranks of a node that one root serves; the root is its first

A transport (``transport``) carries the messages of a job: MPI (``mpi``, ``mpi_channel``), or
sockets of our own (``sockets``, ``node_memory``), where torch.distributed or another store lets
the ranks meet (``meeting``). Each node has a window, in which each root owns a part, and the part
of node rank 0 begins with the control area (csrc/window.h):

    [control][slot 0: table | data][slot 1: table | data] ...   [slot 0 ...]   ...
     part of node rank 0, a root                                 next root's part

Ranks make collective calls when they make a Reader, and from main threads alone. A step that fails
there fails on all ranks together (``Job.together``). Between making and closing, threads of roots
send each other short letters (``Mail``): turns to read (``Turns``), cursors, and which rank has
failed. No root depends on a letter: a rank that has failed, or does not get round to answering,
hangs no other. Closing is collective over a node, for its window. Without a communicator one
process does all and does not import mpi4py.
"""

from lmdbio.share.exchange import Exchange, find_library
from lmdbio.share.job import (
    LAUNCHED,
    RANKS_PER_NODE,
    Job,
    connect,
    count_nodes,
    ranks_per_node,
    teams,
    world,
)
from lmdbio.share.mail import (
    Kind,
    Letter,
    Mail,
    failure_letter,
    failure_of,
    next_number,
    open_mail,
)
from lmdbio.share.memory import SharedMemory, shm_free
from lmdbio.share.ring import Ring
from lmdbio.share.transport import before_finalize, describe
from lmdbio.share.turns import Pass, Turns, chain_of
from lmdbio.share.window import (
    SLOT_ALIGNMENT,
    Layout,
    NodeWindow,
    attach_window,
    control_bytes,
)

__all__ = [
    "Exchange",
    "Job",
    "Kind",
    "LAUNCHED",
    "Layout",
    "Letter",
    "Mail",
    "NodeWindow",
    "Pass",
    "RANKS_PER_NODE",
    "Ring",
    "SLOT_ALIGNMENT",
    "SharedMemory",
    "Turns",
    "attach_window",
    "before_finalize",
    "chain_of",
    "connect",
    "control_bytes",
    "count_nodes",
    "describe",
    "failure_letter",
    "failure_of",
    "find_library",
    "next_number",
    "open_mail",
    "ranks_per_node",
    "shm_free",
    "teams",
    "world",
]
