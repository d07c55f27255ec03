"""lmdbm, LMDB as a dict: opened with flag "r", and its gzip."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "lmdbm"
CALLS = "`begin` and `get` per record, `cursor().iternext`, `stat`, `info`; locks"
COUNT = 5000


def write(path: str) -> None:
    from lmdbm import Lmdb

    with Lmdb.open(path, "c") as db:
        db.update((f"{i:05d}", bytes([i % 256]) * (i % 3000)) for i in range(COUNT))
        db["text"] = "ä text"


def opened(path: str) -> Any:
    from lmdbm import Lmdb

    return Lmdb.open(path, "r")


def epoch(reader: Any) -> list[Any]:
    return [*(reader[key] for key in reader.keys()), *reader.items()]  # noqa: SIM118


def odd(reader: Any, path: str) -> dict[str, Any]:
    from lmdbm import Lmdb
    from lmdbm.lmdbm import LmdbGzip

    def closed() -> Any:
        reader.close()
        return reader["00001"]

    def written() -> Any:
        with Lmdb.open(path + "2", "n", map_size=1 << 16) as db:
            db.update({"a": "1" * 100_000, "b": "2"})
            del db["b"]
            db["c"] = "3"
            popped = db.pop("c"), db.pop("d", None)
        with Lmdb.open(path + "2") as db:
            return popped, dict(db), db.map_size

    def zipped() -> Any:
        with LmdbGzip.open(path + "3", "c") as db:
            db["a"] = "1" * 1000
        with LmdbGzip.open(path + "3") as db:
            return dict(db), "a" in db, "b" in db

    return {
        "length": lambda: len(reader),
        "map size": lambda: reader.map_size,
        "values": lambda: list(reader.values()),
        "a key that is not there": lambda: reader["no"],
        "no key": lambda: reader[""],
        "a number": lambda: reader[5],
        "got": lambda: (reader.get("text"), reader.get("no", 3), "text" in reader, "no" in reader),
        "written to": lambda: reader.__setitem__("a", "b"),
        "deleted from": lambda: reader.__delitem__("text"),
        "popped": lambda: reader.pop("text"),
        "updated": lambda: reader.update({"a": "b"}),
        "grown": lambda: setattr(reader, "map_size", 1 << 31),
        "synced": lambda: reader.sync(),
        "written elsewhere": written,
        "zipped": zipped,
        "after close": closed,
        "no such folder": lambda: Lmdb.open(path + "?"),
        "a flag that is none": lambda: Lmdb.open(path, "z"),
    }


def test_the_dict_gives_the_same_items(race: Any) -> None:
    race()
