"""pylmdb: py-lmdb itself, and classes that stand beside its own.

``lmdb`` is py-lmdb also where ``sys.modules["lmdb"]`` says lmdbio: a program that says
``import lmdb`` after that gets lmdbio, so that rooms that are loaded late would call themselves.
This module is loaded first.

``lmdbio.open`` hands writing to py-lmdb, whose objects then meet code that was written for
lmdbio's classes: ``isinstance`` takes either, and a class that is called with py-lmdb's objects
makes py-lmdb's. py-lmdb's classes cannot be derived from, and neither can these.
"""

from __future__ import annotations

import lmdb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Counterpart", "lmdb"]


class Counterpart(type):
    """The class of classes that stand where py-lmdb has one, for programs that use both at once.

    A third class whose ``_stands_for`` is py-lmdb's passes for both.

    Args:
        of: class of py-lmdb's.
    """

    _of_lmdb: type

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        members: dict[str, Any],
        *,
        of: type | None = None,
    ) -> Counterpart:
        """Make a counterpart; a subclass of one is refused, as py-lmdb refuses it.

        Raises:
            TypeError: there is no ``of``.
        """
        if of is None:
            raise TypeError(f"type '{bases[0].__name__}' is not an acceptable base type")
        made = super().__new__(cls, name, bases, members)
        made._of_lmdb = of
        return made

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        members: dict[str, Any],
        *,
        of: type | None = None,
    ) -> None:
        super().__init__(name, bases, members)
        del of

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return (
            super().__subclasscheck__(subclass)
            or issubclass(subclass, cls._of_lmdb)
            or getattr(subclass, "_stands_for", None) is cls._of_lmdb
        )
