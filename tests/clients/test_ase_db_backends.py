"""ase-db-backends' aselmdb, which fairchem reads OMat24 and OMol25 through."""

from __future__ import annotations

from typing import Any

DISTRIBUTION = "ase-db-backends"
CALLS = "`begin`, `get`, `commit` per row, of one file; zlib and JSON"
COUNT = 2000


def write(path: str) -> None:
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator
    from ase.db import connect

    with connect(path, type="aselmdb", use_lock_file=False) as db:
        for i in range(COUNT):
            atoms = Atoms("CO2H4"[: 3 + i % 3 // 2 * 2], cell=[9, 9, 9 + i], pbc=bool(i % 2))
            atoms.positions[:, 0] = range(len(atoms))
            atoms.calc = SinglePointCalculator(
                atoms, energy=-i / 7, forces=atoms.positions * i / 3
            )
            db.write(atoms, number=i, data={"origin": f"test {i}", "list": [i] * 9})
        db.delete([5, 17])


def connected(path: str) -> Any:
    from ase.db import connect

    return connect(path, type="aselmdb", readonly=True, use_lock_file=False)


def opened(path: str) -> Any:
    return connected(path)


def row(one: Any) -> Any:
    atoms = one.toatoms()
    return one.id, one.mtime, one.data, one.key_value_pairs, atoms.todict(), atoms.calc.results


def epoch(reader: Any) -> list[Any]:
    return [row(reader._get_row_by_index(i)) for i in range(len(reader))]


def odd(reader: Any, path: str) -> dict[str, Any]:
    return {
        "length": lambda: len(reader),
        "metadata": lambda: reader.metadata,
        "ids": lambda: reader.ids,
        "selected": lambda: [row(one) for one in reader.select("number>40", limit=30)],
        "counted": lambda: reader.count("O=1"),
        "atoms": lambda: reader.get_atoms(3).todict(),
        "one that was deleted": lambda: reader.get(5),
        "in one transaction": lambda: within(reader),
        "written to": lambda: reader.write(reader.get_atoms(1)),
        "no such file": lambda: connected(path + "?"),
        "opened twice": lambda: len(connected(path)),
    }


def within(reader: Any) -> list[Any]:
    """Read in the transaction of a with; what it closes at the end is opened anew."""
    with reader:
        rows = [row(one) for one in reader.select(limit=9)]
    reader._open_lmdb_env()
    return rows


DIFFERS = {"opened twice"}


def test_the_database_gives_the_same_rows(race: Any) -> None:
    race()
