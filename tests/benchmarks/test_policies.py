"""Goal: every policy that a Reader runs is measured beside its simulation, and drawn so.

Method: lanes as values; a made-up report with known answers; the command on a set of a few
megabytes, whose counts are the simulated ones.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cluster import policies, simulated, sweep
from benchmarks.cluster.sweep import POLICIES, policy_lanes
from benchmarks.pfs import pfs
from lmdbio.placement.cache import Cache
from lmdbio.placement.policy import READERS
from tests.benchmarks.test_cluster import SECONDS_MAX, data, nothing_left, places, report, start

__all__ = ["data", "places"]  # fixtures


def test_each_policy_is_a_lane_in_the_words_of_its_reader() -> None:
    assert set(POLICIES) == set(READERS) - {"naive"}
    lanes = {one.name: one for one in policy_lanes(POLICIES, "memory=1G,disk=/d,disk_bytes=2G")}
    assert {one.policy for one in lanes.values()} == set(POLICIES)
    caches = {name: Cache.parse(one.cache) for name, one in lanes.items() if one.cache}
    assert caches["lmdbio"] == Cache("1G", "/d", "2G")
    assert caches["deepio_ordered"] == Cache("1G", warm="preload")
    assert not lanes["staging_pool"].cache and lanes["staging_pool"].shuffle == "global"
    assert lanes["deepio_opportunistic"].shuffle == "window"
    assert lanes["locality_aware"].assignment == "local"
    (local,) = sweep.mode_lanes(("local",), ())
    assert (local.cache, local.assignment) == (sweep.CACHE, "local")


def test_the_modelled_store_serves_its_servers_and_its_links() -> None:
    found = simulated.environment_of(pfs.constants(), 4, 10.0, 2)
    mib = 1e6 / 2**20
    rates = [found.file_system.at(nodes) for nodes in (1, 2, 3, 4)]
    assert rates == pytest.approx([150 * mib, 300 * mib, 400 * mib, 400 * mib])
    assert found.file_request == pytest.approx(0.5e-3) and len(found.tiers) == 2


def rank(own: int, file: int, *, seconds: float, late: int = 0) -> dict[str, Any]:
    return {
        "sources": {"0": {"file": [file, 8 * file]}, "1": {"own": [own, 0], "disk": [1, 8]}},
        "epochs": [[seconds, 0.5], [2 * seconds, 0.75]],
        "open_s": 0.5 * seconds,
        "stats": {"late_records": late, "gone_records": 0},
    }


def run(seconds: float, *, late: int = 0, init: float = 0.0) -> dict[str, Any]:
    told = [{"own": 0, "peer": 0, "file": 30}, {"own": 30, "peer": 0, "file": 0}]
    return {
        "ranks": [rank(9, 10, seconds=seconds), rank(19, 20 + late, seconds=1.0, late=late)],
        "simulated": {
            "init_seconds": init, "epochs": [[3.0, 1.0], [2.0, 0.0]], "records": told,
            "bytes": told,
        },
    }  # fmt: skip


def report_of(*runs: dict[str, Any], policy: str = "lmdbio") -> dict[str, Any]:
    lane = {"lane": {"name": "lmdbio", "policy": policy}, "runs": list(runs)}
    return {"cells": [{"cell": {"dataset": "3k"}, "lanes": [lane]}]}


def test_a_policy_is_the_median_of_its_runs_beside_what_was_simulated() -> None:
    (found,) = policies.read(report_of(run(2.0), run(4.0), run(6.0)), "")
    assert found.agrees and not found.late
    assert [one.name for one in found.epochs] == ["epoch 0", "epoch 1"]
    first, second = found.epochs
    assert (first.seconds, first.waiting, first.simulated) == (4.0, 0.5, (3.0, 1.0))
    assert (second.seconds, second.waiting) == (4.0, 0.25)
    assert first.records == first.simulated_records == (0, 0, 30)
    assert second.records == (30, 0, 0), "a root's disk is its own"
    (warm,) = policies.read(report_of(run(2.0, init=1.5)), "3k")
    assert warm.epochs[0].name == "before"
    assert (warm.epochs[0].seconds, warm.epochs[0].simulated[0]) == (1.0, 1.5)
    assert not policies.read(report_of(run(2.0)), "110k")
    assert not policies.read(report_of(run(2.0), policy=""), "")


def test_a_picture_has_every_epoch_and_the_status_says_whether_counts_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "out.json", tmp_path / "out.svg"

    def drawn(told: dict[str, Any]) -> int:
        file.write_text(json.dumps(told))
        return policies.main([str(file), "--svg", str(picture)])

    assert drawn(report_of(run(2.0, init=1.0))) == 0
    words = ["".join(one.itertext()) for one in xml.etree.ElementTree.parse(picture).iter()]
    assert {"lmdbio", "before", "epoch 0", "epoch 1", "another root", "simulated"} <= set(words)
    assert drawn(report_of(run(2.0, late=3), run(2.0))) == 0, "the run without late roots counts"
    assert drawn(report_of(run(2.0, late=3))) == 0
    assert "3 rows of late roots" in capsys.readouterr().out
    wrong = run(2.0)
    wrong["simulated"]["records"][0]["file"] = 31
    assert drawn(report_of(wrong)) == 1
    assert "other counts than simulated: lmdbio" in capsys.readouterr().err
    assert drawn({"cells": []}) == 2


@pytest.mark.mpi
def test_measured_policies_have_the_counts_that_were_simulated(
    places: Path, data: Path, tmp_path: Path
) -> None:
    file, picture = tmp_path / "out.json", tmp_path / "out.svg"
    words = "--policies", "staging_pool,locality_aware,lmdbio", "--epochs", "2", "--rounds", "1"
    process = start(
        places, data, *words, "--cache", "memory=1M", "--no-verify", "--json", str(file)
    )
    out, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, out
    nothing_left(places)
    found = {one.name: one for one in policies.read(report(file), "3k")}
    assert list(found) == ["staging_pool", "locality_aware", "lmdbio"]
    assert all(one.agrees or one.late for one in found.values())
    part = found["lmdbio"].epochs[1].records
    assert all(part), "a cache of half the file has records from everywhere"
    assert policies.main([str(file), "--svg", str(picture)]) == 0
