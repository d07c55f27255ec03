"""Provenance files that are false though every checksum is right.

Goal: ``verify`` finds whatever a sidecar says falsely of its database; readers refuse what
contradicts itself or the database by the documented errors, naming the sidecar; a small sidecar
costs little time and memory, whatever it claims. Method: sidecars of small databases, taken apart,
changed and sealed again (tests/support/forging.py); what they cost is counted in what is
decoded, and measured in address space that is limited.
"""

from __future__ import annotations

import dataclasses
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lmdbio
from lmdbio import _core
from lmdbio._core import KeyForm, KeyRun
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import IncompatibleError, ProvenanceError, StaleError
from lmdbio.provenance import Entry, Provenance
from lmdbio.provenance.directory import pack_directory
from lmdbio.provenance.entry import BLOCK, NUMBERS, pack_entry
from tests.support import databases
from tests.support.forging import (
    Unsealed,
    extent_blocks,
    number_blocks,
    seal,
    seal_raw,
    unseal,
)

NAME = b"many"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def counted(folder: Path, shape: bytes = b"%06d", count: int = 600) -> Path:
    """A database of keys that count; its sidecar."""
    env = databases.open_writable(folder, 1)
    draw = random.Random(1)
    content = [(shape % i, databases.value(i, draw.randrange(60))) for i in range(count)]
    databases.write(env, content)
    env.close()
    return convert(folder).sidecar


def grouped(folder: Path, shape: bytes = b"%04d") -> tuple[Path, list[bytes]]:
    """A database with duplicates: its sidecar, and its keys."""
    env = databases.open_writable(folder, 1)
    db = env.open_db(NAME, dupsort=True)
    keys = [shape % i for i in range(50)]
    with env.begin(write=True, db=db) as txn:
        for i, key in enumerate(keys):
            for number in range(1 + i % 5):
                txn.put(key, b"%03d" % number)
    env.close()
    return convert(folder).sidecar, keys


# --- what verify finds -------------------------------------------------------------------


def change_runs(sidecar: Path, change: Callable[[KeyRun], Any]) -> None:
    found = unseal(sidecar)
    (run,) = found.entries[0].keys
    made = change(run)
    found.entries[0].keys = made if isinstance(made, tuple) else (made,)
    seal(sidecar, found)


def split_at(run: KeyRun, at: int) -> tuple[KeyRun, KeyRun]:
    rest = dataclasses.replace(run, first=run.first + at, count=run.count - at)
    return dataclasses.replace(run, count=at), rest


FALSE_RUNS: dict[str, Callable[[KeyRun], Any]] = {
    "first": lambda run: dataclasses.replace(run, first=run.first + 1),
    "stem": lambda run: dataclasses.replace(run, stem=b"1", width=5),
    "tail": lambda run: dataclasses.replace(run, width=5, tail=b"0"),
    "form": lambda run: dataclasses.replace(run, form=KeyForm.BIG),
    "width": lambda run: dataclasses.replace(run, width=7),
    "plain": lambda run: dataclasses.replace(run, form=KeyForm.PLAIN, width=0),
    "turned": lambda run: split_at(run, 300)[::-1],
    "a gap": lambda run: (
        split_at(run, 300)[0],
        dataclasses.replace(split_at(run, 300)[1], first=301),
    ),
}


@pytest.mark.parametrize("what", FALSE_RUNS)
def test_verify_finds_false_keys(tmp_path: Path, what: str) -> None:
    sidecar = counted(tmp_path / "env")
    assert verify(tmp_path / "env").sidecar_keys == 600
    change_runs(sidecar, FALSE_RUNS[what])
    with pytest.raises(StaleError, match=r"key \d+ of the main database is b'0") as caught:
        verify(tmp_path / "env")
    assert str(sidecar) in str(caught.value)


def test_verify_finds_false_keys_of_values_in_the_order_of_numbers(tmp_path: Path) -> None:
    sidecar = counted(tmp_path / "env", b"%d")
    change_runs(sidecar, lambda run: dataclasses.replace(run, first=1))
    with pytest.raises(StaleError, match=r"key 0 of the main database is b'0' in .*, not b'1'"):
        verify(tmp_path / "env")


def test_runs_that_are_divided_otherwise_are_right(tmp_path: Path) -> None:
    sidecar = counted(tmp_path / "env")
    change_runs(sidecar, lambda run: split_at(run, 17))
    assert verify(tmp_path / "env").sidecar_keys == 600
    with lmdbio.Records(tmp_path / "env", locate="provenance") as records:
        assert records.index_of(b"000099") == 99 and records.key(599) == b"000599"


def change_each(sidecar: Path, change: Callable[[list[int]], list[int]]) -> None:
    """Changes how many values each key has, and how many keys there are in their only run."""
    found = unseal(sidecar)
    (entry,) = found.entries
    with Provenance.open(sidecar) as opened:
        each = change(opened.section(NAME).each_key().tolist())
    if entry.keys:
        entry.keys = (dataclasses.replace(entry.keys[0], count=len(each)),)
    stored = int(entry.blocks["stored"].sum())
    entry.groups, blocks = number_blocks(each)
    found.blocks = found.blocks[:stored] + blocks
    seal(sidecar, found)


def test_verify_finds_false_counts_of_duplicates(tmp_path: Path) -> None:
    sidecar, _ = grouped(tmp_path / "env")
    change_each(sidecar, lambda each: each[::-1])
    with pytest.raises(StaleError, match="keys of database 'many' have other numbers of values"):
        verify(tmp_path / "env")


def test_verify_finds_false_keys_of_duplicates(tmp_path: Path) -> None:
    sidecar, _ = grouped(tmp_path / "env")
    assert verify(tmp_path / "env").sidecar_keys == 50
    change_runs(sidecar, lambda run: dataclasses.replace(run, first=3))
    with pytest.raises(StaleError, match=r"key 0 of database 'many' is b'0000'.*not b'0003'"):
        verify(tmp_path / "env")


def test_verify_finds_an_order_that_is_none(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    keys = [random.Random(i).randbytes(8) for i in range(200)]
    databases.write(env, [(key, b"v") for key in keys])
    env.close()
    sidecar = convert(tmp_path / "env", order=keys).sidecar
    verify(tmp_path / "env")
    found = unseal(sidecar)
    (entry,) = found.entries
    blocks = found.blocks[: int(entry.blocks["stored"].sum())]
    for steps in ([0] * 199 + [1], [0] * 199 + [399]):  # a record twice; one before the first
        entry.order, packed = number_blocks(steps)
        found.blocks = blocks + packed
        seal(sidecar, found)
        with pytest.raises(ProvenanceError, match="does not have each record once") as caught:
            verify(tmp_path / "env")
        assert str(sidecar) in str(caught.value)


# --- what readers refuse -----------------------------------------------------------------


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_keys_that_are_counted_falsely_are_refused(tmp_path: Path, change: str) -> None:
    draw = random.Random(2)
    env = databases.open_writable(tmp_path / "env", 1)
    db = env.open_db(NAME, dupsort=True)
    keys = sorted(draw.randbytes(6) for _ in range(40))
    with env.begin(write=True, db=db) as txn:
        for key in keys:
            for number in range(3):
                txn.put(key, b"%d" % number)
    env.close()
    sidecar = convert(tmp_path / "env").sidecar
    if change == "fewer":
        change_each(sidecar, lambda each: [*each[:-2], 6])
    else:
        change_each(sidecar, lambda each: [*each[:-1], 1, 1, 1])
    with lmdbio.Records(tmp_path / "env", db=NAME, locate="provenance") as records:
        assert [records[i] for i in (0, 119)] == [b"0", b"2"]
        told = 39 if change == "fewer" else 42
        for call in (lambda: records.index_of(keys[-1]), lambda: records.key(119)):
            with pytest.raises(ProvenanceError, match=f"counts {told} keys, .* has 40") as caught:
                call()
            assert str(sidecar) in str(caught.value)


def test_a_named_database_of_another_record_is_refused(tmp_path: Path) -> None:
    """The meta page, which tells a state from others, has nothing of named databases."""
    sidecar, _ = grouped(tmp_path / "env")
    found = unseal(sidecar)
    (entry,) = found.entries
    with Provenance.open(sidecar) as opened:
        extents = opened.section(NAME).extents()[:-10]
    blocks = extent_blocks(entry, found.facts.layout, extents)
    entry.records, entry.record_bytes = len(extents), int(extents["length"].sum())
    entry.database = dataclasses.replace(entry.database, entries=len(extents))
    entry.groups, packed = number_blocks([1] * len(extents))
    entry.keys, found.blocks = (), blocks + packed
    seal(sidecar, found)
    with pytest.raises(StaleError, match="database 'many' entries: 150 now, 140 when converted"):
        lmdbio.Records(tmp_path / "env", db=NAME, locate="provenance")
    with pytest.warns(UserWarning, match="entries: 150 now"):
        records = lmdbio.Records(tmp_path / "env", db=NAME)
    assert len(list(records)) == 150 and records.located_by == "scan"
    records.close()


# --- what little bytes may claim ---------------------------------------------------------

NONE = _core.Database(0, 0, 0, 0, 0, 0, 0, 2**64 - 1)
#: Beyond what a process has that has imported the library and opened a file.
MEMORY_BYTES_MAX = 300 << 20
SECONDS_MAX = 20  # of all of them; a few each would be far above
#: Opens each provenance file that it is given, and tells what comes of it.
OPENER = """
import resource, sys
from lmdbio.provenance import Provenance
first, memory, seconds, *files = sys.argv[1:]
Provenance.open(first).close()
has = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (has + int(memory),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (int(seconds),) * 2)
for file in files:
    try:
        with Provenance.open(file) as opened:
            print(len(opened.databases))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


def empty(name: bytes) -> Entry:
    return Entry(name, NONE)


def rows(count: int) -> np.ndarray:
    """Blocks that are all alike."""
    return np.full(count, np.array((1, 9, 20, 7, 1), BLOCK))


def many_names(found: Unsealed, names: list[bytes]) -> bytes:
    """The directory, with empty databases of these names."""
    head = bytearray(pack_directory(found.facts, []))
    struct.pack_into("<I", head, 12, len(names))
    packed = {name: pack_entry(empty(name)) for name in set(names)}
    return bytes(head) + b"".join(packed[name] for name in names)


def attackers(found: Unsealed) -> dict[str, tuple[bytes, str]]:
    """Directories that claim much, and what is said of them."""
    facts, (entry,) = found.facts, found.entries
    large = dataclasses.replace(found.facts.main_db, entries=10**6)
    roomy = dataclasses.replace(
        found, facts=dataclasses.replace(found.facts, main_db=large), entries=[]
    )

    def with_entry(**given: Any) -> bytes:
        return pack_directory(facts, [dataclasses.replace(entry, **given)])

    blocks = dataclasses.replace(entry, blocks=rows(3_900_000))
    numbers = np.full(4_000_000, np.array((8192, 9, 20, 7), NUMBERS))
    run = KeyRun(KeyForm.LITERAL, 0, 1, 0, b"k")
    dup = dataclasses.replace(entry.database, flags=4)
    of_dups = dataclasses.replace(facts, main_db=dup)
    grouped_entry = dataclasses.replace(entry, database=dup, keys=(), groups=numbers[:7])
    literals = [dataclasses.replace(empty(b"%d" % i), keys=(run,) * 64) for i in range(9)]
    return {
        "many databases": (many_names(roomy, [b"a"] * 600_000), "600,000 databases, more than"),
        "a database too many": (many_names(roomy, [b"a"] * 16_385), "16,385 databases, more than"),
        "one name": (many_names(roomy, [b"a"] * 16_384), "describes database 'a' twice"),
        "more than there are": (many_names(found, [b"a"] * 602), "602 databases, more than"),
        "many blocks": (pack_directory(facts, [blocks]), "more blocks than its file"),
        "much order": (with_entry(order=numbers), "more blocks than its file"),
        "many counts": (with_entry(groups=numbers), "more blocks than its file"),
        "many keys": (
            pack_directory(of_dups, [grouped_entry]),
            "more keys than records",
        ),
        "keys of none": (pack_directory(facts, literals), "another number of keys"),
        "zeros": (many_names(found, []) + bytes(60 << 20), "bytes left over"),
    }


def test_what_little_bytes_claim_costs_little(tmp_path: Path) -> None:
    sidecar = counted(tmp_path / "env")
    found, files, told = unseal(sidecar), [], []
    for number, (directory, reason) in enumerate(attackers(found).values()):
        files.append(tmp_path / f"{number}.prov")
        assert seal_raw(files[-1], directory, found.blocks) < 64 << 10
        told.append(reason)
    arguments = [sidecar, MEMORY_BYTES_MAX, SECONDS_MAX, *files]
    done = subprocess.run(
        [sys.executable, "-c", OPENER, *map(str, arguments)], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(files), done.stderr
    for file, line, reason in zip(files, lines, told, strict=True):
        assert line.startswith(f"ProvenanceError: {file}: ") and reason in line
        assert len(line) < 400


def test_runs_of_keys_are_bounded_in_all(tmp_path: Path) -> None:
    """Those of 16 databases at most, where each has 1,024 times as many as it may."""
    sidecar = counted(tmp_path / "env")
    found = unseal(sidecar)
    (entry,) = found.entries
    with Provenance.open(sidecar) as opened:
        extents = opened.section().extents(0, 64)
    runs = tuple(KeyRun(KeyForm.LITERAL, 0, 1, 0, b"%d" % i) for i in range(64))
    small = dataclasses.replace(entry, name=b"", records=64, keys=runs, history=None)
    block = extent_blocks(small, found.facts.layout, extents)
    small.database = dataclasses.replace(entry.database, entries=64)
    for count, fits in ((255, True), (256, False)):
        others = [dataclasses.replace(small, name=b"%d" % i) for i in range(count)]
        seal(sidecar, Unsealed(found.facts, [entry, *others], found.blocks + block * count))
        if fits:
            with Provenance.open(sidecar) as opened:
                assert len(opened.databases) == count + 1
        else:
            with pytest.raises(ProvenanceError, match="more runs of keys than the format knows"):
                Provenance.open(sidecar)


def test_a_name_that_is_not_there_is_told_with_a_few_others(tmp_path: Path) -> None:
    sidecar = counted(tmp_path / "env")
    found = unseal(sidecar)
    found.entries += [empty(b"%03d" % i) for i in range(500)]
    seal(sidecar, found)
    with Provenance.open(sidecar) as opened:
        with pytest.raises(KeyError, match=r"only the main database, .*'004' and 495 more"):
            opened.section("none")


def test_convert_writes_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More databases than there is room for are refused; so many runs of keys are left out."""
    env = databases.open_writable(tmp_path / "env", 1, max_dbs=8)
    for name in (b"a", b"b", b"c"):
        databases.write(env, [(b"%03d" % i, b"v") for i in range(20)], db=env.open_db(name))
    env.close()
    monkeypatch.setattr("lmdbio.provenance.writer.ALL_KEY_RUNS_MAX", 2)
    sidecar = convert(tmp_path / "env").sidecar
    with Provenance.open(sidecar) as opened:
        assert [section.keys is not None for section in opened.sections] == [True, True, False]
    verify(tmp_path / "env")
    with lmdbio.Records(tmp_path / "env", db="c", locate="provenance") as records:
        assert records.index_of(b"007") == 7
    monkeypatch.setattr("lmdbio.provenance.writer.DATABASES_MAX", 2)
    with pytest.raises(IncompatibleError, match="describes 2 databases at most"):
        convert(tmp_path / "env")
    assert convert(tmp_path / "env", databases=["a", "c"]).records == 40
