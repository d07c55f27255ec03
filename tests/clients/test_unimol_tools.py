"""unimol_tools' LMDBDataset: a file, one transaction for life, keys in decimal."""

from __future__ import annotations

import pickle
from typing import Any

from tests.clients.client import absent, bare

DISTRIBUTION = "unimol_tools"
CALLS = "one transaction for life, `stat`, `get`; pickle"
COUNT = 5000


def write(path: str) -> None:
    import lmdb
    import numpy as np

    env = lmdb.open(path, subdir=False, map_size=1 << 30)
    with env.begin(write=True) as txn:
        for i in range(COUNT):
            atoms = ["C", "N", "O", "H"] * (3 + i % 9)
            points = [np.random.default_rng(i).random((len(atoms), 3), np.float32)] * 11
            molecule = {"idx": i, "atoms": atoms, "coordinates": points, "smi": "C" * (i % 90)}
            txn.put(str(i).encode(), pickle.dumps(molecule))
    env.close()


def module() -> Any:
    absent("rdkit", "rdkit.Chem", "rdkit.Chem.AllChem")  # for another class than this one
    return bare("unimol_tools.pretrain.dataset")


def opened(path: str) -> Any:
    return module().LMDBDataset(path)


def epoch(reader: Any) -> list[Any]:
    return [reader[i] for i in range(len(reader))]


def odd(reader: Any, path: str) -> dict[str, Any]:
    return {
        "index too large": lambda: reader[COUNT],
        "index below": lambda: reader[-1],
        "no index": lambda: reader[""],
        "no such file": lambda: module().LMDBDataset(path + "?"),
        "opened twice": lambda: len(module().LMDBDataset(path)),
    }


DIFFERS = {"opened twice"}


def test_the_data_set_gives_the_same_molecules(race: Any) -> None:
    race()
