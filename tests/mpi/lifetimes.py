"""Program: slots and those who leave, hold on or dawdle. Arguments: a set of data.fixed_value.

Every batch that a rank looks at is compared, record by record, with what its indices say; an
overwritten slot would show.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
import time
import unittest.mock
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from data import FIXED
from mpi4py import MPI

from lmdbio import _core
from lmdbio.errors import Error, PeerError
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader
from lmdbio.reading.batch import Batch
from lmdbio.share.memory import wait_unused

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
BATCH = 3 * SIZE + 1
ONE = Mode(block_iterations=1)


def good(records: Iterable[np.ndarray], indices: np.ndarray) -> None:
    for index, words in zip(indices, records, strict=True):
        assert words.shape == (750,) and (words == index).all(), (RANK, indices)


def views(batch: Batch) -> list[np.ndarray]:
    """Arrays in the window itself (``array`` copies where the stride is not one)."""
    return [np.frombuffer(record, "<u4") for record in batch]


def look(batch: Batch) -> None:
    good(views(batch), batch.indices)
    good(batch.array("<u4", 750), batch.indices)


def reader(**more: object) -> Reader:
    arguments = {"batch_size": BATCH, "comm": COMM, "mode": ONE} | more
    return Reader(sys.argv[1], **arguments)  # type: ignore[arg-type]


def a_rank_that_holds_a_view_gets_buffererror_and_may_go_on() -> None:
    for holder in {0, SIZE - 1}:
        with reader(iterations=40, slots=2) as rdr:
            for t in range(40):
                batch = next(rdr)
                look(batch)
                if holder == RANK and t % 10 == 3:
                    array = views(batch)
                    for _ in range(3):
                        try:
                            next(rdr)
                        except BufferError as error:
                            assert "raise slots=" in str(error)
                        else:
                            raise AssertionError("a view was alive")
                        time.sleep(0.005)
                        good(array, batch.indices)
                    del array
            del batch


def a_list_of_all_batches_neither_hangs_nor_lies() -> None:
    with reader(iterations=30) as rdr:
        batches = list(rdr)
    assert len(batches) == 30
    for batch in batches:
        if len(batch):
            try:
                batch[0]
            except BufferError:
                continue
            raise AssertionError("an old batch can be used")


def one_rank_leaves_early_and_the_others_go_on() -> None:
    for quitter in range(SIZE):
        with reader(iterations=30) as rdr:
            count = 0
            for batch in rdr:
                look(batch)
                count += 1
                if quitter == RANK and count == 3:
                    break
        assert count == (3 if quitter == RANK else 30)


def one_rank_forgets_its_reader_and_the_others_go_on() -> None:
    for quitter in (0, SIZE - 1):
        rdr = reader(iterations=30)
        for t, batch in enumerate(rdr):
            look(batch)
            if quitter == RANK and t == 3:
                break
        del rdr, batch
        gc.collect()
        COMM.Barrier()


def all_leave_early_each_at_its_own_time() -> None:
    with reader() as rdr:
        for t, batch in enumerate(rdr):
            look(batch)
            if t == 2 + 3 * RANK:
                break


def who_leaves_with_views_in_use_keeps_them_and_holds_nobody_up() -> None:
    for quitters in ({0}, {SIZE - 1}, set(range(0, SIZE, 2))):
        rdr = reader(iterations=60, slots=3)
        kept: list[tuple[list[np.ndarray], np.ndarray]] = []
        for t, batch in enumerate(rdr):
            look(batch)
            if RANK in quitters and t >= 4:
                kept.append((views(batch), batch.indices))
                if len(kept) == 2:
                    break
        # A rank that leaves for good may be called by closing or by forgetting.
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            rdr.close()
        for array, indices in kept:
            good(array, indices)
        assert any("alive" in str(w.message) for w in told) == bool(RANK in quitters and SIZE)
        del rdr, batch, kept


def slow_ranks_see_no_slot_filled_anew() -> None:
    for mode in (ONE, Mode(block_iterations=3)):
        with reader(iterations=25, mode=mode) as rdr:
            for t, batch in enumerate(rdr):
                array = views(batch)
                good(array, batch.indices)
                if t % SIZE == RANK:
                    time.sleep(0.004)
                    good(array, batch.indices)
                del array


def the_natural_loop_works() -> None:
    with reader(iterations=50, mode="auto", batch_size=16 * SIZE) as rdr:
        for batch in rdr:
            array = batch.array("<u4", 750)
            good(array, batch.indices)
        del array, batch


def a_rank_that_stops_for_a_while_lets_the_others_as_far_as_slots_allow() -> None:
    with reader(iterations=12, slots=4) as rdr:
        if RANK == SIZE - 1:
            next(rdr)
            time.sleep(0.25)
        for batch in rdr:
            look(batch)
        begun = time.perf_counter()
    assert time.perf_counter() - begun < 5


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep Python from printing exceptions that it cannot raise."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def mapped() -> Counter[str]:
    """Mappings of shared memory, by the names of what is mapped."""
    text = Path("/proc/self/maps").read_text(encoding="ascii")
    return Counter(" ".join(line.split()[5:]) for line in text.splitlines() if "rw-s" in line)


def windows_are_given_back() -> None:
    counts = []
    for _ in range(8):
        with reader(iterations=3) as rdr:
            for batch in rdr:
                look(batch)
        counts.append(mapped().total())
    assert counts[-1] <= counts[1], counts


def views_of_readers_that_ended() -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Of one that was closed in mid-epoch, one at its end, and one that was forgotten."""
    kept = []
    for iterations, last, closes in ((60, 4, True), (5, 4, True), (60, 4, False)):
        rdr = reader(iterations=iterations, slots=3)
        for t, batch in enumerate(rdr):
            if t == last:
                kept.append((views(batch), batch.indices))
                if iterations != last + 1:
                    break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if closes:
                rdr.close()
            del rdr, batch
            gc.collect()
    COMM.Barrier()
    wait_unused()  # a root's thread looks now and then whether all have left
    COMM.Barrier()
    with reader(iterations=3) as rdr:  # frees what was forgotten
        for batch in rdr:
            look(batch)
    return kept


def views_that_outlive_their_reader_keep_no_window() -> None:
    before = mapped()
    kept = views_of_readers_that_ended()
    assert mapped().total() <= before.total(), (before, mapped())
    for array, indices in kept:
        good(array, indices)


def batches_are_copied_where_a_window_cannot_be_mapped_twice() -> None:
    twice, _core.map_again = _core.map_again, lambda *_: None
    try:
        slow_ranks_see_no_slot_filled_anew()
        who_leaves_with_views_in_use_keeps_them_and_holds_nobody_up()
        views_that_outlive_their_reader_keep_no_window()
    finally:
        _core.map_again = twice


def a_forked_child_that_drops_views_releases_nothing() -> None:
    with reader(iterations=40, slots=3) as rdr:
        for t, batch in enumerate(rdr):
            if t == 5:
                array, indices = views(batch), batch.indices
            elif t == 6:
                child = os.fork()
                if child == 0:
                    del array
                    os._exit(0)
                os.waitpid(child, 0)
                time.sleep(0.05)  # as long as a root takes to fill the slot
                good(array, indices)
                del array


def who_forgets_with_views_in_use_where_warnings_are_errors_holds_nobody_up() -> None:
    rdr = reader(iterations=30, slots=3)
    with warnings.catch_warnings(), silence():
        warnings.simplefilter("error")
        for t, batch in enumerate(rdr):
            if RANK == SIZE - 1 and t == 4:
                array, indices = views(batch), batch.indices
                del rdr, batch
                gc.collect()
                break
        else:
            assert t == 29
    COMM.Barrier()
    if RANK == SIZE - 1:
        good(array, indices)


def no_memory_for_the_copies_of_views_is_told_to_all() -> None:
    rdr = reader(slots=3)
    error = OSError(errno.ENOMEM, "no memory")
    try:
        for t, batch in enumerate(rdr):
            if RANK == SIZE - 1 and t == 4:
                array, indices = views(batch), batch.indices
                with unittest.mock.patch.object(_core.Mapping, "detach", side_effect=error):
                    rdr.close()
                break
            if t == 30:  # nobody failed: each of these ranks has memory of its own
                break
    except (OSError, PeerError) as told:
        assert "no memory" in str(told)
    COMM.Barrier()
    if RANK == SIZE - 1:
        good(array, indices)


def views_and_readers_outlive_mpi() -> None:
    """The last case: MPI is over then. Roots that fill for others do so until these are there."""
    kept = views_of_readers_that_ended()
    rdr = reader(slots=40)
    forgotten = reader(slots=20)
    next(forgotten)
    del forgotten
    for _ in range(3 + RANK):
        batch = next(rdr)
    kept.append((views(batch), batch.indices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MPI.Finalize()
    for array, indices in kept:
        good(array, indices)
    try:
        next(rdr)
    except Error as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("MPI is over")
    rdr.close()


CASES: list[Callable[[], None]] = [
    windows_are_given_back,
    a_rank_that_holds_a_view_gets_buffererror_and_may_go_on,
    a_list_of_all_batches_neither_hangs_nor_lies,
    one_rank_leaves_early_and_the_others_go_on,
    one_rank_forgets_its_reader_and_the_others_go_on,
    all_leave_early_each_at_its_own_time,
    who_leaves_with_views_in_use_keeps_them_and_holds_nobody_up,
    slow_ranks_see_no_slot_filled_anew,
    the_natural_loop_works,
    a_rank_that_stops_for_a_while_lets_the_others_as_far_as_slots_allow,
    views_that_outlive_their_reader_keep_no_window,
    batches_are_copied_where_a_window_cannot_be_mapped_twice,
    a_forked_child_that_drops_views_releases_nothing,
    who_forgets_with_views_in_use_where_warnings_are_errors_holds_nobody_up,
    no_memory_for_the_copies_of_views_is_told_to_all,
    views_and_readers_outlive_mpi,
]

assert FIXED > BATCH
for case in CASES:
    began = time.perf_counter()
    case()
    if not MPI.Is_finalized():
        COMM.Barrier()
    if RANK == 0:
        print(f"{case.__name__}: {time.perf_counter() - began:.2f} s", flush=True)
