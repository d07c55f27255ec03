"""deepmd-kit's LmdbDataReader: frames one by one and in batches, of one long transaction."""

from __future__ import annotations

from typing import Any

from tests.clients.client import bare

DISTRIBUTION = "deepmd-kit"
CALLS = "opens twice in a row, one transaction for life, `get`; msgpack"
COUNT = 3000


def write(path: str) -> None:
    import lmdb
    import msgpack
    import numpy as np

    def encoded(array: Any) -> dict[str, Any]:
        return {"type": array.dtype.str, "shape": list(array.shape), "data": array.tobytes()}

    env = lmdb.open(path, map_size=1 << 30)
    with env.begin(write=True) as txn:
        sizes = [6 + i % 4 * 6 for i in range(COUNT)]
        about = {
            "nframes": COUNT,
            "frame_idx_fmt": "012d",
            "type_map": ["O", "H"],
            "system_info": {"natoms": [2, 4]},
        }
        txn.put(b"__metadata__", msgpack.packb(about))
        for i, atoms in enumerate(sizes):
            any_ = np.random.default_rng(i)
            frame = {
                "atom_types": encoded(np.array([0, 1, 1] * (atoms // 3), np.int32)),
                "coords": encoded(any_.random((atoms, 3))),
                "cells": encoded(np.eye(3) * (9 + i)),
                "energies": encoded(np.array([-i / 3])),
                "forces": encoded(any_.random((atoms, 3))),
            }
            txn.put(format(i, "012d").encode(), msgpack.packb(frame))
    env.close()


def module() -> Any:
    return bare("deepmd.dpmodel.utils.lmdb_data")


def opened(path: str) -> Any:
    return module().LmdbDataReader(path, ["O", "H"])


def epoch(reader: Any) -> list[Any]:
    return [reader[i] for i in range(len(reader))]


def odd(reader: Any, path: str) -> dict[str, Any]:
    def closed() -> Any:
        reader.close()
        return reader[0]

    return {
        "a batch": lambda: reader.decode_batch(list(range(0, 400, 4))),
        "frames by size": lambda: {k: list(map(int, v)) for k, v in reader.nloc_groups.items()},
        "filtered": lambda: [one["coord"] for one in shared(path, "filter:12")],
        "index too large": lambda: reader[COUNT],
        "other elements": lambda: module().LmdbDataReader(path, ["C"]),
        "after close": closed,
        "no such folder": lambda: module().LmdbDataReader(path + "?", ["O", "H"]),
    }


def shared(path: str, size: str) -> Any:
    """Return the frames of a second reader, which shares the environment."""
    other = module().LmdbDataReader(path, ["H", "O"], batch_size=size)
    return [other[i] for i in range(len(other))]


def test_the_reader_gives_the_same_frames(race: Any) -> None:
    race()
