"""frozen: frozen values with slots, as ``dataclasses`` makes them, without loading these.

To load ``dataclasses`` takes as long as to start Python, and each of its classes a millisecond
more. Modules that a first ``lmdbio.open`` loads have their values from here. Type checkers see
``dataclasses.dataclass``, and ``dataclasses.replace``, ``fields`` and the like take these values
as theirs.

Methods that are called often are compiled for their class, which takes longer than some calls of
one that serves all classes: so the first calls go there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
    from typing import Any

__all__ = ["dataclass"]

#: Calls of a method before it is compiled.
CALLS_BEFORE = 16

_fill = object.__setattr__

if not TYPE_CHECKING:

    def dataclass(*, frozen: bool, slots: bool) -> Any:
        """Return the decorator that makes a class a frozen value with slots."""
        if not (frozen and slots):
            raise TypeError("of frozen values with slots alone")
        return _made


def _made(cls: type) -> type:
    given = dict(vars(cls))
    types: dict[str, Any] = given["__annotations__"]
    names, defaults = tuple(types), {name: given.pop(name) for name in types if name in given}
    del given["__dict__"], given["__weakref__"]
    fields = _Fields(types, defaults, "__post_init__" in given)
    members = {
        "__qualname__": cls.__qualname__,
        "__slots__": names,
        "__match_args__": names,
        "__dataclass_fields__": fields,
        "__signature__": _Signature(fields),
        "__init__": _later("__init__", fields.initialize, fields),
        "__eq__": _later("__eq__", _is_equal, fields),
        "__hash__": _later("__hash__", _number, fields),
        "__repr__": _text,
        "__getstate__": _values,
        "__setstate__": _restore,
        "__replace__": _replaced,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
    }
    return type(cls)(cls.__name__, cls.__bases__, {**members, **given})


def _later(name: str, common: Callable[..., Any], fields: _Fields) -> Callable[..., Any]:
    """Return a method that is ``common`` for some calls, and then compiled for its class."""
    left = CALLS_BEFORE

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return common(self, *args, **keywords)
        compiled = fields.compile(name)
        setattr(type(self), name, compiled)
        return compiled(self, *args, **keywords)

    return method


# --- what serves all classes ----------------------------------------------------------------


def _values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _is_equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _number(self: Any) -> int:
    return hash(tuple(_values(self)))


def _text(self: Any) -> str:
    fields = map("{}={!r}".format, self.__match_args__, _values(self))
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _restore(self: Any, values: list[Any]) -> None:
    for name, value in zip(self.__match_args__, values, strict=True):
        _fill(self, name, value)


def _replaced(self: Any, /, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(self, **changes)


def _refuse(self: object, name: str, *_: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")


class _Fields:
    """The fields of a class, and its ``__dataclass_fields__``, made when these are asked for."""

    __slots__ = ("_defaults", "_has_more", "_names", "_types")

    def __init__(self, types: dict[str, Any], defaults: dict[str, Any], has_more: bool) -> None:
        self._types, self._defaults, self._has_more = types, defaults, has_more
        self._names = tuple(types)

    def initialize(self, made: Any, *args: Any, **keywords: Any) -> None:
        """Fill the fields of an object."""
        given = dict(zip(self._names, args, strict=False))
        values = {**self._defaults, **given, **keywords}
        if (
            len(given) < len(args)
            or given.keys() & keywords
            or values.keys() != self._types.keys()
        ):
            self.compile("__init__")(made, *args, **keywords)  # which says what is wrong
        for name, value in values.items():
            _fill(made, name, value)
        if self._has_more:
            made.__post_init__()

    def compile(self, method: str) -> Callable[..., Any]:
        """Return a method for these fields."""
        names, defaults = self._names, self._defaults
        a, b = (f"({''.join(f'{of}.{name}, ' for name in names)})" for of in "ab")
        if method == "__hash__":
            source = f"(a):\n return hash({a})"
        elif method == "__eq__":
            source = f"(a, b):\n return {a} == {b} if b.__class__ is a.__class__ else other"
        else:
            taken = (f"{name}=defaults[{name!r}]" if name in defaults else name for name in names)
            lines = [f"fill(self, {name!r}, {name})" for name in names]
            lines += ["self.__post_init__()"] * self._has_more
            source = f"(self, {', '.join(taken)}):\n {'; '.join(lines)}"
        found: dict[str, Any] = {}
        known = {"defaults": defaults, "fill": _fill, "other": NotImplemented}
        exec(f"def {method}{source}", known, found)
        compiled: Callable[..., Any] = found[method]
        return compiled

    def twin(self, name: str) -> Any:
        """Return a class of ``dataclasses`` that has these fields."""
        from dataclasses import field, make_dataclass

        defaults = {name: (field(default=value),) for name, value in self._defaults.items()}
        specified = [(name, of, *defaults.get(name, ())) for name, of in self._types.items()]
        return make_dataclass(name, specified)

    def __get__(self, _value: object, owner: type) -> Any:
        made = self.twin(owner.__name__).__dataclass_fields__
        type.__setattr__(owner, "__dataclass_fields__", made)
        return made


class _Signature:
    """The parameters of a class, made when ``inspect`` or ``help`` asks for them."""

    __slots__ = ("_fields",)

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields

    def __get__(self, _value: object, owner: type) -> Any:
        from inspect import signature

        return signature(self._fields.twin(owner.__name__))
