"""Goal: slots change hands in order, nobody waits in vain, and views outlive a detach.

Method: the control area lies in memory shared between threads, and between processes made by
fork; what a rank sees in a slot is checked against the number of the block.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lmdbio import _core
from lmdbio._core import Window
from lmdbio.share.window import pages_of

#: Waits are timed to some milliseconds.
pytestmark = pytest.mark.alone

PAGE = mmap.PAGESIZE


class Shared:
    """Shared pages and their address."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def attach(self, ranks: int, roots: int, fresh: bool = False) -> Window:
        return Window(self.address, ranks=ranks, roots=roots, fresh=fresh)


def window(ranks: int = 2, roots: int = 1) -> tuple[Shared, Window]:
    shared = Shared(Window.bytes(ranks, roots))
    return shared, shared.attach(ranks, roots, fresh=True)


def test_a_block_is_there_when_it_is_published_and_not_before() -> None:
    _keep, w = window()
    begun = time.monotonic()
    assert not w.wait_published(0, 0)
    assert 0.05 < time.monotonic() - begun < 1
    w.publish(0, 1)
    assert w.wait_published(0, 0) and not w.wait_published(0, 1)


def test_a_slot_is_free_when_all_of_the_team_have_released_or_left() -> None:
    _keep, w = window(ranks=3)
    team = range(3)
    assert w.wait_released(0, team, 0) is True
    w.release(0, 0, 1)
    w.release(0, 1, 2)
    assert w.wait_released(0, team, 1) is False
    w.leave(0, 2, Window.LEFT)
    assert w.wait_released(0, team, 1) is True
    assert w.wait_released(0, range(1, 2), 2) is True
    w.leave(0, 0, Window.LEFT)
    w.leave(0, 1, Window.LEFT)
    assert w.wait_released(0, team, 1) is None


def test_a_release_never_goes_back() -> None:
    _keep, w = window(ranks=1)
    w.release(0, 0, 5)
    w.release(0, 0, 3)
    assert w.wait_released(0, range(1), 5) is True


def test_roots_do_not_mix_their_blocks() -> None:
    _keep, w = window(ranks=2, roots=2)
    w.publish(1, 7)
    assert w.wait_published(1, 6) and not w.wait_published(0, 0)


def test_a_wait_ends_as_soon_as_it_can() -> None:
    _keep, w = window()
    seen: list[bool | None] = []
    thread = threading.Thread(target=lambda: seen.append(w.wait_released(0, range(1), 1, 60_000)))
    thread.start()
    time.sleep(0.03)
    w.release(0, 0, 1)
    thread.join(10)
    assert seen == [True], "not after a minute"


def test_an_abort_ends_every_wait_and_the_first_message_stays() -> None:
    _keep, w = window()
    assert w.aborted() is None
    waiting = [
        threading.Thread(target=wait)
        for wait in (
            lambda: w.wait_published(0, 0),
            lambda: w.wait_released(0, range(2), 1),
            lambda: w.wait_end(left=True),
        )
    ]
    for thread in waiting:
        thread.start()
    w.abort(1, "first " + "é" * 1000)
    w.abort(0, "second")
    begun = time.monotonic()
    for thread in waiting:
        thread.join(5)
    assert time.monotonic() - begun < 0.09
    told = w.aborted()
    assert told is not None and told[0] == 1
    assert told[1].startswith("first é") and len(told[1].encode()) < 460


def test_the_window_may_be_freed_only_when_all_close() -> None:
    _keep, w = window()
    w.leave(0, 0, Window.LEFT)
    w.leave(0, 0, Window.CLOSES)
    w.leave(0, 0, Window.LEFT)
    assert not w.wait_end(left=True) and w.end() == Window.OPEN
    w.leave(0, 1, Window.LEFT)
    assert w.wait_end(left=True) and not w.wait_end(left=False)
    w.leave(0, 1, Window.CLOSES)
    assert w.wait_end(left=False) and w.end() == Window.FREE == w.keep()


def test_one_rank_that_will_not_close_settles_that_nobody_frees() -> None:
    _keep, w = window()
    settled = w.keep()
    assert settled not in (Window.FREE, Window.OPEN)
    w.leave(0, 0, Window.CLOSES)
    w.leave(0, 1, Window.CLOSES)
    assert w.end() == settled and w.wait_end(left=False)


@pytest.mark.parametrize(("ranks", "roots"), [(0, 1), (1, 0), (1, 2)])
def test_impossible_sizes_are_refused(ranks: int, roots: int) -> None:
    shared = Shared(PAGE)
    with pytest.raises(ValueError, match="control area"):
        shared.attach(ranks, roots, fresh=True)


def test_attaching_to_anything_else_is_refused() -> None:
    shared, _ = window(ranks=2)
    with pytest.raises(ValueError, match="no control area"):
        shared.attach(3, 1)
    with pytest.raises(ValueError, match="no control area"):
        Shared(PAGE).attach(2, 1)


def test_processes_see_every_block_once_and_never_a_slot_that_is_filled_anew() -> None:
    """Two ranks, one fast and one slow, in processes of their own; the slots are 2 pages."""
    ranks, slots, blocks = 2, 2, 300
    shared = Shared(PAGE + slots * PAGE)
    w = shared.attach(ranks, 1, fresh=True)
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            bad = 0
            for block in range(blocks):
                while not w.wait_published(0, block):
                    pass
                at = PAGE + block % slots * PAGE
                words = shared.map[at : at + PAGE]
                if rank and block % 50 == 0:
                    time.sleep(0.002)
                bad += words != shared.map[at : at + PAGE]
                bad += words != block.to_bytes(8, "little") * (PAGE // 8)
                w.release(0, rank, block + 1)
            w.leave(0, rank, Window.LEFT)
            os._exit(min(bad, 100))
        children.append(pid)
    for block in range(blocks):
        while w.wait_released(0, range(ranks), max(0, block - slots + 1)) is False:
            pass
        at = PAGE + block % slots * PAGE
        shared.map[at : at + PAGE] = block.to_bytes(8, "little") * (PAGE // 8)
        w.publish(0, block + 1)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]
    assert w.wait_released(0, range(ranks), 1) is None


def test_a_wait_sleeps_rather_than_polls() -> None:
    _keep, w = window()
    before = time.process_time()
    for _ in range(3):
        assert not w.wait_published(0, 0)
    assert time.process_time() - before < 0.05


def test_populated_memory_is_backed_and_a_bad_range_is_an_error() -> None:
    shared = Shared(16 * PAGE)
    if not _core.populate(shared.address, 16 * PAGE):
        pytest.skip("this kernel has no MADV_POPULATE_WRITE")
    assert shared.map[:] == bytes(16 * PAGE)
    with pytest.raises(OSError, match="reserve"):
        _core.populate(PAGE, PAGE)  # nothing is mapped there


def test_views_keep_their_bytes_when_the_shared_pages_under_them_are_detached() -> None:
    shared = Shared(4 * PAGE)
    shared.map[:] = b"a" * (4 * PAGE)
    mapping = map_again(shared.address, 4 * PAGE)
    view = memoryview(_core.lend(mapping.address + PAGE, PAGE)).cast("B")
    beside = memoryview(_core.lend(mapping.address + 2 * PAGE, 2 * PAGE)).cast("B")
    mapping.detach(mapping.address + PAGE, PAGE)
    pid = os.fork()
    if pid == 0:  # what is shared changes
        shared.map[:] = b"b" * (4 * PAGE)
        os._exit(0)
    os.waitpid(pid, 0)
    assert bytes(shared.map) == 2 * bytes(beside) == b"b" * (4 * PAGE)
    assert bytes(view) == b"a" * PAGE


def map_again(address: int, size: int) -> _core.Mapping:
    mapping = _core.map_again(address, size)
    assert mapping is not None
    return mapping


def test_a_second_mapping_outlives_the_first_and_ends_with_the_last_view_of_it() -> None:
    shared = mmap.mmap(-1, 4 * PAGE)
    shared[:] = b"a" * (4 * PAGE)
    mapping = map_again(ctypes.addressof(ctypes.c_char.from_buffer(shared)), 4 * PAGE)
    gc.collect()
    shared.close()
    first = mapping.address
    view = memoryview(_core.lend(first + PAGE, PAGE, mapping)).cast("B")[7:9]
    mapping.detach(mapping.address + PAGE, PAGE)
    mapping.vacate(first, PAGE)
    mapping.vacate(first + 2 * PAGE, 2 * PAGE)
    del mapping
    assert bytes(view) == b"aa"
    taken = {first, first + PAGE, first + 3 * PAGE}
    assert {address for address in taken if is_mapped(address)} == taken
    del view
    assert not any(map(is_mapped, taken))


def is_mapped(address: int) -> bool:
    """Whether an address of a page is taken."""
    lines = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    ranges = [line.split()[0].split("-") for line in lines]
    return any(int(first, 16) <= address < int(end, 16) for first, end in ranges)


def test_what_is_not_shared_has_no_second_mapping() -> None:
    private = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    assert _core.map_again(ctypes.addressof(ctypes.c_char.from_buffer(private)), PAGE) is None


LITTLE_SPACE = """
import ctypes, mmap, resource
from lmdbio import _core
size = 64 << 20
shared = mmap.mmap(-1, size)
used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (used + size // 2,) * 2)
print(_core.map_again(ctypes.addressof(ctypes.c_char.from_buffer(shared)), size))
"""


def test_a_window_has_no_second_mapping_where_there_is_no_address_space_for_it() -> None:
    words = [sys.executable, "-c", LITTLE_SPACE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.parametrize(("shift", "size"), [(1, PAGE), (0, 100), (0, 0)])
def test_only_whole_pages_can_be_mapped_and_detached(shift: int, size: int) -> None:
    shared = Shared(2 * PAGE)
    with pytest.raises(ValueError, match="whole pages"):
        _core.map_again(shared.address + shift, size)
    mapping = map_again(shared.address, 2 * PAGE)
    with pytest.raises(ValueError, match="whole pages"):
        mapping.detach(mapping.address + shift, size)
    with pytest.raises(ValueError, match="none of this mapping"):
        mapping.vacate(mapping.address + PAGE, 2 * PAGE)


@pytest.mark.parametrize(
    ("spans", "pages"),
    [
        ([], []),
        ([(1, 2)], [(0, 10)]),
        ([(10, 20), (0, 10)], [(0, 20)]),
        ([(25, 31), (5, 6), (8, 9)], [(0, 10), (20, 40)]),
        ([(0, 35), (11, 12), (50, 60)], [(0, 40), (50, 60)]),
    ],
)
def test_pages_under_views_are_found(
    spans: list[tuple[int, int]], pages: list[tuple[int, int]]
) -> None:
    assert pages_of(spans, 10) == pages
