"""Records against py-lmdb, over every shape of database, format, engine and way of locating.

Goal: the same values in the same order as py-lmdb's cursor gives, however they are asked for.
Method: databases.CASES in both formats; py-lmdb's answers are taken once per database.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import platform
import random
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import lmdb
import numpy as np
import pytest

import lmdbio
from lmdbio import provenance
from lmdbio.convert.convert import convert
from lmdbio.errors import Error, ShortReadError
from lmdbio.records.options import RecordsOptions
from tests.support import ROOT, databases

PLAIN = databases.CASES


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    made: dict[tuple[str, int], Path] = {}

    def build(case, version):
        key = (case.name, version)
        if key not in made:
            made[key] = databases.build(case, tmp_path_factory.mktemp(case.name), version)
        return made[key]

    return build


def named(path: Path) -> list[bytes | None]:
    """The databases of a file that have one value a key."""
    env = lmdb.open(str(path), readonly=True, lock=False, max_dbs=64)
    with env.begin() as txn:
        with txn.cursor() as cursor:
            keys = list(cursor.iternext(values=False))
        names, keep = [], []
        for key in (key.removesuffix(b"\0") for key in keys):  # which LMDB 1.0 adds
            with contextlib.suppress(lmdb.Error):
                env.open_db(key, txn=txn, create=False)
                names.append(key)
        if not names or len(names) < len(keys):
            names.insert(0, None)
        for name in names:
            db = env.open_db(name, txn=txn, create=False) if name is not None else None
            flags = db.flags(txn) if db is not None else env.open_db(None, txn=txn).flags(txn)
            if not flags["dupsort"]:
                keep.append(name)
    env.close()
    return keep


@pytest.mark.parametrize("version", databases.FORMATS)
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
@pytest.mark.usefixtures("either_way")
def test_records_are_py_lmdbs_values_in_key_order(built, case, version):
    path = built(case, version)
    for name in named(path):
        expected = [value for _, value in databases.content(path, name)]
        convert(path, databases=[name])
        for locate in ("scan", "provenance"):
            with lmdbio.Records(path, db=name, locate=locate) as records:
                assert records.located_by == locate
                assert len(records) == len(expected)
                assert list(records) == expected
                assert records[:] == expected
                order = list(range(len(expected))) * 2
                random.Random(7).shuffle(order)
                batch = records.read(order)
                assert [bytes(view) for view in batch] == [expected[i] for i in order]


@pytest.mark.parametrize("engine", ["auto", "pread", "direct", "uring", "mmap"])
def test_every_engine_gives_the_same(built, engine):
    case = next(case for case in PLAIN if case.name == "mixed")
    path = built(case, 1)
    expected = [value for _, value in databases.content(path)]
    try:
        records = lmdbio.Records(path, engine=engine)
    except lmdb.IncompatibleError as e:
        pytest.skip(f"no O_DIRECT below {path}: {e}")
    with records:
        assert records[::-1] == expected[::-1]
        assert [records[i] for i in range(0, len(expected), 7)] == expected[::7]


@pytest.fixture
def sample(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, databases.value(i, 3000)) for i in range(500)))
    env.close()
    return tmp_path / "env"


def test_records_is_a_sequence(sample):
    with lmdbio.Records(sample) as records:
        assert records[-1] == records[499] == databases.value(499, 3000)
        assert records[10:13] == [databases.value(i, 3000) for i in (10, 11, 12)]
        assert databases.value(3, 3000) in records
        for wrong in (500, -501):
            with pytest.raises(IndexError, match="500"):
                records[wrong]
        with pytest.raises(IndexError):
            records.read([0, 500])
        with pytest.raises(IndexError):
            records.read(np.array([-501]))
        with pytest.raises(TypeError, match="integers"):
            records.read([0.5])
        assert len(records.read([])) == 0
        assert bytes(records.read([-1])[0]) == records[-1]


@pytest.mark.usefixtures("either_way")
def test_a_batch_outlives_its_records_and_its_siblings(sample):
    with lmdbio.Records(sample) as records:
        first, second = records.read([3, 1]), records.read([2])
        array = first.array(np.uint8, (3000,))
    assert array[1].tobytes() == bytes(first[1]) == databases.value(1, 3000)
    assert bytes(second[0]) == databases.value(2, 3000)


def test_records_can_be_pickled(sample):
    with lmdbio.Records(sample, gap_bytes_max=0) as records:
        with pickle.loads(pickle.dumps(records)) as other:
            assert other[:] == records[:]


@pytest.mark.parametrize("engine", ["auto", "pread", "direct"])
@pytest.mark.parametrize("length", [1, 7, 100, 499])
def test_slices_that_follow_one_another_are_the_records(sample, length, engine):
    with lmdbio.Records(sample, engine=engine) as records:
        expected = list(records)
        for _ in range(2):
            for at in range(0, len(expected), length):
                assert records[at : at + length] == expected[at : at + length]
        begun = random.Random(length)
        at = 0
        for _ in range(200):  # some go on, some jump
            at = begun.randrange(len(expected)) if begun.random() < 0.3 else at % len(expected)
            stop = at + begun.randrange(2 * length)
            assert records[at:stop] == expected[at:stop]
            at = stop


def test_a_slice_finds_what_the_one_before_it_had_read(sample):
    """The third slice of a stream that is in memory whole asks the file for nothing."""
    with lmdbio.Records(sample, engine="pread") as records:
        expected = list(records)
        records[0:10], records[10:20]
        before = records.stats()
        assert records[20:30] == expected[20:30]
        assert (records.stats() - before).planned_bytes == 0
        assert records[5:30] == expected[5:30]
        assert (records.stats() - before).planned_bytes > 0, "it began elsewhere"


def test_slices_that_go_on_end_with_their_records(sample):
    records = lmdbio.Records(sample)
    records[0:10], records[10:20]
    child = os.fork()
    if child == 0:
        os._exit(0 if records[20:40] == [databases.value(i, 3000) for i in range(20, 40)] else 1)
    assert os.waitpid(child, 0)[1] == 0
    records.close()
    with pytest.raises(Error, match="closed"):
        records[20:30]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("engine", ["pread", "direct", "auto"])
def test_of_a_file_that_was_cut_what_is_left_is_read(sample, tmp_path, engine):
    """Nothing of the page that it now ends in, of which the rest is zeros, passes for a record."""
    path = tmp_path / "data.mdb"
    path.write_bytes((sample / "data.mdb").read_bytes())
    wanted = [databases.value(i, 3000) for i in range(500)]
    with lmdbio.Records(path, subdir=False, locate="scan", engine=engine) as records:
        last = len(records) - 1
        assert records[last] == wanted[last]
        os.truncate(path, path.read_bytes().rindex(wanted[last][-1000:]))
        assert records[3] == bytes(records.read([3])[0]) == wanted[3]
        assert records[3:5] == wanted[3:5]
        for read in (
            lambda: records.read([3, last]),
            lambda: records[last],
            lambda: records[last - 2 :],
            lambda: list(records),
        ):
            with pytest.raises(ShortReadError, match=r"data\.mdb.*: wanted \d+ bytes at offset"):
                read()


@pytest.mark.parametrize("index", [1.5, "a", None, b"1"])
def test_what_is_no_index_is_refused_as_by_every_sequence(sample, index):
    with lmdbio.Records(sample) as records, pytest.raises(TypeError, match=type(index).__name__):
        records[index]


def test_threads_may_share_slices_that_go_on(sample):
    problems = []
    with lmdbio.Records(sample) as records:
        expected = list(records)

        def work(step: int) -> None:
            for _ in range(5):
                for at in range(0, len(expected), step):
                    if records[at : at + step] != expected[at : at + step]:
                        problems.append((step, at))

        threads = [threading.Thread(target=work, args=(step,)) for step in (20, 20, 50, 70)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


def test_a_forked_child_reads_the_same_while_its_parent_does(sample):
    with lmdbio.Records(sample) as records:
        expected = records[:]
        child = os.fork()
        if child == 0:
            os._exit(0 if records[:] == expected and records[7] == expected[7] else 1)
        assert records[:] == expected
        assert os.waitpid(child, 0)[1] == 0


def test_threads_may_share_records(sample):
    problems = []
    with lmdbio.Records(sample) as records:

        def work(seed: int) -> None:
            for index in np.random.default_rng(seed).integers(0, 500, 100).tolist():
                if records[index] != databases.value(index, 3000):
                    problems.append(index)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


def test_an_abandoned_iteration_leaves_nothing_under_way(sample):
    with lmdbio.Records(sample) as records:
        for value in records:
            assert value == databases.value(0, 3000)
            break
        assert records[1] == databases.value(1, 3000)


def test_a_stale_sidecar_is_told_and_not_used(sample):
    convert(sample)
    env = lmdb.open(str(sample), map_size=1 << 28)
    with env.begin(write=True) as txn:
        txn.put(b"00000000", b"new")
    env.close()
    with pytest.warns(UserWarning, match="does not describe this state"):
        records = lmdbio.Records(sample)
    with records:
        assert records.located_by == "scan"
        assert records[0] == b"new"
    with pytest.raises(lmdbio.StaleError, match=r"data\.mdb"):
        lmdbio.Records(sample, locate="provenance")


def test_demanding_a_sidecar_that_is_not_there_names_the_command_that_makes_one(sample):
    with pytest.raises(lmdbio.ProvenanceError, match="lmdbio convert"):
        lmdbio.Records(sample, locate="provenance")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lmdbio.Records(sample).close()


@pytest.mark.usefixtures("either_way")
def test_a_file_that_a_writer_moved_on_is_refused(sample):
    with lmdbio.Records(sample) as records:
        env = lmdb.open(str(sample), map_size=1 << 28)
        for commits in range(1, 4):
            with env.begin(write=True) as txn:
                txn.put(b"00000000", b"%d" % commits)
            if commits == 1:
                assert records[0] == databases.value(0, 3000), "one commit harms no page of ours"
        env.close()
        for read in (lambda: records[0], lambda: records.read([1]), lambda: list(records)):
            with pytest.raises(lmdb.Error, match="changed while it was read"):
                read()


@pytest.mark.parametrize("knob", ["locate", "check"])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(built, knob):
    path = built(PLAIN[0], 1)
    with pytest.raises(ValueError, match=rf"{knob} must be one of \w+, .*not 'nope'"):
        lmdbio.Records(path, **{knob: "nope"})


def test_closed_records_give_no_keys(sample):
    records = lmdbio.Records(sample)
    key = records.key(3)
    assert records.index_of(key) == 3
    records.close()
    for ask in (lambda: records.key(3), lambda: records.index_of(key)):
        with pytest.raises(lmdb.Error, match="closed"):
            ask()


def test_closed_records_say_so_also_under_their_own_iterator(sample):
    records = lmdbio.Records(sample)
    iteration = iter(records)
    next(iteration)
    records.close()
    with pytest.raises(lmdbio.Error, match="closed"):
        list(iteration)
    for ask in (lambda: records[0], lambda: records[:2], lambda: records.read([0])):
        with pytest.raises(lmdbio.Error, match="closed"):
            ask()


MIXED = next(case for case in databases.CASES if case.name == "mixed")


@pytest.mark.parametrize("ahead", [1, 3, 100])
@pytest.mark.parametrize("readahead", [None, False])
@pytest.mark.usefixtures("either_way")
def test_batches_read_ahead_are_the_batches_read_alone(built, ahead, readahead):
    path = built(MIXED, 1)
    with lmdbio.Records(path, readahead=readahead) as records:
        chance = np.random.default_rng(5)
        wanted = [chance.integers(-len(records), len(records), size=n) for n in (7, 0, 1, 300)]
        alone = [records.read(indices) for indices in wanted]
        kept = list(records.batches(iter(wanted), ahead=ahead))  # a batch stays valid
        assert len(kept) == len(alone)
        for one, other in zip(kept, alone, strict=True):
            assert one.indices.tolist() == other.indices.tolist()
            assert [bytes(view) for view in one] == [bytes(view) for view in other]


def test_batches_are_asked_for_as_they_are_needed(built):
    path = built(MIXED, 1)
    asked = []

    def wanted():
        for index in range(100):
            asked.append(index)
            yield [index % 2]

    with lmdbio.Records(path) as records:
        for at, _ in enumerate(records.batches(wanted(), ahead=2)):
            assert len(asked) == at + 3
            if at == 3:
                break


def test_batches_with_a_bad_index_or_no_lookahead_are_refused(built):
    path = built(MIXED, 1)
    with lmdbio.Records(path) as records:
        with pytest.raises(ValueError, match="ahead"):
            next(records.batches([[0]], ahead=0))
        with pytest.raises(IndexError):
            list(records.batches([[0], [len(records)]]))
        assert list(records.batches([])) == []


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="how glibc keeps memory")
def test_lists_of_large_values_that_come_and_go_do_not_fault_page_by_page(tmp_path):
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%08d" % i, databases.value(i % 7, 100_000)) for i in range(640)))
    env.close()
    code = f"""
import resource, lmdbio
with lmdbio.Records({str(tmp_path / "env")!r}) as records:
    for turn in range(2):
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for at in range(0, 640, 64):
            part = records[at : at + 64]
            del part
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    pages = 640 * 100_000 // 4096
    assert int(done.stdout) < pages // 2, f"{done.stdout} faults for {pages} pages"


def test_a_damaged_block_of_the_sidecar_harms_its_own_records_alone(tmp_path):
    """Where that alone was to be asked; also once so many were that a table of all would pay."""
    path = tmp_path / "env"
    env = databases.open_writable(path, 1)
    count = 2 * 262_144
    databases.write(env, ((b"%08d" % i, b"%d" % i) for i in range(count)))
    env.close()
    convert(path)
    with provenance.Provenance.open(path / "data.mdb.prov") as sidecar:
        section = sidecar.section()
        assert section.blocks > 1
        damaged, first = int(section._offsets[1]), int(section._firsts[1])
    with (path / "data.mdb.prov").open("r+b") as file:
        file.seek(damaged + 5)
        file.write(b"\xff\xff\xff")
    with lmdbio.Records(path, locate="provenance", readahead=False) as records:
        healthy = [[0, 1], [2, 3], [first - 1]]
        handed_out = []
        with pytest.raises(lmdbio.ProvenanceError, match="checksum"):
            for batch in records.batches([*healthy, [first], [5]], ahead=2):
                handed_out.append(batch.indices.tolist())
        assert handed_out == healthy
        for _ in range(count // 16 // 1000 + 2):
            assert bytes(records.read(np.arange(1000))[999]) == b"999"
        assert records[7] == b"7"
        with pytest.raises(lmdbio.ProvenanceError, match="checksum"):
            records.read([first])


@pytest.mark.parametrize("kind", ["records", "joined"])
@pytest.mark.parametrize("wrong", [1_000_000, -1_000_000])
def test_an_index_that_is_out_of_range_is_named_with_its_file(built, kind, wrong):
    path = built(next(case for case in PLAIN if case.name == "mixed"), 1)
    one = lmdbio.Records(path)
    some = one if kind == "records" else lmdbio.Records([path, path])
    more = " and 1 more" if kind == "joined" else ""
    told = f"^{re.escape(one.path)}{more}: record {wrong} of {len(some)}$"
    for ask in (some.__getitem__, some.key, lambda index: some.read([0, index])):
        with pytest.raises(IndexError, match=told):
            ask(wrong)


def test_type_checkers_know_the_keywords_that_others_hand_on() -> None:
    parameters = inspect.signature(lmdbio.Records).parameters
    named = {name: one.annotation for name, one in parameters.items() if name != "path"}
    assert RecordsOptions.__annotations__.keys() == named.keys()
    for name, kind in RecordsOptions.__annotations__.items():
        assert kind.__forward_arg__ == named[name]
