"""A Reader's arguments, checked, in the form in which ranks compare them."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from lmdbio import share
from lmdbio.errors import IncompatibleError
from lmdbio.locate.open import Check, Order, wanted_samples
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import FIELDS, Overrides
from lmdbio.placement.cache import Cache
from lmdbio.planning.mode import AHEAD, Mode
from lmdbio.planning.order import Epochs, Steps
from lmdbio.planning.schedule import ASSIGNMENTS
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.provenance import Paths, as_given, in_words, name_bytes
from lmdbio.reader.roots import DataSet
from lmdbio.system.amounts import whole

if TYPE_CHECKING:
    from lmdbio.layouts.layout import Layout
    from lmdbio.layouts.wanted import Skip, Wanted

__all__ = ["LOCAL", "ReaderOptions"]

#: The assignment that needs roots that keep parts of the file.
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The arguments of ``Reader``, which documents them.

    Attributes:
        shuffle: a name may leave its sizes to the data set.
        memory_given: whether ``memory_bytes_max`` is the caller's; else each machine has its own.
        cache: cache of each root; "auto": as ``reader.caching`` chooses; None: none.
        depth, gap_bytes_max, request_bytes_max: None: each root chooses for its node's storage.
    """

    path: str | tuple[str, ...]
    batch_size: int
    mode: Mode | str
    assignment: str
    start: int | Steps
    iterations: int | None
    shuffle: Shuffle | str | None
    seed: int
    epochs: int | None
    cache: Cache | str | None
    slots: int
    db: bytes | None
    provenance: str | None
    check: Check
    order: Order
    samples: Wanted | None
    ranks_per_node: int | None
    memory_bytes_max: int
    memory_given: bool
    depth: int | None
    gap_bytes_max: int | None
    request_bytes_max: int | None

    #: Copies of one data set may lie elsewhere on each node.
    PER_NODE: ClassVar = ("path", "provenance")

    @classmethod
    def checked(
        cls,
        *,
        path: Paths,
        mode: Mode | str,
        assignment: str,
        shuffle: Shuffle | str | bool | None,
        cache: Cache | str | None,
        db: bytes | str | None,
        provenance: str | os.PathLike[str] | None,
        check: Check,
        order: Order,
        layout: str | Layout | None,
        skip: Skip | None,
        ranks_per_node: int | None,
        memory_bytes_max: int | str | None,
        **numbers: Any,
    ) -> ReaderOptions:
        """Return the arguments as they stand for all ranks.

        Args:
            numbers: ``start``, and those that are numbers; arguments are as for the class.

        Raises:
            TypeError, ValueError: an argument makes no sense; names it.
            IncompatibleError: the mode cannot follow the order that is asked for.
        """
        shuffle = _shuffle(shuffle)
        start = _start(numbers["start"])
        epochs = _optional("epochs", numbers["epochs"], 0)
        _refuse_words(assignment=assignment, check=check, order=order)
        cache = _cache(cache, assignment)
        _refuse_placement(cache, assignment, shuffle, epochs, numbers["iterations"], start)
        samples = wanted_samples(layout, skip, order)
        _refuse_orders(mode, order, samples, shuffle, cache)
        _refuse_start(start, cache, assignment, shuffle, epochs)
        return cls(
            path=as_given(path),
            batch_size=whole("batch_size", numbers["batch_size"], 1),
            mode=mode,
            assignment=assignment,
            start=start,
            iterations=_optional("iterations", numbers["iterations"], 0),
            shuffle=shuffle,
            seed=whole("seed", numbers["seed"]),
            epochs=epochs,
            cache=cache,
            slots=whole("slots", numbers["slots"], 2),
            db=name_bytes(db),
            provenance=None if provenance is None else os.fsdecode(provenance),
            check=check,
            order=order,
            samples=samples,
            ranks_per_node=_node_ranks(ranks_per_node),
            memory_bytes_max=budget_bytes(memory_bytes_max),
            memory_given=memory_bytes_max is not None,
            **_ways(numbers),
        )

    def compared(self) -> dict[str, Any]:
        """Return what must be equal on all ranks, by argument."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "memory_given"}
        values["mode"] = self.mode.casefold() if isinstance(self.mode, str) else str(self.mode)
        if isinstance(self.shuffle, Shuffle) and self.shuffle.order is not None:
            values["shuffle"] = f"an order of crc32 {zlib.crc32(self.shuffle.order)}"
        if not self.memory_given:
            values["memory_bytes_max"] = None
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
        if self.shuffle is None:
            return None
        shuffle = self.shuffle
        if isinstance(shuffle, str):
            shuffle = Shuffle.named(shuffle, size / count, self.batch_size)
        first = None
        if isinstance(self.cache, Cache) and self.cache.warm == "window":
            first = Shuffle.warming(count, size / count)
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
        return in_words([self.path] if isinstance(self.path, str) else self.path)

    def data_set(self) -> DataSet:
        """Return the data set that roots open, and how they are to read it."""
        return DataSet(
            self.path,
            self.db,
            self.mode,
            self.provenance,
            self.check,
            self.order,
            self.samples,
            Overrides(None, self.depth, self.request_bytes_max, self.gap_bytes_max),
            "batch" if self.is_scattered and self.cache is None else "stream",
            self.is_scattered and self.cache is not None,
        )

    @property
    def is_scattered(self) -> bool:
        """Whether records that are used together lie anywhere in the file."""
        if isinstance(self.shuffle, str):
            return self.shuffle.casefold() == "global"
        return self.shuffle is not None and self.shuffle.chunk == 1


def _refuse_words(*, assignment: str, check: Check, order: Order) -> None:
    """Raise ValueError for a word that is not known."""
    for name, value, allowed in (
        ("assignment", assignment, (*ASSIGNMENTS, LOCAL)),
        ("check", check, get_args(Check)),
        ("order", order, get_args(Order)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def _refuse_orders(
    mode: Mode | str, order: Order, samples: object, shuffle: object, cache: object
) -> None:
    """Raise IncompatibleError where a mode cannot follow the order that is asked for."""
    resolved = Mode.resolve(mode, provenance=False)
    if resolved.locate in AHEAD:
        return
    if order == "insertion":
        raise IncompatibleError(
            f"mode {resolved} seeks records in the order of their keys: "
            "order='insertion' needs locate='scan' or a provenance file"
        )
    if samples is not None:
        raise IncompatibleError(
            f"mode {resolved} comes by all records: layout= and skip= need locate='scan' or a "
            "provenance file"
        )
    if shuffle is not None:
        raise IncompatibleError(
            f"mode {resolved} goes through the records in the order of their keys: shuffle= "
            "needs locate='scan' or a provenance file"
        )
    if cache is not None:
        raise IncompatibleError(
            f"mode {resolved} finds records while it reads them: cache= needs locate='scan' or a "
            "provenance file"
        )


def _cache(given: Any, assignment: str) -> Cache | str | None:
    """Return a cache, "auto", or None.

    Raises:
        TypeError: it is something else.
        ValueError: it is none that a Reader can have, or there has to be one.
    """
    if isinstance(given, str):
        if given.strip().casefold() == "auto":
            return "auto"
        try:
            given = Cache.parse(given)
        except ValueError as error:
            raise ValueError(f'{error}; or cache is "auto", or "memory=8G"') from None
    if given is None and assignment == LOCAL:
        raise ValueError(
            'assignment="local" gives ranks what their root keeps, and no root keeps anything '
            'without a cache: write cache="memory=8G", say, or cache="auto"'
        )
    if given is None:
        return None
    if not isinstance(given, Cache):
        raise TypeError(f'cache must be a Cache, "auto" or None, not {type(given).__name__}')
    return given


def _refuse_placement(
    cache: Cache | str | None,
    assignment: str,
    shuffle: Shuffle | str | None,
    epochs: int | None,
    iterations: object,
    start: object,
) -> None:
    """Raise ValueError for a placement that does not suit the job."""
    if not isinstance(cache, Cache):
        return
    named = Shuffle.named(shuffle, 1.0) if isinstance(shuffle, str) else shuffle
    if cache.warm == "window":
        _refuse_warm(named)
    if cache.placement == "home":
        return
    if assignment == LOCAL:
        raise ValueError(
            f'assignment="local" needs placement=home: with {cache.placement} records have other '
            "roots from time to time, or several"
        )
    if cache.placement == "frequency" and epochs is None and iterations is None:
        from lmdbio.placement.keepers import refuse_counting  # others begin sooner without it

        refuse_counting(1, 1, None)
    if cache.placement == "mixed":
        _refuse_mixed(named, start)


def _refuse_warm(shuffle: Shuffle | None) -> None:
    if shuffle is None or shuffle.streamed.has_windows:
        raise ValueError(
            "Cache: warm='window' lets the first epoch come in windows, later ones in an order "
            "without: write shuffle='global', or warm='demand'"
        )


def _refuse_mixed(shuffle: Shuffle | None, start: object) -> None:
    if shuffle is None or not shuffle.streamed.has_windows:
        is_single = shuffle is not None and shuffle.order is None and shuffle.chunk == 1
        why = ", and a record by itself is none" if is_single else ""
        raise ValueError(
            f"Cache: placement='mixed' needs records that come in windows{why}: write "
            "shuffle='window', or 'windows:CHUNKxCOUNT' or 'groups:SIZE' of 2 records or more"
        )
    if start and not shuffle.held:
        raise ValueError(
            "start: with placement='mixed' the order depends on how many records roots keep: "
            "save reader.schedule.epochs.shuffle beside reader.place, and give it as shuffle="
        )


def _refuse_start(
    start: int | Steps,
    cache: Cache | str | None,
    assignment: str,
    shuffle: Shuffle | str | None,
    epochs: int | None,
) -> None:
    """Raise ValueError for a start that does not go with the other words."""
    if not isinstance(start, Steps):
        if start < 0 and (shuffle is not None or epochs is not None):
            raise ValueError(f"start is a place of the epochs: it must be at least 0, not {start}")
        return
    kept = cache if isinstance(cache, Cache) else Cache(1)
    named = Shuffle.named(shuffle, 1.0) if isinstance(shuffle, str) else shuffle
    for word, suits in (
        ("assignment", assignment == "strided"),
        ("cache", kept.placement == "home" and kept.warm != "window"),
        ("shuffle", named in (None, GLOBAL)),
        ("epochs", epochs is None),
    ):
        if not suits:
            raise ValueError(
                f"{word}: Steps go with strided ranks, with homes, and with a global shuffle or "
                "none; they have no end"
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


def _node_ranks(given: int | None) -> int | None:
    """Return how many ranks a node is to have; None: as it has."""
    emulated = share.ranks_per_node() if given is None else given
    return _optional("ranks_per_node", emulated, 1)


def _ways(numbers: dict[str, Any]) -> dict[str, int | None]:
    """Return the depth, and sizes of requests and gaps, or as ``Overrides`` raises."""
    asked = Overrides(None, *(numbers[name] for name in FIELDS[1:]))
    return {name: getattr(asked, name) for name in FIELDS[1:]}


def _start(given: Any) -> int | Steps:
    """Return where a job starts, or as ``whole`` raises."""
    return given if isinstance(given, Steps) else whole("start", given)


def _optional(name: str, value: Any, lowest: int) -> int | None:
    """Return ``value`` as ``whole`` does, and None as None."""
    return None if value is None else whole(name, value, lowest)
