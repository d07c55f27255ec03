"""A Reader's options: as they were given, checked, and in the form in which ranks compare them.

One table says which options exclude each other, and why (``EXCLUSIONS``); a cache says itself
which jobs it does not suit.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args

from lmdbio import share
from lmdbio.errors import IncompatibleError
from lmdbio.locate.open import Check, Order, wanted_samples
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.placement.cache import Cache, parse_cache
from lmdbio.planning.mode import AHEAD, Mode
from lmdbio.planning.order import Epochs, Steps
from lmdbio.planning.schedule import Assignment
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.provenance import Paths, as_given, in_words, name_bytes
from lmdbio.system.amounts import refuse_unknown, whole

if TYPE_CHECKING:
    from lmdbio.layouts.layout import Layout
    from lmdbio.layouts.wanted import Skip, Wanted

__all__ = ["EXCLUSIONS", "ReaderOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The arguments of ``Reader``, which documents them; ``checked`` says how they stand.

    Attributes:
        shuffle: a name may leave its sizes to the data set.
        cache: cache of each root; "auto": as ``reader.caching`` chooses; None: none.
        depth, gap_bytes_max, request_bytes_max: None: each root chooses for its node's storage.
        samples: choice of the records that are samples; once they are checked.
        budget: budget of this rank's machine for windows, bytes; once they are checked.
    """

    path: Paths
    batch_size: int
    mode: Mode | str
    assignment: str
    start: int | Steps
    iterations: int | None
    shuffle: Shuffle | str | bool | None
    seed: int
    epochs: int | None
    cache: Cache | str | None
    slots: int
    db: bytes | str | None
    provenance: str | os.PathLike[str] | None
    check: Check
    order: Order
    layout: str | Layout | None
    skip: Skip | None
    ranks_per_node: int | None
    memory_bytes_max: int | str | None
    depth: int | None
    gap_bytes_max: int | None
    request_bytes_max: int | None
    samples: Wanted | None = None
    budget: int = 0

    #: Copies of one data set may lie elsewhere on each node.
    PER_NODE: ClassVar = ("path", "provenance")

    def checked(self) -> ReaderOptions:
        """Return the options as they stand for all ranks.

        Raises:
            TypeError, ValueError: an argument makes no sense; names it.
            IncompatibleError: the mode cannot follow the order that is asked for.
        """
        start, memory = self.start, self.memory_bytes_max
        Assignment.named(self.assignment)
        refuse_unknown("check", self.check, get_args(Check))
        refuse_unknown("order", self.order, get_args(Order))
        ways = self.overrides
        per_node = share.ranks_per_node() if self.ranks_per_node is None else self.ranks_per_node
        made = replace(
            self,
            path=as_given(self.path),
            batch_size=whole("batch_size", self.batch_size, 1),
            start=start if isinstance(start, Steps) else whole("start", start),
            iterations=_optional("iterations", self.iterations, 0),
            shuffle=_shuffle(self.shuffle),
            seed=whole("seed", self.seed),
            epochs=_optional("epochs", self.epochs, 0),
            cache=parse_cache(self.cache),
            slots=whole("slots", self.slots, 2),
            db=name_bytes(self.db),
            provenance=None if self.provenance is None else os.fsdecode(self.provenance),
            layout=None,
            skip=None,
            samples=wanted_samples(self.layout, self.skip, self.order),
            ranks_per_node=_optional("ranks_per_node", per_node, 1),
            memory_bytes_max=None if memory is None else budget_bytes(memory),
            budget=budget_bytes(memory),
            depth=ways.depth,
            gap_bytes_max=ways.gap_bytes_max,
            request_bytes_max=ways.request_bytes_max,
        )
        for one in EXCLUSIONS:
            if one.holds(made):
                raise one.error(one.why.format(made))
        if isinstance(made.cache, Cache):
            has_end = made.epochs is not None or made.iterations is not None
            made.cache.refuse(made.named_shuffle, made.sharing, has_end=has_end)
        return made

    @property
    def sharing(self) -> Assignment:
        """The assignment, as a value that others ask."""
        return Assignment(self.assignment)

    @property
    def named_shuffle(self) -> Shuffle | None:
        """The shuffle; where a name leaves its sizes to the data set, with any sizes."""
        given = _shuffle(self.shuffle)
        return Shuffle.named(given, 1.0) if isinstance(given, str) else given

    @property
    def resolved_mode(self) -> Mode:
        """The mode, before the data set is known."""
        return Mode.resolve(self.mode, provenance=False)

    @property
    def seeks(self) -> bool:
        """Whether roots find records while they read them, and not ahead."""
        return self.resolved_mode.locate not in AHEAD

    def compared(self) -> dict[str, Any]:
        """Return what must be equal on all ranks, by argument."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        del values["budget"]
        values["mode"] = self.mode.casefold() if isinstance(self.mode, str) else str(self.mode)
        if isinstance(self.shuffle, Shuffle) and self.shuffle.order is not None:
            values["shuffle"] = f"an order of crc32 {zlib.crc32(self.shuffle.order)}"
        return values

    def begun(self, count: int, size: int, ranks: int) -> tuple[int, Epochs | None]:
        """Return where the job begins, and the orders of all epochs.

        Args:
            count: records of the data set.
            size: bytes of its file.
            ranks: number of ranks in the job.

        Returns:
            ``start`` of the schedule; the orders, or None: records come in their own.

        Raises:
            ValueError: the shuffle is one of other records; or there are no such steps.
        """
        if not count:
            return 0, None  # a schedule refuses that
        if not isinstance(self.start, Steps):
            return self.start, self._shuffled(count, size)
        from lmdbio.planning.stepped import SteppedEpochs  # others begin sooner without it

        own, rest = divmod(self.batch_size, ranks)
        if rest or not own:
            raise ValueError(f"start: {ranks} ranks cannot share {self.batch_size} records evenly")
        seed = None if self.shuffle is None else self.seed
        epochs = SteppedEpochs(count, seed, batch_size=own, ranks=ranks, steps=self.start)
        return epochs.start, epochs

    def _shuffled(self, count: int, size: int) -> Epochs | None:
        """Return the orders of all epochs; None: records come in their own."""
        shuffle, first = _shuffle(self.shuffle), None
        if shuffle is None:
            return None
        if isinstance(shuffle, str):
            shuffle = Shuffle.named(shuffle, size / count, self.batch_size)
        if isinstance(self.cache, Cache):
            first = self.cache.warming.first_order(count, size / count)
        return Epochs(count, self.seed, shuffle, first)

    def length(self, count: int) -> int | None:
        """Return how many places the job uses; None: ``iterations`` full batches, or no end."""
        if self.epochs is None:
            return None
        assert not isinstance(self.start, Steps)  # refused with the arguments
        length = max(0, self.epochs * count - self.start)
        return (
            length if self.iterations is None else min(length, self.iterations * self.batch_size)
        )

    @property
    def name(self) -> str:
        """The data set, in words."""
        path = as_given(self.path)
        return in_words([path] if isinstance(path, str) else path)

    @property
    def overrides(self) -> Overrides:
        """The sizes that the caller has chosen."""
        return Overrides(None, self.depth, self.request_bytes_max, self.gap_bytes_max)

    @property
    def is_scattered(self) -> bool:
        """Whether records that are used together lie anywhere in the file."""
        shuffle = _shuffle(self.shuffle)
        if isinstance(shuffle, str):
            return shuffle.casefold() == "global"
        return shuffle is not None and shuffle.chunk == 1


class Exclusion(NamedTuple):
    """Options that exclude one another.

    Attributes:
        holds: function that returns whether checked options are so.
        why: text of the error, in which ``{0}`` stands for the options.
        error: class of the error.
    """

    holds: Callable[[ReaderOptions], bool]
    why: str
    error: type[Exception] = ValueError


def _has_steps(options: ReaderOptions) -> bool:
    return isinstance(options.start, Steps)


def _streams(options: ReaderOptions) -> bool:
    return isinstance(options.cache, Cache) and options.cache.rule.streams


_AHEAD = "needs locate='scan' or a provenance file"
_STEPS = (
    "{}: Steps go with strided ranks, with homes, and with a global shuffle or none; they have "
    "no end"
)
#: Options that exclude each other; the first ones that do so are told.
EXCLUSIONS = (
    Exclusion(
        lambda it: it.cache is None and it.sharing.is_dealt,
        'assignment="local" gives ranks what their root keeps, and no root keeps anything without '
        'a cache: write cache="memory=8G", say, or cache="auto"',
    ),
    Exclusion(
        lambda it: _streams(it) and bool(it.start) and not getattr(it.shuffle, "held", 0),
        "start: with placement='mixed' the order depends on how many records roots keep: save "
        "reader.schedule.epochs.shuffle beside reader.place, and give it as shuffle=",
    ),
    Exclusion(
        lambda it: it.seeks and it.order == "insertion",
        "mode {0.resolved_mode} seeks records in the order of their keys: order='insertion' "
        f"{_AHEAD}",
        IncompatibleError,
    ),
    Exclusion(
        lambda it: it.seeks and it.samples is not None,
        f"mode {{0.resolved_mode}} comes by all records: layout= and skip= {_AHEAD}",
        IncompatibleError,
    ),
    Exclusion(
        lambda it: it.seeks and it.shuffle is not None,
        "mode {0.resolved_mode} goes through the records in the order of their keys: shuffle= "
        f"{_AHEAD}",
        IncompatibleError,
    ),
    Exclusion(
        lambda it: it.seeks and it.cache is not None,
        f"mode {{0.resolved_mode}} finds records while it reads them: cache= {_AHEAD}",
        IncompatibleError,
    ),
    Exclusion(
        lambda it: (
            isinstance(it.start, int)
            and it.start < 0
            and (it.shuffle is not None or it.epochs is not None)
        ),
        "start is a place of the epochs: it must be at least 0, not {0.start}",
    ),
    Exclusion(
        lambda it: _has_steps(it) and not it.sharing.follows_places, _STEPS.format("assignment")
    ),
    Exclusion(
        lambda it: (
            _has_steps(it)
            and isinstance(it.cache, Cache)
            and (not it.cache.rule.is_static or it.cache.warming.is_ordered)
        ),
        _STEPS.format("cache"),
    ),
    Exclusion(
        lambda it: _has_steps(it) and it.named_shuffle not in (None, GLOBAL),
        _STEPS.format("shuffle"),
    ),
    Exclusion(lambda it: _has_steps(it) and it.epochs is not None, _STEPS.format("epochs")),
)


def _shuffle(given: Any) -> Shuffle | str | None:
    """Return a shuffle, or the name of one, or None.

    Raises:
        TypeError: it is something else.
        ValueError: no shuffle has such a name.
    """
    if given is None or given is False:
        return None
    if given is True:
        return GLOBAL
    if isinstance(given, str):
        Shuffle.named(given, 1.0)  # its sizes wait for the data set
        return given
    if not isinstance(given, Shuffle):
        raise TypeError(f"shuffle must be a Shuffle or a name, not {type(given).__name__}")
    return given


def _optional(name: str, value: Any, lowest: int) -> int | None:
    """Return ``value`` as ``whole`` does, and None as None."""
    return None if value is None else whole(name, value, lowest)
