"""Files that other versions of LMDB wrote, with pages of other sizes (tests/older).

Goal: every such file is read to the byte, by every way, and its history is found where it has one.
Method: samples that are kept in the repository, each with the story of how it was made; ``make
older`` does it with every version, page size and story. Py-lmdb reads them too, but for pages that
LMDB before 0.9.17 wrote.
"""

from __future__ import annotations

import importlib
import lzma
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import TESTS

OLDER = TESTS / "older"
sys.path.insert(0, str(OLDER))
stories: ModuleType = importlib.import_module("stories")
judging: ModuleType = importlib.import_module("judging")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def unpack(sample: Any, folder: Path) -> Path:
    file = folder / "data.mdb"
    file.write_bytes(lzma.decompress((OLDER / "samples" / sample.file).read_bytes()))
    return file


@pytest.mark.parametrize("sample", stories.SAMPLES, ids=lambda sample: sample.file)
def test_files_of_other_versions_are_read_to_the_byte(tmp_path: Path, sample: Any) -> None:
    verdict = judging.judge(unpack(sample, tmp_path), sample.page_bytes, sample.story)
    assert verdict.wrong == []
    assert verdict.rule == sample.rule
    assert ("replay" in verdict.forms) == bool(sample.rule)
    assert {"auto", "explicit"} <= set(verdict.forms)


def test_every_sample_has_its_story() -> None:
    """Each rule of splitting, both formats, and the largest pages of each are among them."""
    found = {path.name for path in (OLDER / "samples").iterdir()}
    assert found == {sample.file for sample in stories.SAMPLES}
    assert {sample.rule for sample in stories.SAMPLES} == {"", "OLDEST", "BY_TWENTY", "BY_PAGE"}
    assert {32768, 65536} <= {sample.page_bytes for sample in stories.SAMPLES}


def test_what_is_read_otherwise_is_noticed(tmp_path: Path) -> None:
    """A file that does not hold what its story says: the judgement is worth something."""
    sample = stories.SAMPLES[0]
    file = unpack(sample, tmp_path)
    right = stories.value(7, 100)
    file.write_bytes(file.read_bytes().replace(right, right[::-1]))
    verdict = judging.judge(file, sample.page_bytes, sample.story)
    assert any("records" in wrong for wrong in verdict.wrong)
    assert any("cursor" in wrong or "py-lmdb" in wrong for wrong in verdict.wrong)
