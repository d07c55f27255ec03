"""cache: what a job may hold of its data set, as a value. Pure.

    Cache(memory, disk, disk_bytes, placement, warm)     each root holds a part, in these tiers

| placement | who holds what |
|---|---|
| home | each root a part of the file, memory first; what has no room comes from the file |
| mixed | home; the rest streams through the Reader's windows; for ``Shuffle.windows`` |
| first | each record the root whose ranks use it first, as far as that has room |
| frequency | each root what its own ranks use most often over all epochs |

The last two cache records one by one, in memory alone.

| warm | when a held record is read first |
|---|---|
| demand | when a rank needs it, or its root has nothing else to do |
| preload | before the first iteration |
| window | as demand; and epoch 0 comes in windows of the file, so that it need not all be there |

Words are parsed here, into values that others ask (``base``).

Source: DeepIO (home, preload), locality-aware loading (home), LBANN's data store (first,
demand), the HDMLP thesis (frequency).
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from lmdbio.placement.base import FIRST, FREQUENCY, HOME, MIXED, Placement
from lmdbio.planning.schedule import Assignment
from lmdbio.planning.shuffle import Shuffle
from lmdbio.system.amounts import BYTES_MAX, parse_bytes, refuse_unknown
from lmdbio.system.frozen import dataclass

__all__ = ["PLACEMENTS", "RECORD_PLACEMENTS", "Cache", "Warm", "parse_cache"]

#: Placements that a cache may have, by their words.
PLACEMENTS = {str(one): one for one in (HOME, MIXED, FIRST, FREQUENCY)}
#: Words of those that cache records one by one.
RECORD_PLACEMENTS = tuple(name for name, one in PLACEMENTS.items() if one.ownership is not None)
#: Those that there are no more, and what to write instead.
REMOVED = {
    "copies": "placement=home",
    "next": "placement=home",
    "window": "an order by windows (shuffle=window) without a cache, or placement=mixed",
}


class Warm(str, Enum):
    """The time when held records are read first; equal to its word."""

    DEMAND = "demand"
    PRELOAD = "preload"
    WINDOW = "window"

    __str__ = str.__str__

    @property
    def is_before(self) -> bool:
        """Whether they are read before the first iteration."""
        return self is Warm.PRELOAD

    @property
    def is_ordered(self) -> bool:
        """Whether epoch 0 has an order of its own, by windows."""
        return self is Warm.WINDOW

    def first_order(self, count: int, record_bytes: float) -> Shuffle | None:
        """Return the order of epoch 0; None: as that of all others.

        Args:
            count: number of records.
            record_bytes: size of a record on average, bytes.
        """
        return Shuffle.warming(count, record_bytes) if self.is_ordered else None


@dataclass(frozen=True, slots=True)
class Cache:
    """The tiers in which each root caches its share of a data set.

    Attributes:
        memory: size of the memory tier, bytes or text such as "8G"; 0: none.
        disk: folder on a local disk of the root's node; None: none.
        disk_bytes: size of the disk tier, bytes or text; None: half of the free space there.
        placement: "home" (each part has one owner), "mixed", "first" or "frequency".
        warm: "demand" (a root reads a part at its first use), "preload" or "window".

    Raises:
        ValueError: a value that makes no sense, or no tier at all.
    """

    memory: int | str = 0
    disk: str | None = None
    disk_bytes: int | str | None = None
    placement: str = "home"
    warm: str = "demand"

    def __post_init__(self) -> None:
        for name in ("memory", "disk_bytes"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, _bytes(f"Cache: {name}", given))
        self._refuse_words()
        as_text = getattr(self.disk, "__fspath__", None)
        if as_text is not None:
            object.__setattr__(self, "disk", as_text())
        if self.disk is not None and (not isinstance(self.disk, str) or not self.disk):
            raise ValueError(f"Cache: disk must be a folder, not {self.disk!r}")
        if self.disk_bytes is not None and self.disk is None:
            raise ValueError("Cache: disk_bytes needs disk, the folder")
        if not self.memory and self.disk is None:
            raise ValueError("Cache: it needs memory, a disk, or both")
        if self.disk is not None and not self.rule.is_static:
            raise ValueError(
                f"Cache: placement={self.placement} keeps records in memory alone: disk is for "
                "placement=home"
            )
        if self.warming.is_ordered and not self.rule.is_static:
            raise ValueError(f"Cache: warm=window needs placement=home, not {self.placement}")

    def _refuse_words(self) -> None:
        """Raise ValueError for a word that there is not, or no more."""
        known = {"placement": tuple(PLACEMENTS), "warm": tuple(Warm)}
        for name, words in known.items():
            word = getattr(self, name)
            if not isinstance(word, str):
                raise ValueError(
                    f"Cache: {name} must be one of {', '.join(words)}, not {type(word).__name__}"
                )
        if self.placement in REMOVED:
            raise ValueError(
                f"Cache: there is no placement={self.placement} any more: write "
                f"{REMOVED[self.placement]}"
            )
        for name, words in known.items():
            refuse_unknown(f"Cache: {name}", getattr(self, name), words)

    @property
    def rule(self) -> Placement:
        """The placement, as a value that others ask."""
        return PLACEMENTS[self.placement]

    @property
    def warming(self) -> Warm:
        """The time when held records are read first, as a value that others ask."""
        return Warm(self.warm)

    def refuse(
        self, shuffle: Shuffle | None, assignment: Assignment, *, has_end: bool = True
    ) -> None:
        """Raise ValueError for a job that the cache does not suit.

        Args:
            shuffle, assignment, has_end: arguments of ``Placement.refuse``.
        """
        if self.warming.is_ordered and (shuffle is None or shuffle.streamed.has_windows):
            raise ValueError(
                "Cache: warm='window' lets the first epoch come in windows, later ones in an "
                "order without: write shuffle='global', or warm='demand'"
            )
        self.rule.refuse(shuffle, assignment, has_end=has_end)

    @classmethod
    def parse(cls, text: str) -> Cache:
        """Return the value of words such as ``memory=8G,disk=/local,disk_bytes=100G``.

        Raises:
            ValueError: it has no such field, or one twice.
        """
        values: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            if not equals or name not in cls.__slots__ or name in values:
                raise ValueError(
                    f"Cache: {part.strip()!r} is not NAME=VALUE, with each of "
                    f"{', '.join(cls.__slots__)} at most once"
                )
            values[name] = value
        return cls(**values)


def parse_cache(given: Any) -> Cache | str | None:
    """Return a cache, "auto", or None.

    Args:
        given: any of these, or the words of a cache.

    Raises:
        TypeError: it is something else.
        ValueError: no cache has such words.
    """
    if isinstance(given, str):
        if given.strip().casefold() == "auto":
            return "auto"
        try:
            return Cache.parse(given)
        except ValueError as error:
            raise ValueError(f'{error}; or cache is "auto", or "memory=8G"') from None
    if given is None or isinstance(given, Cache):
        return given
    raise TypeError(f'cache must be a Cache, "auto" or None, not {type(given).__name__}')


def _bytes(what: str, given: int | str) -> int:
    """Return an amount, which may be 0; ValueError: it is none."""
    if isinstance(given, str):
        return 0 if given.strip() == "0" else parse_bytes(given, what)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= BYTES_MAX:
        raise ValueError(f"{what} must be a number of bytes, up to {BYTES_MAX}, not {given!r}")
    return given
