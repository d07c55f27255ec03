"""The benchmark of what people train on. Goal: ratios are of the same round, the Loader is held
against the best that a user could have written or told, each record is seen once, and what a run
leaves behind is found. Method: made-up runs with known answers; the command on a set of one MiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import command, report
from benchmarks.training import forms, photos, racing, run, tree, watch, ways
from benchmarks.training.results import Cell, Run, judge, table
from benchmarks.training.workloads import WORKLOADS, Account, by_pil
from lmdbio.bench import datasets

# --- who takes part --------------------------------------------------------------------------


def test_the_loader_is_told_each_number_once_and_names_are_words() -> None:
    everybody = ways.ways([1, 4], [2])
    names = [way.name for way in everybody]
    assert len(set(names)) == len(names)
    told = {way.name: dict(way.words) for way in everybody if way.group == "fixed"}
    assert told == {
        "loader-t1": {"threads": 1},
        "loader-t4": {"threads": 4},
        "loader-p2": {"processes": 2},
    }
    titles = {way.name: way.title for way in everybody}
    assert titles["loader-t1"], titles["loader-p2"] == ("Loader, 1 thread", "Loader, 2 processes")
    judged = {way.name for way in everybody if way.judged}
    assert judged == {"lmdb", "open", "dataset", *told}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("loader,lmdb", ["lmdb", "loader"]),
        ("peers", [way.name for way in ways.PEERS]),
        ("loader, loader-t2", ["loader", "loader-t2"]),
    ],
)
def test_ways_are_chosen_by_name_and_group(text: str, names: list[str]) -> None:
    assert [way.name for way in ways.chosen(ways.ways([2], []), text)] == names


def test_a_way_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="loader-t3"):
        ways.chosen(ways.ways([2], []), "loader-t3")
    with pytest.raises(SystemExit):
        run.parse(["--ways", "faster"])
    with pytest.raises(SystemExit):
        run.parse(["--threads", "0"])


@pytest.mark.parametrize(("cores", "threads"), [(1, (1, 2, 4)), (2, (1, 2, 4)), (16, (1, 4, 16))])
def test_the_usual_threads_are_one_some_and_all(cores: int, threads: tuple[int, ...]) -> None:
    assert ways.usual_threads(cores) == threads


def test_who_cannot_take_part_is_named_with_the_reason() -> None:
    asked = run.parse(["--ways", "all", "--workloads", "all", "--processes", "2", "--step"])
    found = {
        "modules": {"cv2": "cv2 is not installed", "grain": "grain cannot be imported: no"},
        "loader_words": ["threads"],
    }
    assert run.left_out(asked, found) == {
        "cv2": "cv2 is not installed",
        "nothing": "--step: there is nothing to train with",
        "loader-p2": "this Loader has no processes=",
        "grain": "grain cannot be imported: no",
    }
    found["loader_words"].append("processes")
    assert "loader-p2" not in run.left_out(asked, found)


def test_the_loader_and_ours_come_first_and_rounds_alternate() -> None:
    everybody = ways.ways([1], [])
    races: Any = [SimpleNamespace(cell=Cell(name, "", everybody)) for name in ("a", "b")]
    first = [(race.cell.name, way.name) for race, way in racing.turns(races, 0)]
    second = [(race.cell.name, way.name) for race, way in racing.turns(races, 1)]
    ours = 2 * sum(way.group != "peer" for way in everybody)
    assert first[0] == ("a", "loader")
    assert not any(name in {way.name for way in ways.PEERS} for _, name in first[:ours])
    assert sorted(first) == sorted(second)
    own = [name for race, name in first[:ours] if race == "a"]
    assert [name for race, name in second[:ours] if race == "a"] == own[::-1]


# --- what is judged --------------------------------------------------------------------------


def told(cold: float, warm: float, **changes: Any) -> dict[str, Any]:
    """A cold epoch and two warm ones of 100 records at these rates."""
    epoch = {"first_seconds": 0.1, "wait_seconds": 0.0, "step_seconds": 0.5, "steps": 10,
             "cpu_seconds": 0.2, "checksum": 1}  # fmt: skip
    return {
        "epochs": [epoch | {"seconds": 100 / rate} for rate in (cold, warm, warm)],
        "step_alone_seconds": None,
        "before_bytes": 1_000_000,
        "peak_bytes": 3_000_000,
        "left": [],
    } | changes


def cell(**rates: list[float]) -> Cell:
    """Runs of ways at these warm rates, one a round; cold ones are a tenth as fast."""
    everybody = ways.ways([1, 4], [2])
    names = {name.replace("_", "-"): of for name, of in rates.items()}
    runs = {
        name: [Run(i, 100, True, told(rate / 10, rate)) for i, rate in enumerate(of)]
        for name, of in names.items()
    }
    return Cell("pil", "JPEG", [way for way in everybody if way.name in names], runs)


def one(verdicts: list[report.Verdict], words: str, where: str) -> report.Verdict:
    (found,) = [each for each in verdicts if words in each.words and where in each.where]
    return found


def test_the_loader_is_judged_over_the_best_median_by_ratios_of_rounds() -> None:
    verdicts = judge(
        cell(
            lmdb=[50, 50, 900], loader_t4=[100, 200, 50], loader=[95, 180, 60], iterable=[500] * 3
        )
    )
    best = one(verdicts, "over the best of them", "warm")
    assert best.where == "pil, warm: Loader, 4 threads"
    assert best.figure == pytest.approx(0.95)
    assert best.ends == pytest.approx((0.9, 1.2))
    assert best.reached
    assert one(verdicts, "the best DataLoader", "warm").where.endswith("IterableDataset")
    assert one(verdicts, "the best DataLoader", "warm").reached is None
    assert one(verdicts, "over the best of them", "cold").figure == pytest.approx(0.95)


@pytest.mark.parametrize(("rate", "reached"), [(80.0, True), (79.0, False)])
def test_more_threads_are_judged_over_one(rate: float, reached: bool) -> None:
    verdicts = judge(cell(loader_t1=[100.0], loader_t4=[rate]))
    assert one(verdicts, "one thread", "warm: 4 threads").reached is reached


def test_a_data_set_of_ours_is_judged_over_py_lmdb() -> None:
    assert one(judge(cell(lmdb=[100.0], dataset=[94.0])), "over py-lmdb", "warm").reached is False


def test_rounds_that_one_of_two_lacks_are_no_ratio() -> None:
    found = cell(lmdb=[100, 100], loader=[100, 100])
    del found.runs["lmdb"][0]
    assert one(judge(found), "over the best of them", "warm").ends == (1.0, 1.0)


def test_a_loader_that_failed_has_no_figure() -> None:
    found = cell(lmdb=[100.0], loader=[])
    found.failed["loader"] = "died"
    verdict = one(judge(found), "over the best of them", "warm")
    assert (verdict.state, verdict.note) == ("no figure", "died")
    assert table(found, "warm").rows[-1][-1] == "died"


def test_something_left_behind_is_missed() -> None:
    found = cell(loader=[100.0], lmdb=[100.0])
    assert one(judge(found), "left", "pil").reached
    found.runs["loader"].append(Run(1, 100, True, told(1, 1, left=["/dev/shm/x"])))
    verdict = one(judge(found), "left", "pil")
    assert (verdict.reached, verdict.note) == (False, "/dev/shm/x")


def test_a_step_is_compared_with_the_step_alone() -> None:
    found = cell(loader=[100.0], lmdb=[100.0])
    found.runs["loader"] = [Run(0, 100, True, told(10, 100, step_alone_seconds=0.04))]
    assert one(judge(found), "step alone", "warm").figure == pytest.approx(0.8)


def test_a_table_has_the_ratios_and_says_what_was_not_cold() -> None:
    found = cell(loader=[100.0], lmdb=[50.0])
    found.runs["lmdb"][0] = Run(0, 100, False, told(5, 50))
    shown = table(found, "cold")
    assert shown.title == "pil, NOT cold: JPEG"
    lines = {row[0]: dict(zip(shown.heads, row, strict=True)) for row in shown.rows}
    line = lines["DataLoader over py-lmdb"]
    assert (line["samples/s"], line["Loader over it"]) == ("5", "2.00")
    assert (line["CPU s/1,000"], line["memory MB"]) == ("2", "2")


# --- what is counted -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ([0, 1, 2], ""),
        ([2, 0, 1], ""),
        ([0, 1], "2 samples"),
        ([0, 1, 1], "1 records are missing"),
    ],
)
def test_an_epoch_hands_out_each_record_once(numbers: list[int], fault: str) -> None:
    account = Account(3)
    images = torch.arange(len(numbers) * 300, dtype=torch.uint8).view(-1, 300)
    assert account.add((images, torch.tensor(numbers))) == len(numbers)
    assert account.fault().startswith(fault)
    assert bool(fault) == bool(account.fault())


def test_a_photo_has_its_number_and_about_the_usual_size() -> None:
    records = photos.records(WORKLOADS["pil"].recipe(1))
    for index, (key, value) in zip(range(5), records, strict=False):
        image, number = by_pil(value)
        assert (key, number) == (b"%08d" % index, index)
        assert tuple(image.shape) == WORKLOADS["pil"].shape
        assert abs(len(value) - photos.BYTES) < 0.1 * photos.BYTES


def test_files_of_nobody_who_lives_are_strays(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tree, "SHARED", tmp_path)
    before = tree.shared_files()
    (tmp_path / "left").write_bytes(b"x")
    with (tmp_path / "held").open("wb"):
        assert tree.strays(before) == [str(tmp_path / "left")]


def test_a_process_that_outlives_its_run_is_found_and_ended() -> None:
    code = (
        "import subprocess, sys, json;"
        "child = [sys.executable, '-c', 'import time; time.sleep(600)'];"
        "started = subprocess.Popen(child, start_new_session=True);"
        "print(json.dumps({'pid': started.pid}))"
    )
    words = [sys.executable, "-c", code]
    program = f"from benchmarks.training import watch; print(watch.watched({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=racing.environment(), capture_output=True, text=True
    )
    assert "process" in done.stdout and "time.sleep(600)" in done.stdout, done.stderr
    assert watch.SECONDS_TO_END < 600


# --- the command -----------------------------------------------------------------------------


def test_ours_and_plain_files_run_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, page = tmp_path / "found.json", tmp_path / "found.html"
    words = ["--data", str(tmp_path), "--mib", "1", "--rounds", "1", "--workers", "1"]
    words += ["--ways", "lmdb,loader,files,webdataset", "--threads", "1"]
    words += ["--workloads", "tensors,pil", "--json", str(found), "--html", str(page)]
    assert run.main(words) in (0, 1), capsys.readouterr()
    told = json.loads(found.read_text())
    names = {"lmdb", "loader", "files"}
    for measured in told["cells"]:
        assert names <= measured["runs"].keys()
        assert not measured["failed"]
        for runs in measured["runs"].values():
            assert len({epoch["checksum"] for epoch in runs[0]["told"]["epochs"]}) == 1
            assert runs[0]["told"]["left"] == []
            assert runs[0]["told"]["peak_bytes"] > runs[0]["told"]["before_bytes"] > 0
    assert {each["words"] for each in told["verdicts"] if each["bound"]} >= {
        "Loader as it comes, over the best of them"
    }
    assert "What must hold" in page.read_text()


def test_a_step_is_trained_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "found.json"
    words = ["--data", str(tmp_path), "--mib", "4", "--rounds", "1", "--step", "--ways", "loader"]
    assert run.main([*words, "--workloads", "tensors", "--json", str(found)]) in (0, 1)
    (measured,) = json.loads(found.read_text())["cells"]
    told = measured["runs"]["loader"][0]["told"]
    assert measured["step_repeats"] >= 1
    assert told["step_alone_seconds"] > 0
    assert all(epoch["steps"] == 2 and epoch["step_seconds"] > 0 for epoch in told["epochs"])


def test_other_bytes_and_a_death_are_failures(tmp_path: Path, monkeypatch: Any) -> None:
    answers = iter([told(10, 100), told(10, 100, epochs=[{"checksum": 2}]), None])

    def ask(module: str, words: list[str], title: str) -> Any:
        if (answer := next(answers)) is None:
            raise racing.processes.RunFailed(f"{title}: died")
        return answer

    monkeypatch.setattr(racing, "ask", ask)
    recipe = WORKLOADS["tensors"].recipe(1)
    made, _ = datasets.ensure(recipe, tmp_path)
    everybody = ways.chosen(ways.ways([1], []), "lmdb,open,loader")
    race = racing.Race(made, WORKLOADS["tensors"], Cell("tensors", "", everybody), 0)
    asked = run.parse([])
    for way in everybody:
        race.run(way, 0, asked, pins=False)
    assert list(race.cell.runs) == ["lmdb"]
    assert race.cell.failed == {"open": "other bytes than the first run's", "loader": "died"}


def test_a_format_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    made, _ = datasets.ensure(WORKLOADS["tensors"].recipe(1), tmp_path)
    folder = forms.folder_of("tars", made)
    folder.with_name(f"{folder.name}.part").mkdir()
    forms.write("tars", made.path, folder)
    assert len(forms.files_of("tars", folder)) == forms.SHARDS
    assert not folder.with_name(f"{folder.name}.part").exists()


def test_nothing_to_measure_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    answer = {"modules": {"cv2": "cv2 is not installed"}, "loader_words": [], "gpu": ""}
    monkeypatch.setattr(run, "ask", lambda *_: answer)
    words = ["--data", str(tmp_path), "--workloads", "cv2", "--ways", "lmdb"]
    assert run.main(words) == command.UNAVAILABLE
