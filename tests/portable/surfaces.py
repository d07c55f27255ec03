"""Print what a program sees of lmdbio as JSON, for runs with the C core and without it.

python surfaces.py FOLDER            all that records, data sets and loaders give
python surfaces.py FOLDER STATE      the rest of an epoch, from a state of STATE's on
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lmdbio
from lmdbio.torch import BatchSampler, Dataset, IterableDataset, Loader

SHUFFLES = {
    "global": True,
    "groups": lmdbio.Shuffle.groups(7),
    "windows": lmdbio.Shuffle.windows(5, 3),
    "runs": lmdbio.Shuffle.runs(4),
    "mixed": lmdbio.Shuffle.mixed(9, 4, 2),
    "none": False,
}


def digest(values: Iterable[Any]) -> str:
    """Return a digest of values, or of tuples of them, in their order."""
    found = hashlib.blake2b(digest_size=12)
    for value in values:
        for one in value if isinstance(value, (tuple, list)) else (value,):
            found.update(b"%d:" % len(one) + bytes(one))
    return found.hexdigest()


def raised(call: Callable[[], Any]) -> str:
    """Return the class and the words of what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def environment(folder: str) -> dict[str, Any]:
    """Return what py-lmdb's calls give, with keywords that py-lmdb has not."""
    with lmdbio.open(
        folder, readonly=True, lock=False, engine="pread", cache_bytes=1 << 20
    ) as env:
        assert isinstance(env, lmdbio.Environment)
        with env.begin() as txn:
            assert isinstance(txn, lmdbio.Transaction)
            keys = [key for key, _ in txn.cursor()]
            found = {"all": digest(value for _, value in txn.cursor())}
            return found | {"keys": digest(keys), "get": digest([txn.get(keys[5])])}


def sequence(records: Any) -> dict[str, Any]:
    """Return what a sequence of samples gives by each of its calls."""
    count = len(records)
    indices = np.array([count - 1, 0, 3, 3, -2])
    copied = pickle.loads(pickle.dumps(records))
    return {
        "repr": repr(records),
        "count": count,
        "every": digest(records),
        "one": digest([records[2], records[-1], records[np.int64(1)], copied[4]]),
        "slices": [digest(records[a]) for a in (slice(2, 9), slice(None, None, -3), slice(4, 4))],
        "values": digest(records.values(indices)),
        "batch": digest(records.read(indices)),
        "indices": records.read(indices).indices.tolist(),
        "mask": digest(records.read(np.arange(count) % 3 == 1)),
        "torch": digest(records.read(torch.tensor([1, 5]))),
        "batches": [digest(one) for one in records.batches(np.arange(count)[::-1], 16)],
        "view": digest(records[[5, 1, 2]]),
        "parts": [digest(part) for part in records.split([0.7, 0.3], seed=3)],
        "keys": [str(records.key(index)) for index in (0, -1, count // 2)],
        "sizes": records.sizes().tolist(),
        "file": list(map(str, records.file_of(count - 1))) if hasattr(records, "files") else [],
        "errors": [
            raised(lambda: records[count]),
            raised(lambda: records.read([0, count])),
            raised(lambda: records.read([0.5])),
            raised(lambda: list(records.values([-count - 1]))),
            raised(lambda: records["a"]),
            raised(lambda: records.index_of(b"no such key")),
        ],
    }


def of_records(folder: Path) -> dict[str, Any]:
    """Return what Records of each kind give."""
    plain = str(folder / "plain")
    with lmdbio.Records(plain, engine="mmap", readahead=False) as records:
        found: dict[str, Any] = {"plain": sequence(records)}
        found["groups"] = [list(group) for group in records.groups]
        found["index_of"] = records.index_of(records.key(7))
        copy = records.read([1, 2]).copy()
        found["copy"] = digest(copy), copy.array(np.uint8, (4,)).tolist()
        stats = records.stats()
        found["stats"] = stats.records > 0, stats.record_bytes > 0
    found["closed"] = raised(lambda: records[0]).partition(":")[0]
    with lmdbio.Records(str(folder / "many"), db="many") as records:
        found["many"] = sequence(records)
        found["many groups"] = [list(group) for group in records.groups]
    for layout in (None, "auto", "ocr"):
        with lmdbio.Records(str(folder / "pairs"), layout=layout) as records:
            found[f"layout {layout}"] = sequence(records), records.layout, len(records.groups)
    with lmdbio.Records(plain, skip=["00000003", "*7"]) as records:
        found["skip"] = sequence(records), [list(group) for group in records.groups]
    with lmdbio.Records([plain, str(folder / "more")]) as records:
        found["several"] = sequence(records), records.index_of(b"m00002"), records.files
        mixed = lmdbio.Mix(
            {"a": records[:50:1] and records.subset(range(50)), "b": records}, seed=5
        )
        found["mix"] = digest(mixed.read(range(0, 200, 7))), digest(mixed[3:9])
        zipped = lmdbio.Zip([records, records])
        found["zip"] = digest(zipped.read([4, 2]))
    for name, options in {
        "nothing there": {"path": str(folder / "none")},
        "no such database": {"path": plain, "db": "none"},
        "named ones alone": {"path": str(folder / "many")},
        "layout": {"path": plain, "layout": "ocr"},
        "unknown layout": {"path": plain, "layout": "nonsense"},
        "locate": {"path": plain, "locate": "nonsense"},
        "depth": {"path": plain, "depth": 0},
        "no file of LMDB's": {"path": str(folder / "text")},
        "cut": {"path": str(folder / "cut")},
        "cut to a page": {"path": str(folder / "page")},
    }.items():
        found[f"refused: {name}"] = raised(lambda: lmdbio.Records(**options)).partition(":")[0]  # noqa: B023
    return found


def order_of(value: bytes) -> int:
    """Return the number that begins a record."""
    return int(value[:8])


def of_loaders(folder: Path) -> dict[str, Any]:
    """Return the orders and the states of data sets and loaders."""
    plain, found = str(folder / "plain"), dict[str, Any]()
    data = Dataset(plain, order_of, keys=False)
    found["dataset"] = [data[3], data[-1]], data.__getitems__([5, 5, 2])
    sampler = BatchSampler(data, 8, shuffle=True, seed=2)
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=workers)
        sampler.set_epoch(1)
        found[f"DataLoader, {workers} workers"] = [batch.tolist() for batch in loader]
    whole = IterableDataset(plain, 8, transform=order_of, shuffle=True, seed=4)
    found["iterable"] = [torch.as_tensor(batch).tolist() for batch in whole]
    for name, shuffle in SHUFFLES.items():
        for rank, ranks in ((0, 1), (1, 3)):
            options: dict[str, Any] = {"shuffle": shuffle, "seed": 9, "rank": rank, "ranks": ranks}
            with Loader(plain, 8, transform=order_of, threads=2, **options) as own:
                epochs = [[batch.tolist() for batch in own] for _ in range(2)]
                own.set_epoch(5)
                states = []
                for step, batch in enumerate(own):
                    epochs.append(batch.tolist())
                    states.append(own.state_dict())
                    if step == 2:
                        break
                found[f"loader {name} {rank} of {ranks}"] = epochs, states
    with Loader(str(folder / "pairs"), 4, layout="auto", transform=pair, drop_last=True) as own:
        found["pairs"] = [list(batch) for batch in own]
    return found


def pair(sample: tuple[bytes, bytes]) -> str:
    """Return a sample of two records as text."""
    return sample[0].decode() + sample[1].decode()


def rest(folder: Path, state: dict[str, Any]) -> list[Any]:
    """Return the rest of an epoch, and the next one, from a state on."""
    with Loader(str(folder / "plain"), 8, shuffle=True, seed=9, transform=order_of) as loader:
        loader.load_state_dict(state)
        return [[batch.tolist() for batch in loader] for _ in range(2)]


if __name__ == "__main__":
    given = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    if len(sys.argv) > 2:
        told: Any = rest(given, json.loads(sys.argv[2]))
    else:
        told = {"open": environment(str(given / "plain"))}
        told |= of_records(given) | of_loaders(given)
    print(json.dumps(told))
