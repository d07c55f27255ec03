"""Counterpart: a class that stands where py-lmdb has one, for programs that use both at once.

``lmdbio.open`` hands writing to py-lmdb, whose objects then meet code that was written for
lmdbio's classes: ``isinstance`` takes either, and a class that is called with py-lmdb's objects
makes py-lmdb's. py-lmdb's classes cannot be derived from.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Counterpart"]


class Counterpart(type):
    """The class of such a class.

    Args:
        of: py-lmdb's class.
    """

    _of_lmdb: type

    def __new__(
        cls, name: str, bases: tuple[type, ...], members: dict[str, Any], *, of: type
    ) -> Counterpart:
        made = super().__new__(cls, name, bases, members)
        made._of_lmdb = of
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any], *, of: type):
        super().__init__(name, bases, members)
        del of

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, cls._of_lmdb)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return super().__subclasscheck__(subclass) or issubclass(subclass, cls._of_lmdb)
