"""Goal: a batch lends exactly its records' bytes, and knows when it may not.

Method: batches over private memory with known bytes at strides that are one, several, negative
and zero; every view is compared with Python slices of the same bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.reading.batch import Batch

CONTENT = bytes(range(256)) * 4


def batch_of(offsets: Sequence[int], lengths: Sequence[int], content: bytes = CONTENT) -> Batch:
    memory = _core.Memory(len(content))
    memoryview(_core.lend(memory.address, len(content))).cast("B")[:] = content
    return Batch.over(
        memory.address,
        len(content),
        indices=np.arange(100, 100 + len(offsets), dtype=np.uint64),
        offsets=np.array(offsets, np.uint64),
        lengths=np.array(lengths, np.uint64),
        keep=memory,
    )


LAYOUTS = {
    "one stride": ([0, 40, 80, 120], [30, 30, 30, 30], True),
    "packed": ([16, 32, 48], [16, 16, 16], True),
    "packed downward": ([90, 60, 30, 0], [30, 30, 30, 30], True),
    "the same record again": ([40, 40, 40], [20, 20, 20], True),
    "two strides": ([0, 40, 90], [30, 30, 30], False),
    "a single record": ([7], [20], True),
    "different lengths": ([0, 50, 100], [20, 35, 50], True),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_records_are_read_only_views_of_exactly_their_bytes(layout: str) -> None:
    offsets, lengths, contiguous = LAYOUTS[layout]
    batch = batch_of(offsets, lengths)
    expected = [CONTENT[o : o + n] for o, n in zip(offsets, lengths, strict=True)]
    assert len(batch) == len(offsets)
    assert [bytes(view) for view in batch] == expected
    assert [bytes(batch[i]) for i in range(-len(batch), 0)] == expected
    assert batch.contiguous is contiguous
    assert batch[0].format == "B" and batch[0].readonly and batch[0].ndim == 1
    assert batch.indices.tolist() == list(range(100, 100 + len(offsets)))
    assert batch.offsets.tolist() == offsets and batch.lengths.tolist() == lengths
    start = offsets[0]
    assert batch.buffer[start : start + lengths[0]].tobytes() == expected[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "shape", "offset"),
    [("u1", (), 0), ("<u2", (3, 2), 1), ("<f4", 3, 3), ("S5", (), 2), ("u1", (2, 0), 0)],
)
def test_array_is_the_same_field_of_every_record(
    layout: str, dtype: str, shape: int | tuple[int, ...], offset: int
) -> None:
    offsets, lengths, contiguous = LAYOUTS[layout]
    batch = batch_of(offsets, lengths)
    got = batch.array(dtype, shape, offset)
    inner = (shape,) if isinstance(shape, int) else shape
    count = int(np.prod(inner, dtype=int))
    expected = [np.frombuffer(CONTENT, dtype, count, o + offset) for o in offsets]
    assert got.shape == (len(offsets), *inner) and got.dtype == np.dtype(dtype)
    assert got.tobytes() == b"".join(e.tobytes() for e in expected)
    assert not got.flags.writeable
    if got.size:
        assert np.shares_memory(got, batch.buffer) is contiguous


def test_array_refuses_a_record_that_is_too_short_and_names_it() -> None:
    batch = batch_of([0, 50, 100], [20, 8, 20])
    with pytest.raises(ValueError, match=r"record 101 has 8 bytes.*needs 9"):
        batch.array("u1", 9)
    assert batch.array("u1", 8).shape == (3, 8)
    with pytest.raises(ValueError, match="record 100"):
        batch.array("u1", 2**62, 2**62)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "O"}, "objects"),
        ({"dtype": "u1", "offset": -1}, "negative"),
        ({"dtype": "u1", "shape": (-1,)}, "negative"),
    ],
)
def test_array_refuses_what_makes_no_sense(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        batch_of([0], [10]).array(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [4, -5, 10**30])
def test_an_index_out_of_range_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        batch_of([0, 40, 80, 120], [30] * 4)[index]


def test_an_empty_batch_is_a_batch() -> None:
    batch = batch_of([], [])
    assert len(batch) == 0 and list(batch) == [] and batch.contiguous
    assert batch.buffer.tobytes() == CONTENT
    assert batch.array("u1", 3).shape == (0, 3)
    nothing = Batch(
        None,
        indices=np.empty(0, np.uint64),
        offsets=np.empty(0, np.uint64),
        lengths=np.empty(0, np.uint64),
    )
    assert nothing.buffer.size == 0 and len(nothing.copy()) == 0


def test_empty_values_are_empty_views() -> None:
    batch = batch_of([0, 0, 30], [0, 10, 0])
    assert [bytes(v) for v in batch] == [b"", CONTENT[:10], b""]
    assert [bytes(v) for v in batch.copy()] == [b"", CONTENT[:10], b""]
    only_empty = batch_of([0, 0], [0, 0]).copy()
    assert [bytes(v) for v in only_empty] == [b"", b""]


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 1025), (1024, 1), (2**64 - 1, 1), (1, 2**64 - 1), (2**63, 2**63)],
)
def test_a_record_beyond_its_buffer_is_refused(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="record 101"):
        batch_of([0, offset], [4, length])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_has_the_same_records_in_memory_of_its_own(layout: str) -> None:
    offsets, lengths, _ = LAYOUTS[layout]
    batch = batch_of(offsets, lengths)
    copy = batch.copy()
    assert [bytes(v) for v in copy] == [bytes(v) for v in batch]
    assert not np.shares_memory(copy.buffer, batch.buffer)
    assert copy.indices.tolist() == batch.indices.tolist()
    assert copy.contiguous or len(set(lengths)) > 1


def test_private_memory_lives_as_long_as_a_view_of_it() -> None:
    batch = batch_of([0, 40], [30, 30])
    view, array = batch[1], batch.array("u1", 30)
    del batch
    gc.collect()
    assert bytes(view) == CONTENT[40:70]
    assert array.tobytes() == CONTENT[:30] + CONTENT[40:70]


def test_a_batch_lets_go_only_without_views_and_is_of_no_use_then() -> None:
    batch = batch_of([0, 40], [30, 30])
    servers = [
        batch[0],
        batch[1][3:5],
        batch.array("<u2", 4),
        batch.buffer[2:],
        memoryview(batch[0]),
    ]
    while servers:
        assert not batch._try_end() and batch.valid
        assert bytes(batch[0]) == CONTENT[:30]
        servers.pop()
    assert batch._try_end() and not batch.valid
    for use in (
        lambda: batch[0],
        lambda: list(batch),
        lambda: batch.buffer,
        lambda: batch.array("u1"),
        batch.copy,
    ):
        with pytest.raises(BufferError, match="no longer valid"):
            use()
    assert len(batch) == 2 and batch.indices.tolist() == [100, 101]
    assert batch.lengths.tolist() == [30, 30] and "no longer valid" in repr(batch)


def test_indices_offsets_and_lengths_pin_nothing() -> None:
    batch = batch_of([0, 40], [30, 30])
    kept = (batch.indices, batch.offsets, batch.lengths)
    assert batch._try_end()
    assert kept[1].tolist() == [0, 40]
    with pytest.raises(ValueError, match="read-only"):
        kept[0][0] = 1
