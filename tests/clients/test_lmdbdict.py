"""lmdbdict: a dict in a file, its keys in a record of their own, pickled with its path."""

from __future__ import annotations

import pickle
from typing import Any

DISTRIBUTION = "lmdbdict"
CALLS = "one transaction for life, `get`; pickle"
COUNT = 5000


def write(path: str) -> None:
    from lmdbdict import lmdbdict

    made = lmdbdict(path, mode="w", key_method="ascii", value_method="pickle")
    for i in range(COUNT):
        made[f"image{i:05d}"] = {"id": i, "box": [i / 3] * 40, "caption": "a word " * (i % 30)}
    del made


def opened(path: str) -> Any:
    from lmdbdict import lmdbdict

    return lmdbdict(path)


def epoch(reader: Any) -> list[Any]:
    return [reader[f"image{i * 7919 % COUNT:05d}"] for i in range(COUNT)]


def odd(reader: Any, path: str) -> dict[str, Any]:
    from lmdbdict import lmdbdict

    def unsafe() -> Any:
        reader.env.close()
        reader.__dict__ = lmdbdict(path, unsafe=True).__dict__
        return reader["image00001"], reader["no"]

    def pickled() -> Any:
        reader.env.close()
        return pickle.loads(pickle.dumps(reader))["image00003"]

    return {
        "length": lambda: len(reader),
        "keys": lambda: sorted(reader.keys()),
        "a key that is not there": lambda: reader["no"],
        "written to": lambda: reader.__setitem__("a", 1),
        "opened twice": lambda: len(lmdbdict(path)),
        "unsafe": unsafe,
        "pickled": pickled,
        "no such file": lambda: lmdbdict(path + "?"),
    }


DIFFERS = {"opened twice"}


def test_the_dict_gives_the_same_values(race: Any) -> None:
    race()
