"""A bound on the memory of all ranks, for as long as a ``with`` lasts: a control group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command import Missing, remove_group

#: By cgroup v1 and v2: where groups are made, and the file that bounds one.
PLACES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


@contextlib.contextmanager
def bounded(size: int) -> Iterator[str]:
    """Make a group of so much memory; yields its folder. 0: none, and yields "".

    Raises:
        Missing: this machine has none that this user may make.
    """
    if not size:
        yield ""
        return
    group, limit = _made()
    try:
        (group / limit).write_text(str(size), encoding="ascii")
        yield str(group)
    finally:
        remove_group(group)


def _made() -> tuple[Path, str]:
    for place, limit in PLACES:
        group = place / f"lmdbio-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / limit).exists():
                return group, limit
            group.rmdir()
    raise Missing("no control group can be made that bounds memory (root, and cgroup v1 or v2)")
