"""The work of a root's thread, done by the rank that waits for it, where no thread can be started.

A process that has no thread left (a container's limit, ulimit -u) reads a block when its loop asks
for one. A job of one rank alone does so: other ranks would wait for a loop that computes.
"""

from __future__ import annotations

from lmdbio.reader.root_thread import RootThread
from lmdbio.system.log import log

__all__ = ["carry", "launch", "wait_warm"]


def launch(thread: RootThread, *, is_alone: bool) -> None:
    """Start a root's thread, or have its rank do its work.

    Args:
        is_alone: whether the rank is the only one of its job.

    Raises:
        MemoryError, OSError: as ``RootThread.launch``, where other ranks would wait.
    """
    try:
        thread.launch()
    except (MemoryError, OSError) as error:
        if not is_alone:
            raise
        why = getattr(error, "strerror", None) or "no memory for a thread"
        log(f"{thread.path}: blocks are read when they are waited for: {why}")
        thread.turns = thread.work()
        next(thread.turns, None)  # it has begun, so that it has an end


def carry(thread: RootThread, block: int) -> bool:
    """Do the work of a root that has no thread until it has published a block, or has ended.

    Returns:
        Whether the block is published; the window is not looked at, which may be gone by now.
    """
    assert thread.turns is not None
    while thread.published <= block and thread.is_filling:
        next(thread.turns, None)
    return thread.published > block


def wait_warm(thread: RootThread, *, is_shown: bool) -> None:
    """Wait until all is there that is to be there before the first block; raise what fails."""
    from lmdbio.reader.warm_up import WarmUp  # others begin sooner without it

    if thread.turns is not None:
        carry(thread, 0)
    with WarmUp(thread._supply, is_shown=is_shown) as warm_up:
        warm_up.wait(thread._filled, lambda: thread.is_filling)
    if thread.error is not None:
        raise thread.error
