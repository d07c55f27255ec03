"""examples/caffe: Datum messages are read right or refused, and training tells readers apart.

Goal: what a newcomer copies is right. Method: messages made by hand, by the benchmarks' writer and
by chance, decoded one by one and as batches; the cursor's shares against lmdbio's schedule; and
the example's own command, alone and on two ranks, on a data set of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import lmdbio
from lmdbio.bench import datasets
from lmdbio.bench.datasets import varint
from lmdbio.planning.schedule import Schedule
from tests.support import ROOT, TESTS, long_run

EXAMPLE = ROOT / "examples" / "caffe"
sys.path[:0] = [str(EXAMPLE), str(TESTS / "mpi")]
import launch  # noqa: E402
import readers  # noqa: E402
from datum import decode, parse  # noqa: E402

SHAPE = (3, 2, 4)
PIXELS = bytes(range(100, 124))
#: As caffe.proto has it, field by field: 3 x 2 x 4 pixels, label 7, encoded=false.
BY_HAND = b"\x08\x03\x10\x02\x18\x04\x22\x18" + PIXELS + b"\x28\x07\x38\x00"
RECORDS = 500


def message(label: int, pixels: bytes = PIXELS, shape: tuple[int, int, int] = SHAPE) -> bytes:
    return datasets.datum(pixels, label % 2**64, encoded=False, shape=shape)


def pixels(seed: int) -> bytes:
    return random.Random(seed).randbytes(len(PIXELS))


def check(images: Any, labels: Any, wanted: list[tuple[bytes, int]]) -> None:
    assert images.shape == (len(wanted), *SHAPE) and images.dtype == np.uint8
    assert labels.dtype == np.int32
    assert [
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    ] == wanted


# --- one message -------------------------------------------------------------------------


def test_a_message_made_by_hand_is_found_in_its_parts() -> None:
    found = parse(BY_HAND)
    assert (found.shape, found.label) == (SHAPE, 7)
    assert BY_HAND[found.pixels] == PIXELS and BY_HAND[found.label_bytes] == b"\x07"
    assert message(7) == BY_HAND


@pytest.mark.parametrize(
    ("more", "label"),
    [
        (b"", 0),
        (b"\x28\xac\x02", 300),
        (b"\x28\x85\x00", 5),
        (b"\x28" + b"\xff" * 9 + b"\x01", -1),
        (b"\x28\xff\xff\xff\xff\x0f", -1),
        (b"\x28\x01\x28\x02", 2),
        (b"\x28\x03\x50\x63\x5a\x02hi\x65abcd\x69abcdefgh", 3),
    ],
    ids=["no label", "two digits", "a needless digit", "negative", "negative, 32 bits",
         "twice: the last counts", "fields of a later Datum"],
)  # fmt: skip
def test_all_that_protobuf_allows_is_read(more: bytes, label: int) -> None:
    for whole in (BY_HAND[:32] + more, more + BY_HAND[:32]):
        found = parse(whole)
        assert (found.shape, found.label, whole[found.pixels]) == (SHAPE, label, PIXELS)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "says 0 x 0 x 0 pixels"),
        (b"\0" * 40, "field 0 at byte 0"),
        (BY_HAND + varint(2**32) + b"\0", "field 536870912 at byte 36"),
        (BY_HAND[:20], "has 24 bytes, of which the message holds 12"),
        (BY_HAND[:33], "ends inside the number at byte 33"),
        (BY_HAND[:6] + b"\x22" + varint(2**63) + PIXELS, "of which the message holds 24"),
        (BY_HAND[:6] + b"\x22" + varint(2**64 - 1) + PIXELS, "of which the message holds 24"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "more than 10 bytes"),
        (b"\x0a\x01\x03" + BY_HAND[2:], "field 1 at byte 0 has wire type 2, in a Datum it has 0"),
        (b"\x20\x18" + BY_HAND, "field 4 at byte 0 has wire type 0, in a Datum it has 2"),
        (BY_HAND + b"\x2d\x01\x00\x00\x00", "field 5 at byte 36 has wire type 5"),
        (BY_HAND + b"\x4b\x4c", "field 9 at byte 36 has wire type 3"),
        (BY_HAND + b"\x4f", "field 9 at byte 36 has wire type 7"),
        (BY_HAND + b"\x4d\x01\x02", "has 4 bytes, of which the message holds 2"),
        (message(1, shape=(3, 2, 5)), "says 3 x 2 x 5 pixels and holds 24 bytes"),
        (b"\x08" + varint(2**64 - 3) + b"\x10" + varint(2**64 - 2) + BY_HAND[4:], "says -3 x -2"),
        (datasets.datum(PIXELS, 1, encoded=True), "convert without --encoded"),
        (BY_HAND + b"\x35\x00\x00\x80\x3f", "float_data"),
        (BY_HAND + b"\x32\x04\x00\x00\x80\x3f", "float_data"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_datum_of_pixels_is_refused_with_the_reason(bad: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(bad)
    with pytest.raises(ValueError, match=f"record 1 of the batch: .*{why}"):
        decode([BY_HAND, bad])


def test_a_message_that_was_cut_never_gives_other_pixels() -> None:
    for size in range(len(BY_HAND)):
        cut = BY_HAND[:size]
        if size in (32, 34):  # between fields, after the pixels: as good as whole
            assert cut[parse(cut).pixels] == PIXELS
        else:
            with pytest.raises(ValueError):
                parse(cut)


@settings(max_examples=long_run.cases(300), deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(BY_HAND)), st.integers(0, len(BY_HAND)))
def test_bytes_by_chance_are_refused_or_read_within_their_bounds(
    noise: bytes, start: int, stop: int
) -> None:
    damaged = BY_HAND[:start] + noise + BY_HAND[stop:]
    try:
        found = parse(damaged)
    except ValueError:
        return
    assert 0 <= found.pixels.start <= found.pixels.stop <= len(damaged)
    assert found.pixels.stop - found.pixels.start == np.prod(found.shape)


# --- batches -----------------------------------------------------------------------------


@settings(max_examples=long_run.cases(100), deadline=None)
@given(st.lists(st.sampled_from([0, 7, 127, 128, 300, 999, 2**31 - 1, -1]), min_size=1))
def test_a_batch_is_what_its_messages_are(labels: list[int]) -> None:
    wanted = [(pixels(i), label) for i, label in enumerate(labels)]
    check(*decode([message(label, data) for data, label in wanted]), wanted)


def test_messages_of_one_length_and_two_layouts_are_told_apart() -> None:
    # The label before the pixels; and pixels that begin a byte later, since 24 has two digits.
    turned = BY_HAND[:6] + b"\x28\x09" + BY_HAND[6:32] + BY_HAND[34:]
    later = BY_HAND[:6] + b"\x22\x98\x00" + PIXELS + b"\x28\x05\x38"
    assert len(turned) == len(BY_HAND)
    check(*decode([BY_HAND, turned]), [(PIXELS, 7), (PIXELS, 9)])
    check(*decode([turned, BY_HAND]), [(PIXELS, 9), (PIXELS, 7)])
    with pytest.raises(ValueError, match=r"record 1 of the batch: .*ends inside"):
        decode([BY_HAND, later])
    # In the second the label ends a byte earlier.
    ending = BY_HAND[:32] + b"\x28\xac\x02", BY_HAND[:32] + b"\x28\x2c\x02"
    with pytest.raises(ValueError, match="record 1 of the batch: there is a field 0"):
        decode(ending)


def test_shapes_that_differ_and_no_records_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match=r"record 1 of the batch is \(2, 3, 4\)"):
        decode([BY_HAND, message(7, shape=(2, 3, 4))])
    with pytest.raises(ValueError, match="no shape"):
        decode([])


def test_batches_of_lmdbio_are_decoded_in_place_where_they_lie_at_one_stride(
    tmp_path: Path,
) -> None:
    labels = [i % 10 if i < 20 else 40 * i for i in range(30)]
    with lmdb.open(str(tmp_path / "set"), map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            for i, label in enumerate(labels):
                txn.put(b"%08d" % i, message(label, pixels(i)))
    wanted = [(pixels(i), label) for i, label in enumerate(labels)]
    with lmdbio.Records(tmp_path / "set") as records:
        alike, mixed = records.read(range(20)), records.read(range(30))
        check(*decode(alike), wanted[:20])
        check(*decode(mixed), wanted)
        assert alike.contiguous and np.shares_memory(decode(alike)[0], alike.buffer)


# --- Caffe's pattern ---------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "ranks"), [(1, 1), (4, 2), (5, 3), (2, 3), (23, 2)])
def test_the_cursors_shares_are_those_of_lmdbio(
    batch_size: int, ranks: int, tmp_path: Path
) -> None:
    with lmdb.open(str(tmp_path / "set"), map_size=1 << 20) as env:
        with env.begin(write=True) as txn:
            for i in range(10):
                txn.put(b"%08d" % i, b"%d" % i)
    teams = tuple((rank,) for rank in range(ranks))
    schedule = Schedule(count=10, batch_size=batch_size, teams=teams, iterations=7)
    for rank in range(ranks):
        comm = SimpleNamespace(rank=rank, size=ranks)
        with readers.by_cursor(
            str(tmp_path / "set"), batch_size, comm=comm, iterations=7
        ) as batches:
            got = [[int(value) for value in batch] for batch in batches]
        assert got == [schedule.records(t, rank).tolist() for t in range(7)]


# --- training ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("example") / "set"
    made = [EXAMPLE / "make_data.py", path, "--records", RECORDS]
    command(*made, expect=0)
    assert (path / "data.mdb.prov").exists()
    return path


def command(*words: object, expect: int) -> str:
    """Runs a program of the example alone; what it printed."""
    roots = sorted({str(Path(folder).parent) for folder in lmdbio.__path__})
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environ, timeout=launch.TIMEOUT_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout
    return done.stdout


def learned(out: str, file: Path) -> dict[str, Any]:
    """The runs of a JSON, by reader, after what holds for all of them."""
    told = json.loads(file.read_text(encoding="utf-8"))
    runs = {run["reader"]: run for run in told["runs"]}
    assert set(runs) == {"py-lmdb", *readers.MODES} and not told["refused"]
    assert len({run["fingerprint"] for run in runs.values()}) == 1, out
    assert f"{', '.join(runs)}: the same losses and weights, bit for bit" in out
    for run in runs.values():
        assert np.mean(run["losses"][:3]) > 2 > 0.8 > np.mean(run["losses"][-3:])
        assert np.mean(run["accuracies"][-3:]) > 0.8  # chance is 0.1
        assert 0 < run["io_share"] < 1
        assert sum(run["seconds"].values()) > 0
    return runs


@pytest.fixture(scope="module")
def mpi() -> launch.Mpi:
    """Any MPI: the readers' own tests run under each."""
    for name in launch.NAMES:
        try:
            return launch.find(name)
        except launch.NotThereError as error:
            reason = str(error)
    pytest.skip(reason)


SHORT = ("--iterations", 50, "--batch-size", 64)


@pytest.fixture(scope="module")
def alone(images: Path) -> dict[str, Any]:
    file = images.with_name("alone.json")
    out = command(EXAMPLE / "train.py", images, *SHORT, "--json", file, expect=0)
    return learned(out, file)


@pytest.mark.more
def test_training_learns_and_is_the_same_with_every_reader(alone: dict[str, Any]) -> None:
    assert alone["py-lmdb"]["order"] == "strided"


@pytest.mark.more
@pytest.mark.mpi
def test_two_ranks_learn_what_one_does(
    alone: dict[str, Any], mpi: launch.Mpi, images: Path, tmp_path: Path
) -> None:
    file = tmp_path / "two.json"
    out = mpi.run(2, str(EXAMPLE / "train.py"), images, *SHORT, "--json", file)
    two = learned(out, file)
    # Two sums of halves are rounded otherwise than one sum.
    np.testing.assert_allclose(two["dio"]["losses"], alone["dio"]["losses"], rtol=0.02, atol=0.002)


@pytest.mark.mpi
def test_two_ranks_train_by_epochs_in_each_order(
    mpi: launch.Mpi, images: Path, tmp_path: Path
) -> None:
    file, page = tmp_path / "orders.json", tmp_path / "orders.html"
    orders = ("file", "groups:50", "windows:10x8", "global")
    out = mpi.run(
        2, str(EXAMPLE / "orders.py"), images, "--epochs", 3, "--batch-size", 64,
        "--orders", *orders, "--json", file, "--html", page,
    )  # fmt: skip
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    assert [run["order"] for run in runs] == list(orders)
    for run in runs:
        assert len(run["seconds"]) == len(run["waited"]) == len(run["accuracies"]) == 3
        assert all(0 < a < b for a, b in zip(run["waited"], run["seconds"], strict=True))
        assert run["accuracies"][-1] > 0.6, out  # chance is 0.1
        assert run["order"] in out
    drawn = page.read_text(encoding="utf-8")
    assert drawn.count("<svg") == 2 and all(order in drawn for order in orders)


@pytest.mark.more
@pytest.mark.mpi
def test_what_a_batch_is_made_of_shows_in_the_fingerprint(
    mpi: launch.Mpi, images: Path, tmp_path: Path
) -> None:
    told = {}
    for assignment in ("strided", "blocked"):
        file = tmp_path / f"{assignment}.json"
        out = mpi.run(
            2, str(EXAMPLE / "train.py"), images, *SHORT, "--assignment", assignment,
            "--readers", "py-lmdb", "coal", "--json", file, env={"LMDBIO_RANKS_PER_NODE": "1"},
        )  # fmt: skip
        told[assignment] = json.loads(file.read_text(encoding="utf-8"))
    assert "Caffe's order is strided" in out
    strided, blocked = told["strided"]["runs"], told["blocked"]["runs"]
    assert [run["reader"] for run in blocked] == ["coal"]
    assert strided[0]["fingerprint"] == strided[1]["fingerprint"] != blocked[0]["fingerprint"]


@pytest.mark.mpi
@pytest.mark.parametrize("reader", ["py-lmdb", "dio"])
def test_a_damaged_record_ends_all_ranks_with_its_reason(
    reader: str, mpi: launch.Mpi, tmp_path: Path
) -> None:
    with lmdb.open(str(tmp_path / "set"), map_size=1 << 20) as env:
        with env.begin(write=True) as txn:
            for i in range(40):
                txn.put(b"%08d" % i, message(i % 10)[: 20 if i == 30 else None])
    out = mpi.run(
        2, str(EXAMPLE / "train.py"), tmp_path / "set", "--readers", reader, "--batch-size", 8,
        expect=None,
    )  # fmt: skip
    # Batch 3 is records 24 to 31, of which rank 1 has the last four; rank 0 waits for their sum.
    assert "rank 1" in out and "record 2 of the batch: field 4 at byte 6 has 24 bytes" in out


@pytest.mark.more
def test_what_cannot_be_trained_on_is_said_in_a_line(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMDBIO_PROVENANCE_DIR", str(tmp_path))
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "data.mdb").hardlink_to(images / "data.mdb")
    out = command(
        EXAMPLE / "train.py", tmp_path / "bare", "--iterations", 2,
        "--readers", "prov", "py-lmdb", expect=0,
    )  # fmt: skip
    assert re.search("prov +cannot: .*no provenance file", out) and "py-lmdb" in out
    out = command(EXAMPLE / "train.py", images, "--classes", 5, "--iterations", 2, expect=1)
    assert "labels reach from" in out and "Traceback" not in out
    out = command(EXAMPLE / "train.py", tmp_path / "none", expect=1)
    assert "none" in out and "Traceback" not in out
