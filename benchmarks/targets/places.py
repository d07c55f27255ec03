"""Where a data set is read from: the disk as it is, a modelled store, a capped device.

with places.at("model", folder) as place:
    ...  # place.folder shows what is in ``folder``
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.capped import capped
from benchmarks.pfs import pfs
from benchmarks.targets.cells import CAP_BYTES, CAP_REQUESTS


@dataclass(frozen=True, slots=True)
class Place:
    """A place while it is there.

    Attributes:
        folder: the environment, as seen there.
        words: what the place is, for people.
        link: MiB/s that its link lets pass, None if it has none.
        prefix: words before the command of each run there.
    """

    folder: Path
    words: str
    link: float | None = None
    prefix: Sequence[str] = ()


@contextlib.contextmanager
def at(kind: str, folder: Path) -> Iterator[Place]:
    """Show the environment in ``folder`` at a place of this kind.

    Args:
        kind: "disk" (as it lies), "model" (the modelled parallel file system), or "capped" (a copy
            on a device that gives so many bytes and requests a second).
        folder: the environment.

    Raises:
        Missing, Failed: this machine cannot have it.
    """
    if kind == "model":
        with pfs.mounted(folder, constants=pfs.constants()) as store:
            link = store.constants["client_mb_s"] * 1e6 / 2**20
            yield Place(store.mounts[0], store.words, link)
    elif kind == "capped":
        words = f"loop device of {CAP_BYTES / 2**20:g} MiB/s and {CAP_REQUESTS:,} requests/s"
        with capped.capped(folder, bytes_s=CAP_BYTES, requests_s=CAP_REQUESTS) as disk:
            yield Place(disk.mount, words, prefix=disk.join)
    else:
        yield Place(folder, "as it lies")
