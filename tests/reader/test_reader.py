"""Goal: a Reader in one process gives the circular sequence, and its batches keep their word.

Method: databases written by py-lmdb, read back by py-lmdb for comparison; failures injected by
a source or an engine that fails on request. Jobs of several ranks are in tests/mpi.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest

from lmdbio import _core
from lmdbio.convert.convert import convert
from lmdbio.errors import Error, IncompatibleError, ProvenanceError
from lmdbio.machine.choice import Choice, choose
from lmdbio.machine.overrides import Overrides
from lmdbio.machine.storage import Storage
from lmdbio.planning.mode import Mode
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader import reader, roots
from lmdbio.reader.reader import Reader
from lmdbio.system.file_identity import FileIdentity
from tests.reader.support import COUNT, MODES, drain, value, write

if TYPE_CHECKING:
    from lmdbio.machine.choice import Access


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("assignment", ["strided", "blocked"])
@pytest.mark.parametrize("slots", [2, 5])
def test_every_mode_gives_the_same_bytes_in_the_same_order(
    mixed: Path, mode: Mode | str, assignment: str, slots: int
) -> None:
    with Reader(
        mixed, 16, mode=mode, assignment=assignment, slots=slots, start=200, iterations=30
    ) as rdr:
        assert drain(rdr) == [(200 + i) % COUNT for i in range(16 * 30)]
        assert rdr.mode.block_iterations >= 1


def test_reads_may_be_carried_by_io_uring(mixed: Path) -> None:
    try:
        _core.Engine(mixed / "data.mdb", "uring").close()
    except IncompatibleError as e:
        pytest.skip(str(e))
    with Reader(mixed, 16, mode=Mode(engine="uring"), iterations=30) as rdr:
        assert rdr.mode.engine == "uring"
        assert drain(rdr) == [i % COUNT for i in range(16 * 30)]


@pytest.mark.parametrize("start", [0, 1, COUNT - 1, COUNT, 10**15, -1, -COUNT - 3])
@pytest.mark.parametrize("batch_size", [1, 7, COUNT, 3 * COUNT + 5])
def test_any_start_and_any_batch_size_follow_the_circle(
    mixed: Path, start: int, batch_size: int
) -> None:
    with Reader(mixed, batch_size, start=start, iterations=3) as rdr:
        assert drain(rdr) == [(start + i) % COUNT for i in range(3 * batch_size)]


@pytest.mark.parametrize(("gap", "request_bytes"), [(0, 1), (0, 4096), (10**9, 10**9)])
def test_how_reads_are_cut_changes_no_byte(mixed: Path, gap: int, request_bytes: int) -> None:
    for engine in ("pread", "direct"):
        with Reader(
            mixed,
            16,
            mode=Mode(engine=engine, block_iterations=3),
            iterations=20,
            gap_bytes_max=gap,
            request_bytes_max=max(request_bytes, 100),
        ) as rdr:
            assert drain(rdr) == [i % COUNT for i in range(320)]


def test_a_reader_is_endless_unless_told_otherwise(mixed: Path) -> None:
    with Reader(mixed, 50) as rdr:
        for t in range(40):
            assert next(rdr).indices.tolist() == [(t * 50 + i) % COUNT for i in range(50)]


def test_no_iterations_are_no_batches(mixed: Path) -> None:
    with Reader(mixed, 4, iterations=0) as rdr:
        assert list(rdr) == []


def test_without_a_communicator_mpi_is_not_imported(mixed: Path) -> None:
    code = f"""
        import sys
        from lmdbio.reader.reader import Reader
        with Reader({str(mixed)!r}, 4, iterations=2) as rdr:
            assert [len(b) for b in rdr] == [4, 4]
        assert not any(name.startswith("mpi4py") for name in sys.modules)
    """
    run_python(code)


def run_python(code: str, *, expect: int = 0, timeout: float = 20) -> str:
    root = Path(reader.__file__).parents[2]
    environ = os.environ | {"PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environ,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


# --- the life of a batch -----------------------------------------------------------------


def servers(batch: Any) -> dict[str, Any]:
    return {
        "a view": lambda: batch[0],
        "a slice of a view": lambda: batch[1][3:7],
        "an array": lambda: batch.array("u1", 10),
        "a slice of an array": lambda: batch.array("<u4", 10)[1:, ::2],
        "the buffer": lambda: batch.buffer,
        "an array of a view": lambda: np.frombuffer(batch[0], np.uint8),
    }


@pytest.mark.parametrize("what", servers(None))
def test_a_view_that_is_alive_when_the_next_batch_is_asked_for_raises_buffererror(
    fixed: Path, what: str
) -> None:
    with Reader(fixed, 8, slots=2, mode=Mode(block_iterations=1)) as rdr:
        batch = next(rdr)
        held = servers(batch)[what]()
        before = bytes(held)
        for _ in range(3):
            with pytest.raises(BufferError, match="copy\\(\\) it, or raise slots="):
                next(rdr)
        time.sleep(0.05)
        assert bytes(held) == before and bytes(batch[7]) == bytes([7]) * 3001
        del held
        assert next(rdr).indices.tolist() == list(range(8, 16))
        with pytest.raises(BufferError, match="no longer valid"):
            batch[0]


@pytest.mark.parametrize("slots", [3, 4, 6])
def test_each_further_slot_lets_the_views_of_one_batch_more_live_on(
    fixed: Path, slots: int
) -> None:
    with Reader(fixed, 4, slots=slots, mode=Mode(block_iterations=1)) as rdr:
        held = []
        for t in range(slots - 1):
            held.append((t, next(rdr).array("u1", 3001)))
        with pytest.raises(BufferError, match="iteration 0 "):
            next(rdr)
        for t in range(slots - 1, 60):
            held.pop(0)
            held.append((t, next(rdr).array("u1", 3001)))
            for then, array in held:
                assert (array[:, 0] == (np.arange(4) + then * 4) % 500 % 251).all()
        del array, held


def test_the_natural_loop_works(fixed: Path) -> None:
    with Reader(fixed, 16, iterations=100, mode=Mode(block_iterations=2)) as rdr:
        copied = 0
        for t, batch in enumerate(rdr):
            array = batch.array("u1", 3001)
            copied += not batch.contiguous
            assert (array == ((np.arange(16) + t * 16) % 500 % 251)[:, None]).all()
        # Not at one stride: at the end of the circle, and where a page of the tree lies between.
        assert copied < 30


def test_list_gives_batches_that_say_they_are_no_longer_valid(fixed: Path) -> None:
    with Reader(fixed, 8, iterations=30) as rdr:
        batches = list(rdr)
    assert [b.indices[0] for b in batches] == [t * 8 % 500 for t in range(30)]
    for batch in batches:
        with pytest.raises(BufferError, match="no longer valid"):
            batch[0]


def test_copies_stay_good(fixed: Path) -> None:
    with Reader(fixed, 8, iterations=30) as rdr:
        copies = [batch.copy() for batch in rdr]
    for t, copy in enumerate(copies):
        assert (copy.array("u1", 3001)[:, 5] == (np.arange(8) + t * 8) % 500 % 251).all()


def test_views_stay_good_after_close_and_after_the_reader_is_gone(fixed: Path) -> None:
    for close in (True, False):
        rdr = Reader(fixed, 8, mode=Mode(block_iterations=1))
        batch = next(rdr)
        array = batch.array("u1", 3001)
        if close:
            rdr.close()
            with pytest.raises(BufferError):
                batch[0]
        del rdr, batch
        gc.collect()
        time.sleep(0.15)
        assert (array == np.arange(8)[:, None]).all()


def test_the_last_batch_may_be_in_use_when_the_iterations_end(fixed: Path) -> None:
    with Reader(fixed, 8, iterations=1) as rdr:
        for batch in rdr:
            array = batch.array("u1", 3001)
    assert (array == np.arange(8)[:, None]).all()


# --- the end -----------------------------------------------------------------------------


def test_close_may_be_repeated_and_ends_the_reader(fixed: Path) -> None:
    rdr = Reader(fixed, 8)
    next(rdr)
    rdr.close()
    rdr.close()
    with pytest.raises(Error, match="closed"):
        next(rdr)
    with pytest.raises(Error, match="closed"), rdr:
        pass
    assert "closed" in repr(rdr) and rdr.stats().iterations == 1


def test_after_the_last_iteration_it_stays_ended(fixed: Path) -> None:
    with Reader(fixed, 8, iterations=2) as rdr:
        assert len(list(rdr)) == 2
        assert list(rdr) == [] and next(rdr, None) is None


def test_leaving_a_loop_early_and_forgetting_the_reader_ends_its_thread(fixed: Path) -> None:
    for _batch in Reader(fixed, 8):
        break


def test_an_exception_in_the_loop_passes_through(fixed: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with Reader(fixed, 8) as rdr:
            for _batch in rdr:
                _ = 1 / 0
    with pytest.raises(Error, match="closed"):
        next(rdr)


def test_a_program_that_ends_without_closing_ends(fixed: Path) -> None:
    for ending, code in (("", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1)):
        begun = time.monotonic()
        run_python(
            f"""
            from lmdbio.reader.reader import Reader
            rdr = Reader({str(fixed)!r}, 8)
            batch = next(rdr)
            view = batch[0]
            {ending}
            """,
            expect=code,
        )
        assert time.monotonic() - begun < 10


def test_a_forked_child_is_refused_and_does_no_harm(fixed: Path) -> None:
    with Reader(fixed, 8) as rdr:
        next(rdr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
            pid = os.fork()
        if pid == 0:
            try:
                next(rdr)
            except Error as error:
                rdr.close()
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert drain_some(rdr, 20) == [(8 + i) % 500 for i in range(160)]


def drain_some(rdr: Reader, iterations: int) -> list[int]:
    return [i for _ in range(iterations) for i in next(rdr).indices.tolist()]


# --- failures ----------------------------------------------------------------------------


class Source:
    """Records of 100 bytes in a row; fails at a record on request."""

    locate = "scan"
    meta = SimpleNamespace(txnid=1)
    used_bytes = 0

    def __init__(self, path: str, count: int, bad: int | None = None) -> None:
        self.path, self.count, self.bad = path, count, bad
        self.armed = False

    def extents(self, indices: np.ndarray) -> np.ndarray:
        if self.armed and self.bad is not None and self.bad in indices:
            raise OSError(errno.EIO, "the disk is on fire", self.path)
        out = np.empty(len(indices), _core.EXTENT)
        out["offset"], out["length"] = indices * np.uint64(100), 100
        self.armed = self.armed or len(indices) < self.count
        return out

    def run(self, start: int, stop: int) -> np.ndarray:
        return self.extents(np.arange(start, stop, dtype=np.uint64))

    @property
    def pages(self) -> Source:
        return self

    def guard(self) -> None:
        pass

    def close(self) -> None:
        pass


def use(monkeypatch: pytest.MonkeyPatch, source: Source) -> None:
    identity = FileIdentity.of(Path(source.path).stat())
    seen = roots.DataSetFacts(source.path, identity, 1, 1, source.count)
    monkeypatch.setattr(roots, "open_record_index", lambda *_args, **_more: source)
    monkeypatch.setattr(roots, "_database_facts", lambda *_args: seen)

    def choose_unseen(_engine: object, access: Access, keyword: Overrides) -> Choice:
        return choose(access, Storage(), keyword=keyword)

    def open_flat(_engine: object, choice: Choice) -> _core.Engine:
        return _core.Engine(source.path, choice.engine, choice.depth)

    monkeypatch.setattr(roots, "choose_reading", choose_unseen)
    monkeypatch.setattr(roots, "open_engine", open_flat)


def test_an_error_of_the_roots_thread_is_raised_by_next_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flat"
    path.write_bytes(bytes(100) * 1000)
    use(monkeypatch, Source(str(path), 1000, bad=500))
    with Reader(path, 10, mode=Mode(block_iterations=1)) as rdr:
        with pytest.raises(OSError, match="the disk is on fire"):
            drain_some(rdr, 100)
        with pytest.raises(OSError, match="the disk is on fire"):
            next(rdr)


def test_a_file_cut_while_it_is_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flat"
    path.write_bytes(bytes(100) * 1000)
    use(monkeypatch, Source(str(path), 1000))
    with Reader(path, 10, mode=Mode(block_iterations=1)) as rdr:
        next(rdr)
        os.truncate(path, 5000)
        with pytest.raises(Error, match=r"flat.*wanted"):
            drain_some(rdr, 200)


def test_a_file_that_moves_on_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [bytes([i]) * 3000 for i in range(200)])
    with Reader(path, 10, mode=Mode(block_iterations=1)) as rdr:
        next(rdr)
        with lmdb.open(str(path), map_size=1 << 28) as env:
            for _ in range(3):
                with env.begin(write=True) as txn:
                    txn.put(b"more", b"x" * 3000)
        with pytest.raises(Error, match="changed while it was read"):
            drain_some(rdr, 10)


def test_roots_that_see_a_file_before_and_after_a_commit_say_so(tmp_path: Path) -> None:
    """Also where it has other records then: it is one file, and no two data sets."""
    path = write(tmp_path / "db", [b"value"] * 20)
    identity = FileIdentity.of((path / "data.mdb").stat())
    first = roots.DataSetFacts(str(path), identity, 1, 1, 20)
    later = replace(first, meta=2, txnid=2, count=21)
    with pytest.raises(Error, match="was written to while the Reader was made"):
        roots._compare(first, 1, later)
    copied = replace(later, identity=replace(identity, ino=identity.ino + 1))
    with pytest.raises(ValueError, match="number of records differs between roots"):
        roots._compare(first, 1, copied)


def test_auto_reads_by_the_sidecar_where_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "db", [value(i) for i in range(COUNT)])
    with Reader(path, 16, iterations=20) as rdr:
        assert rdr.mode.locate == "scan"
        by_scan = [bytes(view) for batch in rdr for view in batch.copy()]
    convert(path)
    with Reader(path, 16, iterations=20) as rdr:
        assert rdr.mode.locate == "provenance"
        by_sidecar = [bytes(view) for batch in rdr for view in batch.copy()]
    assert by_scan == by_sidecar == [value(i % COUNT) for i in range(320)]
    for name in ("prov", "coal"):
        with Reader(path, 16, iterations=20, mode=name) as rdr:
            assert drain(rdr) == [i % COUNT for i in range(320)]


def test_a_mode_by_provenance_without_a_sidecar_is_refused(fixed: Path) -> None:
    with pytest.raises(Error, match="no provenance file"):
        Reader(fixed, 8, mode="prov")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": 1.5}, TypeError, "batch_size"),
        ({"slots": 1}, ValueError, "slots"),
        ({"iterations": -1}, ValueError, "iterations"),
        ({"start": "0"}, TypeError, "start"),
        ({"assignment": "random"}, ValueError, "assignment"),
        ({"mode": "fastest"}, ValueError, "no mode"),
        ({"mode": "stag"}, ProvenanceError, "lmdbio convert makes one"),
        ({"mode": "lmm", "order": "insertion"}, IncompatibleError, "order='insertion'"),
        ({"memory_bytes_max": 0}, ValueError, "memory_bytes_max"),
        ({"comm": 3}, TypeError, "communicator"),
        ({"depth": 0}, ValueError, "depth"),
        ({"check": "never"}, ValueError, "check"),
        ({"ranks_per_node": 0}, ValueError, "ranks_per_node"),
        ({"shuffle": "rows:3"}, ValueError, "'rows:3' is not global, groups:SIZE"),
        ({"shuffle": 3}, TypeError, "shuffle must be a Shuffle or a name, not int"),
        (
            {"shuffle": Shuffle.given([1, 0])},
            ValueError,
            "order of 2 records cannot be",
        ),
        ({"shuffle": True, "mode": "dm"}, IncompatibleError, "shuffle= needs locate='scan'"),
        ({"shuffle": True, "mode": "lmdb"}, IncompatibleError, "shuffle= needs locate='scan'"),
        ({"shuffle": True, "start": -1}, ValueError, "at least 0, not -1"),
        ({"epochs": 1, "start": -1}, ValueError, "at least 0, not -1"),
        ({"shuffle": True, "start": 10**30}, ValueError, "start must be a place from 0 to"),
        ({"epochs": -1}, ValueError, "epochs"),
        ({"seed": 0.5}, TypeError, "seed"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(
    fixed: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    if "comm" in arguments:
        pytest.importorskip("mpi4py", reason="a communicator's type is checked with mpi4py")
    with pytest.raises(error, match=words):
        Reader(fixed, **({"batch_size": 8} | arguments))


def test_an_empty_data_set_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no records"):
        Reader(write(tmp_path / "empty", []), 8)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises((OSError, Error), match="nowhere"):
        Reader(tmp_path / "nowhere", 8)


# --- memory ------------------------------------------------------------------------------


def test_blocks_shrink_to_the_memory_budget(fixed: Path) -> None:
    with Reader(fixed, 8, iterations=40) as rdr:
        free = rdr.mode.block_iterations
        drain(rdr, [bytes([i % 251]) * 3001 for i in range(500)])
    budget = 150_000
    with Reader(fixed, 8, iterations=40, memory_bytes_max=budget) as rdr:
        assert 1 <= rdr.mode.block_iterations < free
        assert rdr.stats().window_bytes <= budget  # the control area and alignment included
        assert drain(rdr, [bytes([i % 251]) * 3001 for i in range(500)])[:9] == list(range(9))


def test_the_environment_sets_the_budget(fixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMDBIO_MEMORY_BYTES", "1K")
    with pytest.raises(ValueError, match="1024"):
        Reader(fixed, 8)


@pytest.mark.parametrize("text", ["0", "-1", "2K", "two"])
def test_a_nonsense_number_of_ranks_per_node_is_refused(
    fixed: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LMDBIO_RANKS_PER_NODE", text)
    with pytest.raises(ValueError, match="LMDBIO_RANKS_PER_NODE"):
        Reader(fixed, 8)


@pytest.mark.parametrize("mode", ["dio", "auto", Mode(block_iterations=10)], ids=str)
def test_an_iteration_that_does_not_fit_is_an_error_with_both_numbers(
    fixed: Path, mode: Mode | str
) -> None:
    with pytest.raises(ValueError, match=r"needs \d+ bytes.*40000 bytes.*memory_bytes_max"):
        Reader(fixed, 8, mode=mode, memory_bytes_max=40_000)


def test_stats_count_what_was_handed_out_and_read(fixed: Path) -> None:
    with Reader(fixed, 10, iterations=25, mode=Mode(block_iterations=5)) as rdr:
        for _batch in rdr:
            pass
    stats = rdr.stats()
    assert (stats.iterations, stats.records, stats.record_bytes) == (25, 250, 250 * 3001)
    assert stats.blocks == 5 and stats.requests >= 5
    assert stats.record_bytes <= stats.read_bytes < 2 * stats.record_bytes
    assert stats.wait_seconds >= 0 and stats.fill_seconds > 0


@pytest.mark.parametrize("mode", ["lmm", "dm"])
def test_blocks_found_while_they_are_read_fit_the_budget_or_are_refused(
    mode: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "db", [bytes([i % 251]) * (3000 + 37 * (i % 90)) for i in range(400)])
    refused = read = 0
    for budget in range(280_000, 960_000, 24_000):
        try:
            with Reader(path, 32, mode=mode, iterations=25, memory_bytes_max=budget) as rdr:
                for batch in rdr:
                    for i, index in enumerate(batch.indices.tolist()):
                        wanted = bytes([index % 251]) * (3000 + 37 * (index % 90))
                        assert bytes(batch[i]) == wanted
            read += 1
        except ValueError as error:
            assert "memory budget" in str(error)
            refused += 1
    assert refused > 3
    assert read > 3
