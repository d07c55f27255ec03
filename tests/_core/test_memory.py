"""Goal: memory that a Reader maps suits any engine, is its process's own, and goes back whole."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from lmdbio import _core


def view(memory: _core.Memory) -> memoryview:
    return memoryview(_core.lend(memory.address, memory.size, memory)).cast("B")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", [1, 4096, 100_000, 2 << 20, (2 << 20) + 1, 9 << 20])
def test_mapped_memory_is_aligned_and_as_large_as_it_says(size: int) -> None:
    memory = _core.MappedMemory(size)
    large = size >= _core.Memory.HUGE_BYTES_MIN
    assert memory.address % (_core.Memory.HUGE_PAGE if large else _core.Memory.ALIGNMENT) == 0
    written = view(memory)
    assert len(written) == size and not written[0] and not written[-1]
    written[0] = written[-1] = 7
    assert written[0] == written[-1] == 7


def test_mapped_memory_goes_back_whole_when_the_last_view_of_it_has_gone() -> None:
    gc.collect()  # of other tests, whose memory is none of this one's
    size = 64 << 20
    memory = _core.MappedMemory(size)
    written = view(memory)
    written[::4096] = b"x" * len(written[::4096])
    had = resident_bytes()
    del memory
    gc.collect()
    assert written[4096] == ord("x") and resident_bytes() > had - size // 2
    del written
    gc.collect()
    assert resident_bytes() < had - size // 2


def test_a_forked_child_writes_to_memory_of_its_own() -> None:
    memory = _core.MappedMemory(4096)
    written = view(memory)
    child = os.fork()
    if not child:
        written[0] = 9
        os._exit(0)
    os.waitpid(child, 0)
    assert written[0] == 0


def test_memory_that_is_not_there_is_a_memory_error() -> None:
    for size in (1 << 60, 1 << 70):
        with pytest.raises(MemoryError, match=str(size)):
            _core.MappedMemory(size)
