"""Whole batches: a decoder's batch is what the samples of its records would be, put together.

Goal: arrays come out as NumPy has them, for any dtype, shape, offset and way of reading; orders,
states, caches, keys and records left out are those of single samples. Method: values are made by
NumPy; what a decoder makes is compared with what NumPy reads. Datum and .npy: test_formats.
"""

from __future__ import annotations

import math
import pickle
import random
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmdbio
from lmdbio.errors import MissingExtraError
from lmdbio.records.routes import Field
from lmdbio.torch import (
    Array,
    Datum,
    Jpeg,
    Loader,
    Npy,
    ReaderLoader,
    RecordErrors,
    images,
    sample_info,
)
from lmdbio.torch.whole import as_decoder
from tests.support import cold, databases

COUNT = 157
DTYPES = ("u1", "i1", "?", "<i2", ">i2", "<i4", ">i8", "<f2", "<f4", ">f4", "<f8", "<c8")


def written(path: Path, values: list[bytes]) -> Path:
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, value) for i, value in enumerate(values)])
    return path


def wrote(error: BaseException) -> str:
    """The text of an exception, and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def number(i: int) -> bytes:
    """A record that begins with its number, of which some are longer than others."""
    return i.to_bytes(4, "little") * (10 + i % 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "db"
    return written(path, [number(i) for i in range(COUNT)])


NUMBERS = Array("<i4")


def first_number(value: bytes) -> int:
    return int.from_bytes(value[:4], "little")


def native_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements as torch has them; of bools all but 0 are true."""
    if array.dtype == np.bool_:
        return array.view("u1") != 0 if array.ndim else np.array(array.tobytes() != b"\0")
    return array.astype(array.dtype.newbyteorder("="))


def flat(batches: Any) -> list[int]:
    return [one for batch in batches for one in batch.tolist()]


# --- arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "mmap", "direct", "pread"])
@pytest.mark.parametrize("seed", range(6))
def test_arrays_are_those_of_numpy(tmp_path: Path, seed: int, engine: str) -> None:
    chance = random.Random(seed)
    long = chance.choice([0, 0, 3000])
    lengths = [chance.randrange(200, 260) + long for _ in range(COUNT)]
    values = [databases.value((seed, i), length) for i, length in enumerate(lengths)]
    path = written(tmp_path / "db", values)
    for _ in range(12):
        dtype = np.dtype(chance.choice(DTYPES))
        shape = tuple(chance.randrange(1, 4) for _ in range(chance.randrange(3)))
        offset = chance.randrange(0, 200 - math.prod(shape) * dtype.itemsize + 1) if shape else 3
        wanted = np.stack(
            [
                np.frombuffer(value, dtype, math.prod(shape), offset).reshape(shape)
                for value in values
            ]
        )
        decoder = Array(dtype, shape, offset)
        with Loader(path, 40, decode=decoder, engine=engine) as loader:
            batches = list(loader)
        assert [len(batch) for batch in batches] == [40, 40, 40, 37]
        made = torch.cat(batches)
        assert made.dtype == torch.from_numpy(wanted.astype(dtype.newbyteorder("="))).dtype
        # As bytes, since not each number is equal to itself.
        native = native_of(wanted)
        assert made.numpy().tobytes() == native.tobytes() and made.shape == native.shape
        assert all(batch.is_contiguous() for batch in batches)


def test_elements_may_be_of_torch_s_own_dtypes(tmp_path: Path) -> None:
    values = torch.arange(24, dtype=torch.bfloat16).view(6, 4)
    path = written(tmp_path / "db", [bytes(row.view(torch.uint8).tolist()) for row in values])
    with Loader(path, 6, decode=Array(torch.bfloat16, 4)) as loader:
        assert torch.equal(next(iter(loader)), values)


def test_fields_of_cached_records_are_copied_straight_into_the_tensor(folder: Path) -> None:
    with lmdbio.Records(folder) as records:
        list(records.values(range(COUNT)))
        for source, row in ((records, 3), (records.subset(range(100, 110)), 103)):
            tensor = torch.zeros(5, 2, dtype=torch.int32)
            field = Field(4, 8, tensor.data_ptr(), 40)
            begun = source.begin_fields([3, 0, 9, 3, 1], [field])
            assert begun.is_filled and tensor[0].tolist() == [row, row]
            assert bytes(begun.batch()[0])[:4] == number(row)[:4]
        tensor = torch.zeros(205, dtype=torch.uint8)
        # Some have 40 bytes.
        begun = records.begin_fields([3, 0, 9, 3, 1], [Field(0, 41, tensor.data_ptr(), 205)])
        assert not begun.is_filled and not tensor.any()
        # No more is written than there is room for.
        begun = records.begin_fields([3, 0, 9, 3, 1], [Field(0, 8, tensor.data_ptr(), 39)])
        assert not begun.is_filled and not tensor.any()
        assert len(begun.batch()) == 5


def test_what_the_page_cache_lacks_is_read_as_ever(tmp_path: Path) -> None:
    values = [databases.value(i, 3000) for i in range(COUNT)]
    path = written(tmp_path / "db", values)
    wanted = np.stack([np.frombuffer(value, "u1", 2000, 500) for value in values])
    with Loader(path, 40, decode=Array("u1", 2000, 500), readahead=False) as loader:
        cold.put_out(path / "data.mdb")
        assert np.array_equal(torch.cat(list(loader)).numpy(), wanted)
        assert loader.stats().requests > 0


@pytest.mark.parametrize("readahead", [None, False, True])
def test_short_records_are_named(folder: Path, readahead: bool | None) -> None:
    decoder = Array("u1", 41)
    with Loader(folder, 50, decode=decoder, readahead=readahead) as loader:
        list(loader.dataset.records.values(range(COUNT)))
        with pytest.raises(ValueError) as caught:
            next(iter(loader))
    told = wrote(caught.value)
    assert "record 0 has 40 bytes" in told and "needs 41" in told
    assert f"sample 0, key 00000000, file {folder}" in told


def test_what_makes_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match="torch has no dtype"):
        Array("V3")
    with pytest.raises(TypeError, match="torch has no dtype"):
        Array("O")
    for wrong in ({"shape": (2, -1)}, {"offset": -1}):
        with pytest.raises(ValueError, match="negative"):
            Array("u1", **wrong)
    assert repr(Array(">f4", (2, 3), 5)) == "Array(torch.float32, (2, 3), offset=5)"


# --- as samples are ----------------------------------------------------------------------


@pytest.mark.parametrize("words", [{}, {"ranks": 3, "rank": 1}, {"drop_last": True}])
@pytest.mark.parametrize("seed", [None, 7])
def test_orders_are_those_of_samples(folder: Path, words: Any, seed: int | None) -> None:
    how = {"shuffle": seed is not None, "seed": seed or 0, **words}
    with Loader(folder, 12, decode=NUMBERS, **how) as whole:
        with Loader(folder, 12, transform=first_number, **how) as each:
            for _ in range(2):
                wanted = [batch.tolist() for batch in each]
                assert [batch.tolist() for batch in whole] == wanted
            assert whole.state_dict() == each.state_dict()


@pytest.mark.parametrize("steps", [0, 1, 5, 13])
def test_a_state_goes_on_where_it_was(folder: Path, steps: int) -> None:
    how: dict[str, Any] = {"shuffle": True, "seed": 3, "decode": NUMBERS}
    with Loader(folder, 12, **how) as loader:
        batches = iter(loader)
        seen = [next(batches).tolist() for _ in range(steps)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
    with Loader(folder, 8, **how) as loader:
        loader.load_state_dict(state)
        rest = flat(loader)
    with Loader(folder, COUNT, **how) as loader:
        assert [one for batch in seen for one in batch] + rest == flat(loader)


@pytest.mark.parametrize("kind", ["several files", "cache", "disk", "view", "mix", "held"])
def test_all_sources_give_their_records(folder: Path, tmp_path: Path, kind: str) -> None:
    source: Any = folder
    options: dict[str, Any] = {}
    wanted = list(range(COUNT))
    if kind == "several files":
        other = written(tmp_path / "more", [number(1000 + i) for i in range(50)])
        source, wanted = [folder, other], [*wanted, *range(1000, 1050)]
    elif kind == "cache":
        options = {"cache": "memory=8K"}  # a part of it
    elif kind == "disk":
        options = {"cache": f"memory=8K,disk={tmp_path}"}
    elif kind == "held":
        options = {"readahead": True}
    with lmdbio.Records(folder) as records:
        if kind == "view":
            source, wanted = records.subset(range(20, 90)), list(range(20, 90))
        elif kind == "mix":
            parts = [records.subset(range(20)), records.subset(range(20, COUNT))]
            source = lmdbio.Mix(parts, seed=1)
        for decoder in (NUMBERS, lambda batch: NUMBERS(batch)):
            with Loader(source, 12, decode=decoder, shuffle=kind != "mix", **options) as loader:
                for epoch in range(2):
                    seen = flat(loader)
                    if kind == "mix":
                        places = range(epoch * COUNT, (epoch + 1) * COUNT)
                        assert seen == [first_number(value) for value in source.values(places)]
                    else:
                        assert sorted(seen) == wanted != seen


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of two records, as text recognition has them."""
    path = tmp_path_factory.mktemp("pairs") / "ocr"
    with databases.open_writable(path, 1) as env, env.begin(write=True) as transaction:
        for i in range(1, 41):
            transaction.put(b"image-%09d" % i, bytes([i]) * 12)
            transaction.put(b"label-%09d" % i, b"%03d" % i if i != 9 else b"")
        transaction.put(b"num-samples", b"40")
    return path


def test_each_record_of_a_sample_has_its_decoder(pairs: Path) -> None:
    decoders = (Array("u1", (3, 4)), lambda batch: [bytes(one).decode() for one in batch])
    words: dict[str, Any] = {"layout": "auto", "decode": decoders, "shuffle": True}
    with Loader(pairs, 16, **words) as loader:
        seen = []
        for images, labels in loader:
            assert images.shape[1:] == (3, 4) and len(images) == len(labels)
            seen += [
                (int(image[0, 0]), label) for image, label in zip(images, labels, strict=True)
            ]
    assert sorted(seen) == [(i, f"{i:03}" if i != 9 else "") for i in range(1, 41)]
    with Loader(pairs, 16, decode=Array("u1"), layout="auto") as loader:
        with pytest.raises(ValueError, match="takes a tuple of 2 decoders, and not Array alone"):
            next(iter(loader))
    with Loader(pairs, 16, decode=(NUMBERS,) * 3, layout="auto") as loader:
        with pytest.raises(ValueError, match=r"3 decoders, one for each .* samples are of 2"):
            next(iter(loader))


def test_a_sample_is_left_out_if_one_of_its_records_is(pairs: Path) -> None:
    decoders = (Array("u1", 12), Array("u1", 3))
    words: dict[str, Any] = {"layout": "auto", "decode": decoders, "keys": True}
    with Loader(pairs, 16, errors="skip", **words) as loader:
        keys, (images, labels) = next(iter(loader))
    assert len(keys) == len(images) == len(labels) == 15
    assert keys[8] == (b"image-000000010", b"label-000000010")
    assert images[8, 0] == 10 and bytes(labels[8].tolist()) == b"010"
    with Loader(pairs, 16, **words) as loader, pytest.raises(ValueError) as caught:
        next(iter(loader))
    assert "key image-000000009 and label-000000009" in wrote(caught.value)


def test_a_dict_decodes_parts_of_the_same_records(folder: Path) -> None:
    parts = {"number": Array("<i4"), "again": Array("<i4", 2, offset=4)}
    for decode in (parts, {**parts, "count": len}):  # fields alone, and not
        with Loader(folder, 10, decode=decode) as loader:
            list(loader.dataset.records.values(range(COUNT)))
            batch = next(iter(loader))
        assert batch["number"].tolist() == list(range(10)) and batch.get("count", 10) == 10
        assert batch["again"].tolist() == [[i, i] for i in range(10)]
    parts["long"] = Array("u1", 41)
    with Loader(folder, 10, decode=parts, errors="skip") as loader:
        assert next(iter(loader))["number"].tolist() == [i for i in range(10) if i % 3]


def test_records_are_counted_once_however_many_fields_they_have(folder: Path) -> None:
    tensor = torch.zeros(80, dtype=torch.uint8)
    with lmdbio.Records(folder) as records:
        list(records.values(range(COUNT)))
        before = records.stats()
        fields = [Field(4 * i, 8, tensor.data_ptr() + 40 * i, 40) for i in range(2)]
        assert records.begin_fields([3, 0, 9, 3, 1], fields).is_filled
        after = records.stats()
    assert after.records - before.records == 5
    assert after.record_bytes - before.record_bytes == 80
    assert tensor[40:48].tolist() == list(number(3)[4:12])


@pytest.mark.parametrize("decoder", [NUMBERS, lambda batch: NUMBERS(batch)])
def test_keys_are_those_of_the_batch(folder: Path, decoder: Any) -> None:
    with Loader(folder, 20, decode=decoder, keys=True, shuffle=True) as loader:
        for keys, numbers in loader:
            assert [int(key) for key in keys] == numbers.tolist()


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 20])
@pytest.mark.parametrize("readahead", [None, False, True])
def test_runs_of_brief_batches_are_those_made_one_by_one(
    tmp_path: Path, batch_size: int, threads: int, readahead: bool | None
) -> None:
    values = [databases.value(i, 3000) for i in range(COUNT)]
    path = written(tmp_path / "db", values)
    fields = {"head": Array("u1", 12), "rest": Array("<i2", (3, 70), offset=99)}
    wanted = {
        "head": np.stack([np.frombuffer(value, "u1", 12) for value in values]),
        "rest": np.stack(
            [np.frombuffer(value, "<i2", 210, 99).reshape(3, 70) for value in values]
        ),
    }
    runs: list[int] = []
    with Loader(
        path, batch_size, shuffle=True, decode=fields, keys=True, threads=threads
    ) as loader:
        records = loader.dataset.records
        begin_fields = records.begin_fields
        records.begin_fields = lambda indices, some: (  # type: ignore[method-assign]
            runs.append(len(indices)),
            begin_fields(indices, some),
        )[1]
        for epoch in range(3):
            loader.set_epoch(epoch)
            if epoch == 2:  # a part of a run has to be read
                cold.put_out(path / "data.mdb")
                list(records.values(range(60)))
            seen, held = [], []
            for at, (keys, made) in enumerate(loader):
                indices = [int(key) for key in keys]
                assert len(indices) == min(batch_size, COUNT - at * batch_size)
                assert loader.state_dict()["used"] == (len(seen) + len(indices)) % COUNT
                held.append((indices, made))
                seen += indices
            assert sorted(seen) == list(range(COUNT))
            for indices, made in held:  # each in memory of its own, which no later one reuses
                assert all(
                    np.array_equal(made[name].numpy(), wanted[name][indices]) for name in fields
                )
                assert all(one.untyped_storage().nbytes() == one.nbytes for one in made.values())
    assert max(runs) >= min(16 * batch_size, COUNT - 2 * batch_size) and batch_size in runs


# --- errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
def test_a_short_record_fails_its_own_batch_of_a_run_alone(tmp_path: Path, threads: int) -> None:
    bad = 74
    path = written(tmp_path / "db", [b"12" if i == bad else number(i) for i in range(COUNT)])
    with Loader(path, 10, decode=NUMBERS, threads=threads) as loader:
        list(loader.dataset.records.values(range(COUNT)))
        handed: list[int] = []
        with pytest.raises(ValueError) as caught:
            for batch in loader:
                handed += batch.tolist()
        assert handed == list(range(70)) and loader.state_dict()["used"] == 70
        assert f"record {bad} has 2 bytes" in wrote(caught.value)


def test_records_that_cannot_be_decoded_are_left_out(folder: Path) -> None:
    long = [i for i in range(COUNT) if i % 3]
    decoder = Array("u1", 41)
    how: dict[str, Any] = {"shuffle": True, "decode": decoder, "keys": True, "errors": "skip"}
    with Loader(folder, 20, **how) as loader:
        batches = list(loader)
        assert loader.stats().skipped_records == COUNT - len(long)
    seen = [int(key) for keys, _ in batches for key in keys]
    assert sorted(seen) == long
    assert all(len(keys) == len(made) < 20 for keys, made in batches)
    # The state counts them as used.
    with Loader(folder, 20, **how) as loader:
        iterator = iter(loader)
        first = next(iterator)
        state = loader.state_dict()
        assert state["used"] == 20 > len(first[0])


def test_a_function_says_which_are_left_out(folder: Path) -> None:
    asked: list[str] = []

    def decode(batch: Any) -> list[int]:
        values = [int.from_bytes(value[:4], "little") for value in batch]
        wrong = {row: KeyError(n) for row, n in enumerate(values) if n in (3, 8, 31)}
        if wrong:
            raise RecordErrors(wrong)
        return values

    def allowed(error: Exception) -> bool:
        asked.append(wrote(error))
        return error.args[0] != 31

    with Loader(folder, 20, decode=decode, errors=allowed, threads=1) as loader:
        batches = iter(loader)
        assert next(batches) == [i for i in range(20) if i not in (3, 8)]
        with pytest.raises(KeyError) as caught:
            next(batches)
    assert "sample 31, key 00000031" in wrote(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert [told.splitlines()[1].split(",")[0] for told in asked[:3]] == [
        "sample 3",
        "sample 8",
        "sample 31",
    ]


def test_an_error_of_the_batch_names_its_records(folder: Path) -> None:
    def broken(batch: Any) -> None:
        raise OSError("no memory for it")

    for errors in ("raise", "skip"):
        with Loader(folder, 20, decode=broken, errors=errors) as loader:
            with pytest.raises(OSError) as caught:
                next(iter(loader))
        told = wrote(caught.value)
        assert "a batch of 20 samples: sample 0, key 00000000" in told and "17 more" in told


def test_a_batch_of_which_nothing_is_left_is_an_error(folder: Path) -> None:
    with Loader(folder, 20, decode=Array("u1", 99), errors="skip") as loader:
        with pytest.raises(RuntimeError, match="all samples of the batch were left out") as caught:
            next(iter(loader))
    assert "sample 0" in wrote(caught.value)


@pytest.mark.parametrize("row", [-1, 20])
def test_a_row_that_is_not_there_is_an_error(folder: Path, row: int) -> None:
    def decode(batch: Any) -> None:
        raise RecordErrors({row: ValueError("which?")})

    with Loader(folder, 20, decode=decode, errors="skip") as loader:
        with pytest.raises(IndexError, match=f"row {row} of a batch of 20"):
            next(iter(loader))


def test_errors_of_no_record_are_refused_and_others_pickle() -> None:
    with pytest.raises(ValueError, match="at least one"):
        RecordErrors({})
    again = pickle.loads(pickle.dumps(RecordErrors({3: KeyError("a")})))
    assert str(again) == "1 records, such as row 3: 'a'" and list(again.errors) == [3]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"transform": len}, "transform= is for single samples"),
        ({"collate_fn": list}, "collate_fn= is for single samples"),
        ({"buffers": True}, "buffers= is for single samples"),
        ({"decode": "u1"}, "takes a decoder"),
        ({"decode": ()}, "takes a decoder"),
        ({"decode": Array}, "takes a decoder"),
        ({"decode": (NUMBERS, 3)}, "takes a decoder"),
    ],
)
def test_other_words_do_not_go_with_it(folder: Path, words: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Loader(folder, 4, **{"decode": NUMBERS, **words})
    with lmdbio.Reader(folder, 40, iterations=1) as reader:
        with pytest.raises(TypeError, match=why):
            ReaderLoader(reader, **{"decode": NUMBERS, **words})


# --- threads, processes, Readers ---------------------------------------------------------


def test_draws_follow_from_the_batch_whatever_the_threads(folder: Path) -> None:
    def decode(batch: Any) -> tuple[int, float, float]:
        info = sample_info()
        assert info is not None and info.index is None
        return len(batch), float(torch.rand(())), float(info.numpy.random())

    seen = []
    for threads in (1, 3):
        words: dict[str, Any] = {"shuffle": True, "seed": 2, "threads": threads}
        with Loader(folder, 10, decode=decode, **words) as loader:
            seen.append(list(loader))
    assert seen[0] == seen[1] and len({draw for _, draw, _ in seen[0]}) == len(seen[0])


def test_a_loader_and_its_decoders_pickle(folder: Path) -> None:
    for decoder in (NUMBERS, Npy(), Datum(), Datum(NUMBERS), (NUMBERS,), {"a": NUMBERS}):
        pickle.loads(pickle.dumps(as_decoder(decoder)))
    with Loader(folder, 20, decode=NUMBERS, shuffle=True) as loader:
        with pickle.loads(pickle.dumps(loader)) as again:
            assert flat(again) == flat(loader)


def test_closing_ends_a_loader_between_two_batches(folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def decode(batch: Any) -> Any:
        begun.set()
        go_on.wait(10)
        raise RecordErrors({0: ValueError("again")})  # it would be asked again

    with Loader(folder, 20, decode=decode, errors="skip", threads=1) as loader:
        failures: list[BaseException] = []

        def loop() -> None:
            try:
                next(iter(loader))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        assert begun.wait(10)
        closing = threading.Thread(target=loader.close)
        closing.start()
        go_on.set()
        closing.join(10)
        thread.join(10)
    assert "closed" in str(failures[0])


def test_tensors_are_made_in_page_locked_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    empty = torch.empty

    def watched(*args: Any, pin_memory: bool = False, **words: Any) -> torch.Tensor:
        made.append(pin_memory)
        return empty(*args, **words)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("lmdbio.torch.whole.torch.empty", watched)
    monkeypatch.setattr("lmdbio.torch.whole.pin_memory", lambda batch: ("moved", batch))
    with Loader(folder, 20, decode=NUMBERS, pin_memory=True) as loader:
        assert torch.is_tensor(next(iter(loader)))
    assert made and all(made)
    made.clear()
    parts = {"own": lambda batch: 5, "array": NUMBERS}
    with Loader(folder, 20, decode=parts, pin_memory=True) as loader:
        batch = next(iter(loader))
    assert batch["own"] == ("moved", 5) and torch.is_tensor(batch["array"]) and all(made)


def test_loaders_that_trainers_make_of_it_have_its_batches(folder: Path, pairs: Path) -> None:
    two = (Array("u1", 12), lambda batch: [bytes(one) for one in batch])
    sources: list[dict[str, Any]] = [
        {"source": folder, "decode": NUMBERS},
        {"source": folder, "decode": NUMBERS, "keys": True},
        {"source": pairs, "decode": two, "layout": "auto"},
    ]
    for words in sources:
        with Loader(batch_size=9, shuffle=True, **words) as loader:
            wanted = list(loader)
            loader.set_epoch(0)
            made = torch.utils.data.DataLoader(
                loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
            )
            for batch, other in zip(made, wanted, strict=True):
                assert repr(batch) == repr(other)
    with Loader(folder, 9, decode=Array("u1", 41)) as loader:
        with pytest.raises(ValueError, match="record 0 has 40 bytes"):
            loader.collate_fn([number(0)])


def test_tensors_are_the_cpu_s_wherever_torch_makes_others(folder: Path) -> None:
    with lmdbio.Records(folder) as records, torch.device("meta"):
        assert torch.empty(1).is_meta
        assert NUMBERS(records.read([5, 3])).tolist() == [5, 3]


def test_a_reader_s_batches_are_decoded_as_a_whole(folder: Path) -> None:
    with lmdbio.Reader(folder, 40, iterations=9) as reader:
        with ReaderLoader(reader, decode=NUMBERS) as loader:
            assert flat(loader) == [i % COUNT for i in range(360)]
    with lmdbio.Reader(folder, 40, iterations=9) as reader:
        with ReaderLoader(reader, decode=Array("u1", 41), errors="skip") as loader:
            seen = [len(batch) for batch in loader]
    numbers = np.arange(360) % COUNT
    assert seen == [int((numbers[at : at + 40] % 3 > 0).sum()) for at in range(0, 360, 40)]


# --- images: tests/torch/test_images.py


def test_without_torchvision_an_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images._io.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'lmdbio\[images\]'"):
        Jpeg()
