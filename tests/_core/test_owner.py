"""A call of C that opens leaves nothing open, whenever an exception comes.

Goal: no descriptor, thread or memory of an opening stays behind that a signal's handler breaks
off. Method: Ctrl-C after each call, and where a function or a round of a loop begins, one after
the other; and a look at the sources, where a pointer that C hands out lies in a cell.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from lmdbio._core._lmdbio import ffi, lib

import lmdbio
from lmdbio import _core, provenance
from lmdbio._core import owner
from lmdbio.convert.convert import convert
from lmdbio.provenance import Provenance, find_sidecar
from tests.support import long_run
from tests.support.interrupts import after, ctrl_c

FOLDER = str(Path(owner.__file__).parent)
#: Rooms that open descriptors besides.
FILES = (FOLDER, str(Path(provenance.__file__).parent))


@pytest.fixture
def path(tmp_path: Path) -> str:
    with lmdb.open(str(tmp_path / "a")) as env, env.begin(write=True) as txn:
        for i in range(300):
            txn.put(b"%04d" % i, bytes(300))
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.mdb").write_bytes((tmp_path / "a/data.mdb").read_bytes())
    convert(tmp_path / "c")
    return str(tmp_path)


def in_use() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    descriptors, threads = (list(Path(f"/proc/self/{of}").iterdir()) for of in ("fd", "task"))
    return len(descriptors), len(threads)


def goes_down_to(before: tuple[int, int]) -> bool:
    """Return whether no more is in use, after a second at most: a thread ends after its join."""
    for _ in range(100):
        if all(now <= then for now, then in zip(in_use(), before, strict=True)):
            return True
        gc.collect()
        time.sleep(0.01)
    return False


def open_again(path: str) -> None:
    with _core.Engine(f"{path}/a/data.mdb") as first:
        first.again("pread", 4).close()


def stream(path: str) -> _core.Prefetch:
    engine = _core.Engine(f"{path}/a/data.mdb")
    prefetch = _core.Prefetch(engine, engine.size(), piece=4096, sweep_bytes_max=engine.size())
    prefetch.sweep_all()
    return prefetch


def read_past_the_cache(path: str) -> None:
    with lmdbio.open(f"{path}/a", readonly=True, lock=False) as env, env.begin() as txn:
        assert len(list(txn.cursor())) == 300


OPENINGS: dict[str, Callable[[str], object]] = {
    "an engine": lambda path: _core.Engine(f"{path}/a/data.mdb"),
    "an engine with threads": stream,
    "an engine again": open_again,
    "files as one": lambda path: lmdbio.Records([f"{path}/a", f"{path}/b"]).read([0, 400]),
    "Records": lambda path: lmdbio.Records(f"{path}/a").read([0, 1]),
    "an environment": read_past_the_cache,
    "a provenance file": lambda path: Provenance.open(find_sidecar(Path(f"{path}/c/data.mdb"))),
    "a descriptor": lambda path: _core.Descriptor(path, os.O_RDONLY),
    "a thread that copies": lambda _: _core.Copier(),
}


@pytest.mark.more
@pytest.mark.parametrize("opening", OPENINGS)
def test_an_exception_after_any_call_leaves_nothing_open(path: str, opening: str) -> None:
    OPENINGS[opening](path)  # what a process opens once, it keeps
    gc.collect()
    before = in_use()
    for at in long_run.moments():
        with contextlib.suppress(KeyboardInterrupt), after(at, ctrl_c, FILES) as counted:
            OPENINGS[opening](path)
        assert goes_down_to(before), f"Ctrl-C number {at} leaves {in_use()} of {before}"
        if at > counted[0]:
            break
    assert counted[0] > 3


def test_a_cell_closes_what_a_call_has_put_into_it_once() -> None:
    closed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "lib", _Counting(closed))
        cell = owner.cell_of("lio_keys", "keys_close")
        assert lib.lio_keys_open(0, cell, ffi.new("lio_error *")) == lib.LIO_OK
        pointer = owner.held(cell)
        del cell
        assert not closed
        assert lib.lio_keys_may_count(pointer) in (0, 1)
        del pointer
    assert closed == ["lio_cell_keys_close"]


class _Counting:
    """The library, whose functions for cells are noted when they are called."""

    def __init__(self, closed: list[str]) -> None:
        self._closed = closed

    def __getattr__(self, name: str) -> object:
        found = getattr(lib, name)
        if not name.startswith("lio_cell_"):
            return found
        return lambda cell: (self._closed.append(name), found(cell))


def test_every_pointer_that_c_hands_out_lies_in_a_cell() -> None:
    borrowed = {"lio_key_run"}  # the runs of an object that is owned
    bare = [
        f"{source.name}: {line.strip()}"
        for source in Path(FOLDER).glob("*.py")
        for line in source.read_text(encoding="utf-8").splitlines()
        if re.search(r"ffi\.new\(\"\w+ \*\*\"\)|ffi\.gc\(", line)
        and "owned(" not in line
        and not any(name in line for name in borrowed)
        and source.name != "owner.py"
    ]
    assert not [line for line in bare if "partial(is_" not in line]
