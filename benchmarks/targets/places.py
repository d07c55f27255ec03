"""Where a data set is read from: the disk as it is, a modelled store, a capped device.

with places.at("model", folder) as place:
    ...  # place.folder shows what is in ``folder``
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Place", "Unavailable", "at"]

BENCHMARKS = Path(__file__).resolve().parents[1]


class Unavailable(Exception):
    """This machine lacks what the place needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place while it is there.

    Attributes:
        folder: the environment, as seen there.
        words: what the place is, for people.
        link: MiB/s that its link lets pass, None if it has none.
        environment: variables that the runs need there.
    """

    folder: Path
    words: str
    link: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def neighbour(name: str) -> Any:
    """A module of a folder beside this one, which it is named after.

    Raises:
        Unavailable: there is none.
    """
    folder = BENCHMARKS / name
    if not folder.is_dir():
        raise Unavailable(f"there is no benchmarks/{name}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


@contextlib.contextmanager
def modelled(folder: Path) -> Iterator[Place]:
    pfs = neighbour("pfs")
    constants = pfs.constants()
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(pfs.mounted(folder, constants=constants))
        except (pfs.Missing, pfs.Failed) as error:
            raise Unavailable(str(error)) from error
        link = constants["client_mb_s"] * 1e6 / 2**20
        words = ", ".join(f"{name} {value:g}" for name, value in constants.items())
        yield Place(store.mounts[0], f"modelled parallel file system ({words})", link)


@contextlib.contextmanager
def at(kind: str, folder: Path) -> Iterator[Place]:
    """The environment in ``folder``, at a place of this kind.

    Raises:
        Unavailable: this machine cannot have it.
    """
    if kind == "disk":
        yield Place(folder, "as it lies")
    elif kind == "model":
        with modelled(folder) as place:
            yield place
    else:
        assert kind == "capped"
        raise Unavailable("there is no benchmarks/capped")
