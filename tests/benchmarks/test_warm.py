"""The benchmark of warm calls. Goal: it makes its data once, calls both packages alike, judges and
reports. Method: data sets of some hundred records, few rounds; a file that cannot be locked.
"""

from __future__ import annotations

import json
from pathlib import Path

import lmdb
import pytest

import lmdbio
from benchmarks import command, page_cache
from benchmarks.warm import calls, run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETS", {"100": (100, 500), "3k": (3072, 300)})
    monkeypatch.setattr(run, "ASKED", 64)
    monkeypatch.setattr(calls, "OPENED", 3)


@pytest.mark.usefixtures("small")
def test_every_call_is_judged_on_every_set(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["--sets", "all", "--rounds", "2", "--data", str(tmp_path / "data")]
    files = [tmp_path / "found.json", tmp_path / "found.html"]
    code = run.main([*words, "--json", str(files[0]), "--html", str(files[1])])
    assert code in (0, 1), capsys.readouterr()
    found = json.loads(files[0].read_text())
    assert len(found["verdicts"]) == 2 * len((*calls.CALLS, *calls.LOCKED, *calls.OPENINGS))
    assert all(one["figure"] > 0 for one in found["verdicts"])
    small_only = {call.words for call in calls.CALLS if call.small}
    assert small_only
    for one in found["verdicts"]:
        if one["words"] in small_only:
            assert bool(one["bound"]) == one["where"].startswith("100,")
    assert "Warm calls" in files[1].read_text()
    made = (tmp_path / "data" / "warm-3k" / "data.mdb").stat().st_mtime_ns
    run.main([*words[:2], "--rounds", "1", *words[4:]])
    assert (tmp_path / "data" / "warm-3k" / "data.mdb").stat().st_mtime_ns == made


@pytest.mark.usefixtures("small")
def test_both_packages_are_asked_for_the_same(tmp_path: Path) -> None:
    path = run.make(tmp_path, "3k")
    keys = [run.key(i) for i in range(40)]
    for call in (*calls.CALLS, *calls.LOCKED):
        done = []
        for package in (lmdb, lmdbio):
            lock = call in calls.LOCKED
            with package.open(str(path), readonly=True, lock=lock) as env:
                done.append(call.loop(env, keys))
        assert done[0] == done[1] > 0, call.words


def test_a_file_that_cannot_be_locked_is_told(tmp_path: Path) -> None:
    file = tmp_path / "data.mdb"
    file.write_bytes(bytes(1 << 20))
    with run.locked(file):
        pass

    class Refuses:
        def __getattr__(self, name: str):
            return lambda *_: -1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cache.ctypes, "CDLL", lambda *_, **__: Refuses())
        with pytest.raises(command.Missing, match=r"data\.mdb"), run.locked(file):
            pass


def test_an_unknown_set_is_refused() -> None:
    assert run.main(["--sets", "3m"]) == command.FAILED
