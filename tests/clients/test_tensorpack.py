"""tensorpack's LMDBSerializer and LMDBData: its own writer, in key order and shuffled."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "tensorpack"
CALLS = "one transaction; iterates a cursor, `get` of shuffled keys, `stat`"
COUNT = 3000


def write(path: str) -> None:
    import numpy as np
    from tensorpack.dataflow import DataFromList, LMDBSerializer

    points = [[np.full((20, 20), i, np.float32), i, f"label {i}"] for i in range(COUNT)]
    LMDBSerializer.save(DataFromList(points, shuffle=False), path)


def flow(path: str, **keywords: Any) -> Any:
    from tensorpack.dataflow import LMDBSerializer
    from tensorpack.utils.utils import fix_rng_seed

    fix_rng_seed(7)
    made = LMDBSerializer.load(path, **keywords)
    made.reset_state()
    return made


class Reader:
    def __init__(self, path: str) -> None:
        self.flow = flow(path, shuffle=True)


def opened(path: str) -> Any:
    return Reader(path)


def epoch(reader: Any) -> list[Any]:
    return list(reader.flow)


def odd(reader: Any, path: str) -> dict[str, Any]:
    from tensorpack.dataflow import LMDBData

    def anew(**keywords: Any) -> Any:
        reader.flow = None  # py-lmdb opens a file once in a process
        reader.flow = flow(path, **keywords)
        return list(reader.flow)

    return {
        "length": lambda: len(reader.flow),
        "opened twice": lambda: list(flow(path, shuffle=True)),
        "in key order": lambda: anew(shuffle=False),
        "shuffled": lambda: anew(shuffle=True),
        "no such file": lambda: LMDBData(path + "?"),
    }


DIFFERS = {"opened twice"}


def test_the_flow_gives_the_same_points(race: Any) -> None:
    race()
