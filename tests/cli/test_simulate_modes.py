"""Goal: `lmdbio simulate --mode` tells how each mode would read, of a preset or of one's own file.

Method: the command itself, over jobs that take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmdbio.cli import simulate_run
from lmdbio.machine import calibration, storage
from lmdbio.planning.mode import NAMED
from tests.cli.simulating import call, told
from tests.support import databases

SMALL = "--set", "samples=4096", "--set", "batch=256", "--set", "iterations=16"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """400 records of 20,000 bytes, whose file system nobody has measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = databases.open_writable(tmp_path / "env", 1)
    databases.write(made, ((b"%04d" % i, databases.value(i, 20_000)) for i in range(400)))
    made.close()
    return tmp_path / "env"


def test_json_has_all_modes() -> None:
    modes = told("--mode", "all", *SMALL)["modes"]
    assert list(modes) == list(NAMED)
    for one in modes.values():
        assert one["supported"] and one["seconds"] > 0 and one["reason"] is None
        assert one["needed_bytes"] == 4096 * 4096 <= one["bytes"]


def test_a_table_has_the_modes_beside_lmdb() -> None:
    text = call("--mode", "lmdb,stag", *SMALL).output
    assert "workload cifar10-large, 4,608 ranks on 128 nodes" in text and "store: bebop" in text
    lmdb, stag = (line for line in text.splitlines() if line.startswith("LM"))
    assert " 1.00 " in lmdb and lmdb.endswith("memory")
    assert stag.startswith("LMM-DIO-PROV-COAL-STAG ") and "moves" not in stag.split()
    modes = told("--mode", "lmdb,stag", *SMALL)["modes"]
    gain = modes["LMDB"]["seconds"] / modes["LMM-DIO-PROV-COAL-STAG"]["seconds"]
    assert gain > 2 and f" {gain:.2f} " in stag


def test_the_bounds_of_modes_stand_below_their_title() -> None:
    lines = call("--mode", "all", *SMALL).output.splitlines()
    title = next(line for line in lines if line.startswith("mode "))
    at = title.index(" bound")
    bounds = [line[at:] for line in lines if line.startswith("LM")]
    assert len(bounds) == len(NAMED)
    assert all(text[0] == " " and text[1].isalpha() for text in bounds), bounds


def test_progress_counts_modes_or_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    units = []

    @contextmanager
    def bar(_: str) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda _done, _total, unit: units.append(unit)

    monkeypatch.setattr(simulate_run, "bar", bar)
    call("--mode", "lmdb,stag", *SMALL)
    call("--policy", "naive", "--set", "epochs=1")
    assert units == ["modes", "modes", "policies"]


def test_ranks_and_nodes_come_from_options_and_settings() -> None:
    runs = told("--mode", "prov", *SMALL, "--set", "ranks=8,16", "--nodes", 4, "--ranks", 16)
    assert [run["modes"]["LMM-DIO-PROV"]["roots"] for run in runs["runs"]] == [2, 4]
    assert [run["set"]["ranks"] for run in runs["runs"]] == ["8", "16"]
    assert told("--mode", "prov", *SMALL, "--nodes", 3)["modes"]["LMM-DIO-PROV"]["roots"] == 3
    for ranks, nodes, words in ((3, 4, "1 on each are 3 nodes"), (10, 6, "2 on each are 5 nodes")):
        wrong = call("--mode", "prov", "--nodes", nodes, "--ranks", ranks)
        assert f"{ranks} ranks cannot run on {nodes} nodes: {words}" in str(wrong.exception)


def test_a_mode_that_cannot_says_why() -> None:
    words = "--mode", "prov", *SMALL, "--set", "buffer=4K"
    one = told(*words)["modes"]["LMM-DIO-PROV"]
    assert one["seconds"] is None and not one["supported"]
    assert "LMM-DIO-PROV: a block of k=1 takes about 8,192 bytes of a root" in call(*words).output


def test_a_file_of_values_is_read(tmp_path: Path) -> None:
    file = tmp_path / "store.toml"
    file.write_text('iterations = 4\nbatch = 64\nsamples = 4096\nserver_rate = "1G"\nranks = 4\n')
    one = told("--mode", "prov", file)["modes"]["LMM-DIO-PROV"]
    assert (one["needed_bytes"], one["roots"]) == (4 * 64 * 4096, 1)
    file.write_text("speed = 3")
    with pytest.raises(ValueError, match=r"store.toml: speed: there is no such key"):
        raise call("--mode", "prov", file).exception or AssertionError


def test_all_stands_for_every_mode_beside_others() -> None:
    assert list(told("--mode", "prov,all", *SMALL)["modes"]) == list(NAMED)
    assert next(iter(told("--mode", "LMM-DM,STAG", *SMALL)["modes"])) == "LMM-DM"


def test_json_says_what_was_simulated(env: Path) -> None:
    found = told("--mode", "prov", env, "--set", "batch=40", "--store", "model")
    assert found["workload"]["count"] == 400 and found["workload"]["lengths"] is None
    assert found["store"]["servers"] == 4 and found["set"] == {"batch": "40"}


def test_a_data_set_counts_more_than_the_records_of_a_file_of_values(env: Path) -> None:
    file = env.parent / "job.toml"
    file.write_text('samples = 7\nsize = "1M"\nserver_rate = "1G"\nbatch = 40\n')
    result = call("--mode", "prov", file, env, "--store", "bebop")
    assert result.exit_code == 0 and "store: bebop, but for values of your own" in result.output
    found = told("--mode", "prov", file, env)["modes"]["LMM-DIO-PROV"]
    assert found["needed_bytes"] == 400 * 5 * 4096


def test_a_data_set_of_ones_own_is_read_once(env: Path) -> None:
    result = call("--mode", "prov,stag", env, "--nodes", 2, "--ranks", 8, "--set", "batch=40")
    assert f"store: bebop; its own is not measured (lmdbio tune {env} does)" in result.output
    found = told("--mode", "prov", env, "--ranks", 8, "--set", "batch=40")["modes"]["LMM-DIO-PROV"]
    assert found["needed_bytes"] == 400 * 5 * 4096
    with pytest.raises(ValueError, match="size: the records are those of a data set"):
        raise call("--mode", "prov", env, "--set", "size=1").exception or AssertionError


def test_a_store_that_was_measured_is_taken(env: Path) -> None:
    mib = 1 << 20
    identity = calibration.identity(storage.inspect_folder(env.parent))
    samples = (
        calibration.Sample("direct", "stream", mib, 8, 100, 1.0),
        calibration.Sample("direct", "stream", mib, 1, 50, 1.0),
        calibration.Sample("direct", "random", mib, 32, 25, 1.0),
    )
    rates = calibration.TokenSample(0, (400.0 * mib,))
    job = calibration.Staggering(8, 8, "blocked", 1.0, (rates,))
    calibration.store(calibration.Calibration(identity, 1.0, samples, (job,)))
    words = "--mode", "prov", env, "--set", "batch=400"
    known = call(*words)
    assert "store: as lmdbio tune measured, M a second: 100 of a node, 400 of all" in known.output
    assert "store: bebop\n" in call(*words, "--store", "bebop").output
    one = told(*words)["modes"]["LMM-DIO-PROV"]
    # Eight requests at once: one alone takes 10 ms more than its bytes.
    assert one["seconds"] == pytest.approx(400 * 5 * 4096 / (100 * mib) + 0.01)
    # A MiB at random took 40 ms, of which its bytes are 2.5 at the rate of all.
    store = told(*words)["store"]
    assert store["out_of_order_seconds"] == pytest.approx(1 / 25 - 1 / 400)
    assert store["server_rate"] == 400.0 * mib and store["link_rate"] == 100.0 * mib


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mode", "all", "--policy", "naive"], "--policy is of policies"),
        (["--mode", "all", "--scenario", "1"], "--scenario is of policies"),
        (["--mode", "all", "--cache", "memory=1G"], "--cache is of policies"),
        (["--store", "model"], "--store is of modes: it needs --mode"),
        (["--workload", "imagenet-large"], "--workload is of modes"),
        (["--mode", "fastest"], "no mode is called 'fastest'; known: all, lmdb, lmm"),
        (["--mode", "auto"], "no mode is called 'auto'; known: all, lmdb, lmm"),
        (["a", "b"], "a and b are two data sets"),
        (["--mode", "all", "--workload", "imagenet-large", "a"], "--workload and a are two data"),
        (["--mode", "all", "--store", "lustre"], "'lustre' is not one of"),
    ],
)
def test_a_wrong_use_is_told(words: list[str], text: str) -> None:
    result = call(*words)
    assert result.exit_code == 2 and text in result.output


def test_a_page_draws_modes_over_what_is_varied(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call("--mode", "all", *SMALL, "--set", "ranks=36,72", "--html", page)
    text = page.read_text(encoding="utf-8")
    for title in (
        "Seconds of the reading, by ranks",
        "Seconds by setting",
        "Seconds of the reading: samples=4096, batch=256, iterations=16, ranks=36",
    ):
        assert f"<h2>{title}" in text, title
