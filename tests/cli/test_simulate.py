"""Goal: `lmdbio simulate` answers what would help a job, in words and as JSON.

Method: the command itself, over scenarios that take milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmdbio.machine import calibration, storage
from lmdbio.simulate import POLICIES
from tests.cli.simulating import call, told
from tests.support import databases


def test_json_has_all_policies_with_their_seconds() -> None:
    policies = told()["policies"]
    assert list(policies) == [policy.name for policy in POLICIES]
    for name, one in policies.items():
        assert set(one) == {
            "seconds", "bound_seconds", "init_seconds", "stall_seconds", "counts", "supported",
            "reason",
        }, name  # fmt: skip
        assert one["supported"] and one["seconds"] >= policies["lower_bound"]["seconds"] * (
            1 - 1e-9
        )


def test_a_policy_that_cannot_says_why() -> None:
    one = told("--scenario", 3, "--policy", "lbann-dynamic")["policies"]["lbann_dynamic"]
    assert one["seconds"] is None and not one["supported"] and "exceed" in one["reason"]
    assert "lbann_dynamic: it holds" in call("--scenario", 3, "--policy", "lbann_dynamic").output


def test_what_is_shared_gives_no_more_than_it_has_if_asked_so() -> None:
    """10,000 records of 0.027 M in 10 epochs, of a file system that gives 146 M a second."""
    seconds = {
        name: told("--semantics", name, "--policy", "staging_pool")["policies"]["staging_pool"][
            "seconds"
        ]
        for name in ("authors", "physical")
    }
    assert seconds["authors"] < 10 * 270 / 146 < seconds["physical"]
    words = " ".join(call("--help").output.split())
    assert all(f"{name}: " in words for name in seconds)


def test_several_values_give_a_run_each() -> None:
    runs = told("--policy", "hdmlp,naive", "--set", "tier1.capacity=0,1G", "--set", "nodes=2,4")[
        "runs"
    ]
    assert [run["set"] for run in runs] == [
        {"tier1.capacity": room, "nodes": nodes} for room in ("0", "1G") for nodes in ("2", "4")
    ]
    assert all(list(run["policies"]) == ["hdmlp", "naive"] for run in runs)


@pytest.mark.more
def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'compute = "400M"\nfile_system.rate = {1 = 66, 8 = 326}\n'
        '[tier1]\ncapacity = "64G"\nrate = "20G"\n'
    )
    mine = told(file)["policies"]["lower_bound"]["seconds"]
    assert mine == pytest.approx(told()["policies"]["lower_bound"]["seconds"] / 4)
    out = tmp_path / "out.json"
    result = call(file, "--json", out)
    assert "lower_bound" in result.output and json.loads(out.read_text())["policies"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--set", "tier1.capacity"], 2, "is not KEY=VALUE"),
        (["--set", "tier1.capacity=1G,"], 2, "is not KEY=VALUE"),
        (["--set", "seed=1", "--set", "seed=2"], 2, "the same key twice"),
        (["--policy", "fastest"], 2, "no policy is called 'fastest'"),
        (["--scenario", "5"], 2, "1<=x<=4"),
    ],
)
def test_a_wrong_use_is_told(words: list[str], status: int, text: str) -> None:
    result = call(*words)
    assert result.exit_code == status and text in result.output


def test_what_makes_no_sense_names_the_key_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    for text, words in (
        ("nodes = [", "cluster.toml: "),
        ("[tier1]\nspeed = 3", "cluster.toml: tier1.speed"),
        ("[tier1]", "cluster.toml: tier1: the table is empty"),
        ("x = " + "[" * 3000, "cluster.toml: "),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            raise call(file).exception or AssertionError
    for value, words in (("x", "nodes: 'x'"), ("3", "100 records cannot be shared evenly by 3")):
        with pytest.raises(ValueError, match=words):
            raise call("--set", f"nodes={value}").exception or AssertionError


def test_clusters_of_ones_own_run_readers_and_scenarios_are_the_thesis(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("nodes = 4")
    words = "--policy", "staging_pool"
    assert "cluster.toml: 10,000 records, 4 ranks on 4 nodes" in call(file, *words).output
    assert "HDMLP thesis, semantics authors" in call(*words).output
    assert told(file, *words) == told(*words, "--semantics", "physical")
    assert told(file, *words, "--semantics", "authors") == told(*words)
    three = "--set", "tier3.capacity=1G", "--set", "tier3.rate=1G"
    assert "of 3 tiers --semantics authors has a model" in str(call(file, *three).exception)


def test_policies_are_simulated_with_whatever_tiers_a_cluster_has(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("nodes = 2\nsamples = 400\nsize = 1\ndeviation = 0\nepochs = 2\nbatch = 40")
    words = file, "--policy", "lmdbio,hdmlp"
    for memory, disk, held in ((0, 0, None), (100, 0, 200), (0, 100, 200), (300, 0, 400)):
        tiers = "--set", f"tier1.capacity={memory}", "--set", f"tier2.capacity={disk}"
        found = told(*words, *tiers)["policies"]
        if held is None:
            assert "no tier has room" in found["lmdbio"]["reason"]
            assert [epoch["file"] for epoch in found["hdmlp"]["counts"]] == [400, 400]
            continue
        assert [epoch["file"] for epoch in found["lmdbio"]["counts"]] == [400, 400 - held]
    one = told(file, "--epochs", 3, "--shuffle", "global", "--cache", "memory=1G")
    assert [epoch["file"] for epoch in one["policies"]["reader"]["counts"]] == [400, 0, 0]
    assert one["job"]["batch"] == 40


def test_a_data_set_has_its_own_sizes(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%04d" % i, bytes(1000 + 100 * i)) for i in range(40)))
    env.close()
    words = "--set", "batch=8", "--set", "epochs=2", "--set", "nodes=1"
    (tmp_path / "one.toml").write_text("compute = 10\nsamples = 3\nsize = 1\ndeviation = 0.5")
    found = told(tmp_path / "env", tmp_path / "one.toml", *words)["policies"]["lower_bound"]
    total = 2 * sum(1000 + 100 * i for i in range(40)) / 2**20
    assert found["seconds"] == pytest.approx(total / 10)
    with pytest.raises(ValueError, match="size: the records are those of a data set"):
        raise call(tmp_path / "env", "--set", "size=1").exception or AssertionError
    with pytest.raises(OSError, match="absent"):
        raise call(tmp_path / "absent").exception or AssertionError


def test_nodes_and_tiers_come_from_options(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%04d" % i, databases.value(i, 20_000)) for i in range(400)))
    env.close()
    words = tmp_path / "env", "--nodes", 2, "--ranks", 8, "--set", "batch=20", "--set", "epochs=3"
    found = told(*words, "--cache", "memory=8M", "--policy", "lmdbio")["policies"]["lmdbio"]
    epochs = found["counts"]
    assert [epoch["file"] for epoch in epochs] == [400, 0, 0]
    assert all(sum(epoch.values()) == 400 for epoch in epochs)
    less = told(*words, "--cache", "memory=2M", "--policy", "lmdbio")["policies"]["lmdbio"]
    held = 2 * ((2 << 20) // 20_480)  # pages of the file
    first, *later = [epoch["file"] for epoch in less["counts"]]
    assert first == 400 and all(400 - held <= count <= 404 - held for count in later)
    wrong = call(*words[:3], "--ranks", 1)
    assert "1 ranks cannot run on 2 nodes" in str(wrong.exception)


def test_rates_that_were_measured_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%04d" % i, databases.value(i, 20_000)) for i in range(400)))
    env.close()
    words = tmp_path / "env", "--nodes", 1, "--policy", "naive", "--set", "batch=20"
    words = *words, "--cache", f"disk={tmp_path},disk_bytes=1M"
    unknown = call(*words)
    assert "file system: not measured" in unknown.output
    assert f"lmdbio tune PATH --cache-dir {tmp_path}" in unknown.output
    folder = calibration.identity(storage.inspect_folder(tmp_path))
    sample = calibration.Sample("direct", "random", 128 << 10, 2, 800, 1.0)
    calibration.store(calibration.Calibration(folder, 1.0, (sample,)))
    known = call(*words)
    assert "as lmdbio tune measured, M a second by nodes 1: 100" in known.output
    assert "disk: as lmdbio tune measured, 100 M a second" in known.output
    both = *words[:-1], f"{words[-1]},memory=1M"
    assert "memory: not measured (lmdbio tune PATH --cache-dir FOLDER does)" in call(*both).output
    copies = calibration.Sample("memory", "random", 1 << 20, 1, 5000, 1.0)
    calibration.store(calibration.Calibration(calibration.MEMORY, 1.0, (copies,)))
    assert "memory: as lmdbio tune measured, 5,000 M a second" in call(*both).output
    assert "file system" not in call(*words, "--set", "file_system.rate=70").output
    cluster = tmp_path / "cluster.toml"
    cluster.write_text("file_system.rate = 70")
    assert "file system" not in call(cluster, *words).output
    placed = call(*words[:-1], "memory=1M,placement=first")
    assert "placement and warm are the policies'" in str(placed.exception)


def test_a_wrong_case_is_told_before_any_is_simulated(tmp_path: Path) -> None:
    result = call("--set", "nodes=4,3", "--json", tmp_path / "out.json")
    assert "cannot be shared evenly by 3" in str(result.exception) and not result.output
    with pytest.raises(OSError, match="absent"):
        raise call("--json", tmp_path / "absent" / "out.json").exception or AssertionError
    with pytest.raises(OSError, match="cannot be written"):
        raise call("--html", tmp_path).exception or AssertionError


def test_a_page_shows_policies_stalls_and_sources(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert (
        str(page)
        in call("--scenario", 3, "--policy", "naive,lbann_dynamic", "--html", page).output
    )
    text = page.read_text(encoding="utf-8")
    for title in ("Seconds of the training", "Stall by iteration", "From the shared file system"):
        assert f"<h2>{title}" in text
    assert "exceed the 204,800 M" in text, "a policy that cannot says why"
    call("--policy", "hdmlp", "--set", "tier1.capacity=0,1G", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "Seconds by setting" in text and text.count('class="heat"') == 2
    nothing = tmp_path / "nothing.html"
    call("--scenario", 3, "--policy", "lbann_dynamic", "--html", nothing)
    assert "Simulated" in nothing.read_text(encoding="utf-8")
