"""Program: nodes that have copies of a data set, one of which is another's.

Arguments: a set of data.fixed_value and a folder in which test_reader_mpi.write_copies has put
others. Copies that are alike may lie elsewhere on each node; any other is refused at start, on
all ranks alike, which are told by whom what was seen.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
from data import fixed_value
from mpi4py import MPI

from lmdbio.errors import Error
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
PATH, FOLDER = sys.argv[1], Path(sys.argv[2])


def seen(path: str) -> tuple[int, int]:
    """Records, and the last transaction."""
    with lmdb.open(path, readonly=True, lock=False) as env:
        return env.stat()["entries"], env.info()["last_txnid"]


def on_the_last_node(path: str, per_node: int) -> str:
    return path if RANK // per_node == (SIZE - 1) // per_node else PATH


def refused(name: str, per_node: int) -> str:
    """Return the error that all ranks get for a copy on the last node."""
    path = on_the_last_node(str(FOLDER / name), per_node)
    try:
        Reader(path, 2 * SIZE, comm=COMM, ranks_per_node=per_node)
    except (ValueError, Error, OSError) as error:
        told = str(error)
    else:
        raise AssertionError(f"rank {RANK} was not refused {name}, nodes of {per_node}")
    with Reader(PATH, 2 * SIZE, comm=COMM, iterations=2) as reader:
        assert [len(batch) for batch in reader] == [2, 2]
    return told


def names_both(told: str, per_node: int, *values: object) -> None:
    """The roots of the first and the last node, and what each saw, as words of their own."""
    last = (SIZE - 1) // per_node * per_node
    assert re.search(r"\branks? 0\b", told) and re.search(rf"\b{last}\b", told), told
    for value in values:
        assert re.search(rf"\b{value}\b", told), (told, value)


def a_copy_that_is_alike_may_lie_elsewhere(per_node: int) -> None:
    path = on_the_last_node(str(FOLDER / "alike"), per_node)
    with Reader(path, 2 * SIZE, comm=COMM, ranks_per_node=per_node, iterations=4) as reader:
        for batch in reader:
            wanted = [fixed_value(i) for i in batch.indices.tolist()]
            assert [bytes(record) for record in batch] == wanted


def a_copy_with_fewer_records_is_named_with_both_counts(per_node: int) -> None:
    told = refused("fewer", per_node)
    names_both(told, per_node, seen(PATH)[0], seen(str(FOLDER / "fewer"))[0])


def a_copy_of_a_later_transaction_is_named_with_both(per_node: int) -> None:
    told = refused("later", per_node)
    assert seen(PATH)[0] == seen(str(FOLDER / "later"))[0]
    names_both(told, per_node, seen(PATH)[1], seen(str(FOLDER / "later"))[1])


def a_copy_with_values_of_other_sizes_is_named(per_node: int) -> None:
    assert seen(PATH) == seen(str(FOLDER / "resized"))
    names_both(refused("resized", per_node), per_node)


def a_copy_with_one_value_of_another_size_in_the_middle_is_named(per_node: int) -> None:
    names_both(refused("middle", per_node), per_node)


def a_copy_that_is_not_there_is_named_with_its_path(per_node: int) -> None:
    told = refused("missing", per_node)
    assert str(FOLDER / "missing") in told
    last = (SIZE - 1) // per_node * per_node
    texts = COMM.allgather(told)
    assert all(f"rank {last} failed" in text for rank, text in enumerate(texts) if rank < last)


CASES: list[Callable[[int], None]] = [
    a_copy_that_is_alike_may_lie_elsewhere,
    a_copy_that_is_not_there_is_named_with_its_path,
    a_copy_with_fewer_records_is_named_with_both_counts,
    a_copy_of_a_later_transaction_is_named_with_both,
    a_copy_with_values_of_other_sizes_is_named,
    a_copy_with_one_value_of_another_size_in_the_middle_is_named,
]

for case in CASES:
    for per_node in (1, SIZE // 2):
        case(per_node)
        COMM.Barrier()
    if RANK == 0:
        print(f"{case.__name__}: ok", flush=True)
