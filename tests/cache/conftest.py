"""A small file with small grains, and a folder on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmdbio.placement import homes
from tests.cache.support import GRAIN, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "db")


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same file, for tests of many inputs."""
    return written(tmp_path_factory.mktemp("lasting") / "db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture(autouse=True)
def small_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", GRAIN)
    monkeypatch.setattr(homes, "HOME_GRAINS_MIN", 2**20)
