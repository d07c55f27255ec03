"""Data sets that Readers of one process read, and the end of their threads."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reader.support import COUNT, KEPT_COUNT, value, write

#: Threads of a root, and of its disk.
OURS = ("lmdbio-root", "lmdbio disk tier")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("mixed") / "db", [value(i) for i in range(COUNT)])


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of one size in key order: u8 label, then 3,000 bytes."""
    values = [bytes([i % 251]) * 3001 for i in range(500)]
    return write(tmp_path_factory.mktemp("fixed") / "db", values)


@pytest.fixture
def values() -> list[bytes]:
    """Records of every kind of page, whose bytes are found nowhere else."""
    chance = random.Random(1)
    return [chance.randbytes(chance.choice([0, 30, 3000, 20_000])) for _ in range(KEPT_COUNT)]


@pytest.fixture
def path(tmp_path: Path, values: list[bytes]) -> Path:
    return write(tmp_path / "db", values)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if not any(t.name.startswith(OURS) for t in threading.enumerate()):
            return
        time.sleep(0.02)
    raise AssertionError("a root's thread, or one that writes for it, is still alive")
