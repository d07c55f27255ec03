"""mmengine's LmdbBackend, which the trainings of OpenMMLab read their images by."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "mmengine"
CALLS = "`begin` and `get` per record"
COUNT = 5000


def name(i: int) -> str:
    return f"train/{i * 7919 % COUNT:06d}.png"


def write(path: str) -> None:
    import lmdb

    env = lmdb.open(path, map_size=1 << 30)
    with env.begin(write=True) as txn:
        for i in range(COUNT):
            txn.put(name(i).encode(), bytes([i % 256]) * (3000 + i))
    env.close()


def opened(path: str) -> Any:
    from mmengine.fileio import LmdbBackend

    reader = LmdbBackend(path)
    reader.get(name(0))
    return reader


def epoch(reader: Any) -> list[Any]:
    return [reader.get(name(i)) for i in range(COUNT)]


def odd(reader: Any, path: str) -> dict[str, Any]:
    from mmengine.fileio import LmdbBackend

    return {
        "a file that is not there": lambda: reader.get("train/no.png"),
        "an empty name": lambda: reader.get(""),
        "a long name": lambda: reader.get("n" * 512),
        "a name that is not ASCII": lambda: reader.get("ü"),
        "no such folder": lambda: LmdbBackend(path + "?").get("a"),
        "a keyword that is not there": lambda: LmdbBackend(path, speed=1).get("a"),
        "after close": lambda: (reader._client.close(), reader.get(name(0))),
        "opened anew, with a lock": lambda: LmdbBackend(path, lock=True).get(name(1)),
    }


def test_the_backend_gives_the_same_files(race: Any) -> None:
    race()
