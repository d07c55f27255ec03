"""posix: what modules name as they load, and Windows has not: fcntl, resource, flags of ``open``.

There it stands for these and nobody calls it: what locks files needs the C core.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import fcntl
    import resource
else:
    try:
        import fcntl
        import resource
    except ImportError:
        from types import SimpleNamespace

        fcntl = resource = SimpleNamespace(LOCK_EX=0)

__all__ = ["OPEN_FLAGS", "fcntl", "resource"]

#: Neither links nor pipes are followed.
OPEN_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
