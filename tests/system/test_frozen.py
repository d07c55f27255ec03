"""Frozen values are what ``dataclasses`` would have made.

Goal: nobody who has one can tell. Method: the same class made by both; each use by each, as long
as the common methods serve it, and when its own are compiled.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from lmdbio.system import frozen


def make(dataclass: Any) -> Any:
    @dataclass(frozen=True, slots=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        name: str | None = None

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below 0")

        @property
        def sum(self) -> int:
            return self.x + self.y

    return Point


Ours, Theirs = make(frozen.dataclass), make(dataclasses.dataclass)


@frozen.dataclass(frozen=True, slots=True)
class Kept:
    """Found by pickle."""

    x: int


#: Of Python 3.13 and later; before that, dataclasses have none.
replaced = getattr(copy, "replace", dataclasses.replace)
USES: dict[str, Callable[[Any], Any]] = {
    "fields": lambda of: [(each.name, each.default) for each in dataclasses.fields(of)],
    "document": lambda of: of.__doc__,
    "signature": inspect.signature,
    "text": lambda of: repr(of(1, name="a")),
    "by place": lambda of: dataclasses.astuple(of(1, 3, "b")),
    "by name": lambda of: dataclasses.asdict(of(y=4, x=1)),
    "changed": lambda of: dataclasses.astuple(dataclasses.replace(of(1), y=7)),
    "replaced": lambda of: dataclasses.astuple(replaced(of(1), y=7)),
    "copied": lambda of: copy.copy(of(1)) == of(1) and copy.deepcopy(of(1)) == of(1),
    "equal": lambda of: (of(1) == of(1, 2), of(1) == of(2), of(1) != of(1), of(1) == (1, 2, None)),
    "hashed": lambda of: hash(of(1, 2, "c")),
    "in a set": lambda of: len({of(1), of(1, 2), of(2)}),
    "matched": lambda of: of.__match_args__,
    "property": lambda of: of(1).sum,
    "slots": lambda of: (of.__slots__, hasattr(of(1), "__dict__")),
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "too few": lambda of: of(),
    "too many": lambda of: of(1, 2, "a", 4),
    "twice": lambda of: of(1, x=1),
    "unknown": lambda of: of(1, z=1),
    "changed": lambda of: setattr(of(1), "x", 2),
    "deleted": lambda of: delattr(of(1), "x"),
    "unordered": lambda of: of(1) < of(2),
    "judged": lambda of: of(-1),
}


@pytest.mark.parametrize("use", USES)
def test_a_use_gives_the_same_however_often(use: str) -> None:
    wanted = USES[use](Theirs)
    assert all(USES[use](Ours) == wanted for _ in range(2 * frozen.CALLS_BEFORE))


@pytest.mark.parametrize("use", REFUSED)
def test_a_refusal_is_the_same_however_often(use: str) -> None:
    with pytest.raises(Exception) as wanted:
        REFUSED[use](Theirs)
    for _ in range(2 * frozen.CALLS_BEFORE):
        with pytest.raises(type(wanted.value)):
            REFUSED[use](Ours)


def test_values_of_two_classes_are_not_equal() -> None:
    assert Ours(1) != Theirs(1)
    assert make(frozen.dataclass)(1) != Ours(1)


def test_a_value_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(5))) == Kept(5)


def test_values_that_can_change_are_refused() -> None:
    with pytest.raises(TypeError, match="alone"):
        frozen.dataclass(frozen=False, slots=True)  # type: ignore[call-overload]
