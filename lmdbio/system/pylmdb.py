"""pylmdb: py-lmdb, which is loaded when it is needed, and classes that stand beside its own.

py-lmdb writes, takes reader slots, and has the exceptions that lmdbio raises. A program that only
reads, and meets no error, needs none of these: ``load`` is called where one is needed first, or by
the name ``lmdb`` of this module. So a Python without the GIL stays without it, since py-lmdb's C
extension was not made for that.

``lmdb`` is py-lmdb also where ``sys.modules["lmdb"]`` says lmdbio: a program that says
``import lmdb`` after that gets lmdbio, so that rooms that are loaded late would call themselves.

``lmdbio.open`` hands writing to py-lmdb, whose objects then meet code that was written for
lmdbio's classes: ``isinstance`` takes either, and a class that is called with py-lmdb's objects
makes py-lmdb's (``Counterpart``). py-lmdb's classes cannot be derived from, and neither can these.

Exceptions are py-lmdb's own wherever they are raised; code that catches them names classes that
stand for them (``StandIn``), since no exception of py-lmdb's is about before it is loaded.
"""

from __future__ import annotations

import sys

from lmdbio.system.slim import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import lmdb

__all__ = ["Counterpart", "StandIn", "folders", "link_loaded", "lmdb", "load", "spare"]

#: The modules that hold py-lmdb's classes, one of which it loads.
_CORES = ("lmdb.cpython", "lmdb.cffi")
#: Classes that stand for exceptions of py-lmdb's, by the names that it has for them.
_stand_ins: dict[str, StandIn] = {}


def __getattr__(name: str) -> Any:
    if name == "lmdb":
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load() -> ModuleType:
    """Load py-lmdb, at the first call, and return it.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """
    known: ModuleType | None = globals().get("lmdb")
    if known is not None:
        return known
    standing = sys.modules.get("lmdb")
    if standing is None or standing.__name__ == "lmdb":
        import lmdb as module
    else:  # lmdbio, which passes for it: its __path__ leads to py-lmdb's modules
        from importlib.util import module_from_spec

        spec = _find()
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError("No module named 'lmdb'", name="lmdb")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    _link(module)
    globals()["lmdb"] = module
    _link(module)  # what another thread has derived in between
    return module


def folders() -> list[str]:
    """Return the folders of py-lmdb's modules, without loading it; none: it is not installed."""
    spec = _find()
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _find() -> Any:
    return PathFinder.find_spec("lmdb")


def spare(name: str) -> type | None:
    """Return what stands for an exception of py-lmdb's where that cannot be loaded; else None."""
    try:
        load()
    except (ImportError, OSError):  # such as where no descriptor is left
        return _stand_ins.get(name)
    return None


def link_loaded() -> None:
    """Link the exceptions of py-lmdb, where a program has loaded that before."""
    try:
        _loaded()
    except (ImportError, OSError):
        return


def _loaded() -> ModuleType | None:
    """Return py-lmdb where this process, or a program that it runs, has loaded it."""
    return load() if any(name in sys.modules for name in _CORES) else None


class Counterpart(type):
    """The class of classes that stand where py-lmdb has one, for programs that use both at once.

    A third class whose ``_stands_for`` is py-lmdb's passes for both.

    Args:
        of: class of py-lmdb's, or its name.
    """

    _theirs: str | type

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        members: dict[str, Any],
        *,
        of: str | type | None = None,
    ) -> Counterpart:
        """Make a counterpart; a subclass of one is refused, as py-lmdb refuses it.

        Raises:
            TypeError: there is no ``of``.
        """
        if of is None:
            raise TypeError(f"type '{bases[0].__name__}' is not an acceptable base type")
        made = super().__new__(cls, name, bases, members)
        made._theirs = of
        return made

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        if super().__subclasscheck__(subclass):
            return True
        # Nothing is of py-lmdb's class before that is there.
        theirs: Any = (
            getattr(_loaded(), cls._theirs, None) if isinstance(cls._theirs, str) else cls._theirs
        )
        return theirs is not None and (
            issubclass(subclass, theirs) or getattr(subclass, "_stands_for", None) is theirs
        )


class StandIn(type):
    """The class of exceptions that are caught in place of py-lmdb's, and of those derived of them.

    To make one with ``of`` makes py-lmdb's exception of that name. As soon as py-lmdb is loaded,
    its exceptions are subclasses of those that stand for them, and the others are subclasses of
    its own: ``except`` finds each by either name, also one that is raised already.

    Args:
        of: name of the class of py-lmdb's; "": this class is derived of one that has it.
    """

    _theirs: str

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        members: dict[str, Any],
        *,
        of: str = "",
        **more: Any,
    ) -> StandIn:
        """Make a class that stands for one of py-lmdb's, or is derived of such a class."""
        if of:
            # Python lets a class have another base if that is laid out alike: py-lmdb's Error has
            # Exception for a base, and room for weak references.
            members = {**members, "__slots__": (), "_theirs": of}
            made = _stand_ins[of] = super().__new__(cls, name, bases, members)
            return made
        known = globals().get("lmdb")
        if known is not None:
            bases = tuple(_theirs(known, base) for base in bases)
        elif any("_theirs" in base.__dict__ for base in bases):
            root = _stand_ins["Error"]
            at = next(i for i, base in enumerate(bases) if issubclass(base, root))
            bases = tuple(base for base in bases if base is not root)
            if not any(issubclass(base, _derived()) for base in bases):
                bases = (*bases[:at], _derived(), *bases[at:])
        made = super().__new__(cls, name, bases, members, **more)
        if known is None and (late := globals().get("lmdb")) is not None:
            _link(late)  # another thread has loaded it meanwhile
        return made

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        """Make py-lmdb's exception, or this one; always this where py-lmdb cannot be loaded."""
        try:
            made = _theirs(load(), cls)
        except (ImportError, OSError):  # such as where no descriptor is left
            made = cls
        return type.__call__(made, *args, **keywords)


def _theirs(module: Any, stand_in: type) -> Any:
    """Return py-lmdb's class for the one that stands for it, and any other class itself."""
    return (
        getattr(module, stand_in.__dict__["_theirs"])
        if "_theirs" in stand_in.__dict__
        else stand_in
    )


def _derived() -> Any:
    """Return the base of what is derived, until py-lmdb is loaded: laid out as py-lmdb's Error."""
    global _Derived
    if _Derived is None:
        _Derived = type.__new__(StandIn, "Derived", (_stand_ins["Error"],), {})
    return _Derived


_Derived: Any = None


def _link(module: Any) -> None:
    """Derive py-lmdb's exceptions of what stands for them, and all others of py-lmdb's.

    Several threads may do so at once, and Ctrl-C may come in between: each reads and sets the
    bases of a class once, and all set the same.
    """
    for stand_in in list(_stand_ins.values()):
        theirs = _theirs(module, stand_in)
        before = theirs.__bases__
        if stand_in not in before:
            theirs.__bases__ = (*(base for base in before if base is not Exception), stand_in)
    for own in [] if _Derived is None else _Derived.__subclasses__():
        before = own.__bases__
        if _Derived in before:
            bases = [_theirs(module, base) for base in before if base is not _Derived]
            if not any(issubclass(base, module.Error) for base in bases):
                bases.insert(before.index(_Derived), module.Error)
            own.__bases__ = tuple(bases)
