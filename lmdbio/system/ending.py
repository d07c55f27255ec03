"""ending: calls at the end of a process, be it one of multiprocessing's."""

from __future__ import annotations

import atexit
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_end"]


def at_end(call: Callable[[], None]) -> None:
    """Have something called when this process ends by itself; it may be called twice.

    multiprocessing's processes run no exit functions. A process that this one forks must ask anew.
    """
    atexit.register(call)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, call, exitpriority=0)
