"""Goal: "auto" keeps a part of a file where that gains, and says why, and what else would.

Method: the pure functions, over nodes and sizes of one digit.
"""

from __future__ import annotations

import pytest

from lmdbio.machine.cache_choice import auto_cache, auto_memory, choose_cache, order_hint
from lmdbio.placement.cache import Cache

MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "nodes", "is_shared", "kept", "words"),
    [
        ("auto", 4, True, "auto", ""),
        ("auto", 1, True, None, "there is one node: the page cache"),
        ("auto", 4, False, None, "nodes share no storage that is far: the page cache"),
        (None, 4, True, None, 'no root keeps what it has read; with cache="auto" each part'),
        (None, 1, True, None, "no root keeps what it has read"),
        (Cache("8G"), 1, False, Cache("8G"), ""),
    ],
)
def test_it_is_kept_where_several_nodes_read_one_file(
    asked: Cache | str | None, nodes: int, is_shared: bool, kept: object, words: str
) -> None:
    cache, reason = choose_cache(asked, nodes=nodes, is_shared=is_shared)
    assert cache == kept
    assert reason.text.startswith(words)
    assert ("auto" in reason.text) == (asked is None and nodes > 1)


def test_half_of_what_is_left_is_kept() -> None:
    assert auto_memory(10 * MIB, 4 * MIB) == 3 * MIB
    assert auto_memory(4 * MIB, 10 * MIB) == 0


def test_nodes_that_hold_a_file_are_counted() -> None:
    def found(file: int, **words: int | bool) -> tuple[int, int, int, str]:
        all_words = {"is_far": True, "available_bytes": 10 * MIB, "beside_bytes": 4 * MIB} | words
        auto = auto_cache(file * MIB, **all_words)  # type: ignore[arg-type]
        return auto.memory_bytes // MIB, auto.disk_bytes // MIB, auto.nodes, auto.reason.text

    assert found(3)[:3] == (3, 0, 1)
    assert found(4)[:3] == (3, 0, 2)
    assert "a node holds the whole" in found(3)[3] and "2 such nodes hold" in found(4)[3]
    assert found(4, disk_bytes=MIB)[:3] == (3, 1, 1)
    assert "on its disk, 1 MiB" in found(4, disk_bytes=MIB)[3]
    assert found(4, available_bytes=0) == (0, 0, 0, "a node has no memory left for it")
    kept = found(4, is_far=False)
    assert kept[:3] == (0, 0, 0) and "page cache" in kept[3]


def test_another_order_is_told_where_it_takes_far_fewer_requests() -> None:
    def hint(records: int, size: int, *, is_cached: bool = True) -> str:
        return order_hint(
            left_records=records, left_bytes=records * size, request_bytes=MIB, is_cached=is_cached
        )

    small = hint(10_000, 4096)
    assert "10,000 records" in small and "about 40 requests" in small and "mixed" in small
    assert "mixed" not in hint(10_000, 4096, is_cached=False)
    assert hint(1000, 110 * 1024)
    assert not hint(255, 4096)
    assert not hint(1000, MIB)
    assert not hint(1000, 3 * MIB)
    assert not hint(0, 4096)
