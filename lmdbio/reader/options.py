"""A Reader's arguments, checked, in the form in which ranks compare them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from lmdbio import share
from lmdbio.errors import IncompatibleError
from lmdbio.locate.open import Check, Order
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.mode import AHEAD, Mode
from lmdbio.planning.schedule import ASSIGNMENTS
from lmdbio.reader.roots import DataSet

__all__ = ["ReaderOptions"]


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The arguments of ``Reader``, which documents them.

    Attributes:
        memory_given: ``memory_bytes_max`` is the caller's; else each machine has its own.
        depth, gap_bytes_max, request_bytes_max: None: each root chooses for its node's storage.
    """

    path: str
    batch_size: int
    mode: Mode | str
    assignment: str
    start: int
    iterations: int | None
    slots: int
    db: bytes | None
    provenance: str | None
    check: Check
    order: Order
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
        path: str | os.PathLike[str],
        mode: Mode | str,
        assignment: str,
        db: bytes | str | None,
        provenance: str | os.PathLike[str] | None,
        check: Check,
        order: Order,
        ranks_per_node: int | None,
        memory_bytes_max: int | str | None,
        **numbers: Any,
    ) -> ReaderOptions:
        """Return the arguments as they stand for all ranks.

        Args:
            numbers: batch_size, start, iterations, slots, depth, gap_bytes_max and
                request_bytes_max; the other arguments are as for the class.

        Raises:
            TypeError, ValueError: an argument makes no sense; names it.
            IncompatibleError: records are asked for in the order in which they were put, and
                the mode seeks them in the order of their keys.
        """
        for name, value, allowed in (
            ("assignment", assignment, ASSIGNMENTS),
            ("check", check, get_args(Check)),
            ("order", order, get_args(Order)),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        resolved = Mode.resolve(mode, provenance=False)
        if order == "insertion" and resolved.locate not in AHEAD:
            raise IncompatibleError(
                f"mode {resolved} seeks records in the order of their keys: "
                "order='insertion' needs locate='scan' or a provenance file"
            )
        emulated = share.ranks_per_node() if ranks_per_node is None else ranks_per_node
        return cls(
            path=os.fsdecode(path),
            batch_size=_integer("batch_size", numbers["batch_size"], 1),
            mode=mode,
            assignment=assignment,
            start=_integer("start", numbers["start"], None),
            iterations=_optional("iterations", numbers["iterations"], 0),
            slots=_integer("slots", numbers["slots"], 2),
            db=db.encode() if isinstance(db, str) else db,
            provenance=None if provenance is None else os.fsdecode(provenance),
            check=check,
            order=order,
            ranks_per_node=_optional("ranks_per_node", emulated, 1),
            memory_bytes_max=budget_bytes(memory_bytes_max),
            memory_given=memory_bytes_max is not None,
            depth=_optional("depth", numbers["depth"], 1),
            gap_bytes_max=_optional("gap_bytes_max", numbers["gap_bytes_max"], 0),
            request_bytes_max=_optional("request_bytes_max", numbers["request_bytes_max"], 1),
        )

    def compared(self) -> dict[str, Any]:
        """Return what must be equal on all ranks, by argument."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "memory_given"}
        values["mode"] = self.mode.casefold() if isinstance(self.mode, str) else str(self.mode)
        if not self.memory_given:
            values["memory_bytes_max"] = None
        return values

    def data_set(self) -> DataSet:
        """Return the data set that roots open, and how they are to read it."""
        return DataSet(
            self.path,
            self.db,
            self.mode,
            self.provenance,
            self.check,
            self.order,
            Overrides(None, self.depth, self.request_bytes_max, self.gap_bytes_max),
        )


def _integer(name: str, value: Any, lowest: int | None) -> int:
    """Return ``value`` as an int.

    Raises:
        TypeError: it is no integer: numpy's are welcome, booleans and floats are not.
        ValueError: it is below ``lowest``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    number = int(value.__index__())
    if lowest is not None and number < lowest:
        raise ValueError(f"{name} must be at least {lowest}, not {number}")
    return number


def _optional(name: str, value: Any, lowest: int) -> int | None:
    """Return ``value`` as ``_integer`` does, and None as None."""
    return None if value is None else _integer(name, value, lowest)
