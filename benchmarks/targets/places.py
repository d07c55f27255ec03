"""Where a data set is read from: the disk as it is, a modelled store, a capped device.

with places.at("model", folder) as place:
    ...  # place.folder shows what is in ``folder``
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.capped import capped as device
from benchmarks.pfs import pfs
from benchmarks.targets.cells import CAP_BYTES, CAP_REQUESTS

__all__ = ["Place", "Unavailable", "at"]


class Unavailable(Exception):
    """The place cannot be had here, or did not last; the message says why."""


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
def modelled(folder: Path) -> Iterator[Place]:
    """Behind the modelled parallel file system."""
    constants = pfs.constants()
    words = ", ".join(f"{name} {value:g}" for name, value in constants.items())
    try:
        with pfs.mounted(folder, constants=constants) as store:
            yield Place(
                store.mounts[0],
                f"modelled parallel file system ({words})",
                link=constants["client_mb_s"] * 1e6 / 2**20,
            )
    except (pfs.Missing, pfs.Failed) as error:
        raise Unavailable(str(error)) from error


@contextlib.contextmanager
def capped(folder: Path) -> Iterator[Place]:
    """A copy on a device that gives so many bytes and requests a second."""
    words = f"loop device of {CAP_BYTES / 2**20:g} MiB/s and {CAP_REQUESTS:,} requests/s"
    try:
        with device.capped(folder, bytes_s=CAP_BYTES, requests_s=CAP_REQUESTS) as disk:
            # A shell that joins the control group before it becomes the command.
            join = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(disk.group / "cgroup.procs"))
            yield Place(disk.mount, words, prefix=join)
    except (device.Missing, device.Failed) as error:
        raise Unavailable(str(error)) from error


@contextlib.contextmanager
def as_it_lies(folder: Path) -> Iterator[Place]:
    """The disk."""
    yield Place(folder, "as it lies")


PLACES = {"disk": as_it_lies, "model": modelled, "capped": capped}


def at(kind: str, folder: Path) -> contextlib.AbstractContextManager[Place]:
    """The environment in ``folder``, at a place of this kind.

    Entering raises ``Unavailable`` where this machine cannot have it.
    """
    return PLACES[kind](folder)
