"""Give each parameter and attribute of the reference a row of its own, with type and default.

A docstring describes parameters that belong together on one line (``rank, ranks: ...``), and those
that it hands on as ``arguments of`` another call. In the reference each of them has a row, and one
that is handed on has the words of the other call. A class that Python makes by ``__new__`` has the
parameters of that, and one of ``lmdbio.system.frozen`` those of a dataclass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

#: How a description begins that another call has.
HANDED_ON = re.compile(r"arguments? of ``([\w.]+)``")
FROZEN = "lmdbio.system.frozen.dataclass"


class Rows(griffe.Extension):
    """Rows of parameters and attributes, made when the whole package is loaded."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Let a class without ``__init__`` show the parameters that it is made of."""
        decorator = cls.module.members.get("dataclass")
        if isinstance(decorator, griffe.Alias) and decorator.target_path == FROZEN:
            decorator.target_path = "dataclasses.dataclass"
        if any(str(one.value).startswith("dataclass(") for one in cls.decorators):
            cls.labels.add("dataclass")
        made = cls.members.get("__new__")
        if isinstance(made, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parameters=made.parameters))

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Replace the rows of an object's parameters and attributes."""
        for table in tables(obj):
            table.value[:] = [
                type(row)(
                    member.name if isinstance(member, griffe.Parameter) else name,
                    annotation=member.annotation if member else None,
                    value=member.default if isinstance(member, griffe.Parameter) else row.value,
                    description=words(obj, name, row.description, loader),
                )
                for row in table.value
                for name, member in named(obj, row)
            ]


def tables(obj: griffe.Object) -> Iterator[griffe.DocstringSection]:
    """Yield the tables of parameters and of attributes that an object's docstring has."""
    for section in obj.docstring.parsed if obj.docstring else ():
        if section.kind.value in ("parameters", "attributes"):
            yield section


def named(
    obj: griffe.Object, row: griffe.DocstringNamedElement
) -> Iterator[tuple[str, griffe.Parameter | griffe.Attribute | None]]:
    """Yield the names that share a row, each with what the code says of it."""
    if isinstance(row, griffe.DocstringParameter):
        members = {each.name.lstrip("*"): each for each in getattr(obj, "parameters", ())}
    else:
        members = {key: one for key, one in obj.members.items() if one.is_attribute}
    # Of attributes, griffe takes the names after the first one for its type.
    rest = str(row.annotation) if row.name.endswith(",") else ""
    for name in re.findall(r"\w+", row.name + rest):
        yield name, members.get(name)


def words(obj: griffe.Object, name: str, text: str, loader: griffe.GriffeLoader) -> str:
    """Return the description of a parameter, where another call has it in that one's words."""
    found = HANDED_ON.match(text)
    if found is None:
        return text
    try:
        other = loader.modules_collection[obj.resolve(found[1])]
    except (KeyError, griffe.NameResolutionError):
        return text
    for table in tables(other):
        for row in table.value:
            if name in (each for each, _ in named(other, row)):
                its_own = words(other, name, row.description, loader)
                return its_own.rstrip(".") + text[found.end() :]
    return text
