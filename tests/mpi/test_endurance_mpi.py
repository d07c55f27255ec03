"""A short run of the soak of Readers; ``make endurance`` runs it for longer.

Goal: a job can make and close Readers, and see them fail, as often as it likes; and whatever
happens to a rank over sockets, the others know. Method: endure.py. The random seed is today's and
is printed, so that every day tries others.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import endure
import launch
import pytest

from tests.support import long_run

pytestmark = pytest.mark.mpi


@pytest.mark.more
def test_readers_made_closed_and_failed_leave_nothing_behind(
    mpi: launch.Mpi, tmp_path: Path
) -> None:
    seed = int(time.time()) // 86400
    asked = argparse.Namespace(cycles=6, failures=3, ranks=4, seed=seed, communicators=0)
    report = endure.run(mpi, asked, tmp_path)
    assert "said" not in report, f"seed {seed}: {report['said']}"
    assert (report["cycles"], report["failures"]) == (6, 3)
    assert not endure.leaks(report), f"seed {seed}"


@pytest.mark.more
def test_a_rank_over_sockets_that_is_struck_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    seed = int(time.time()) // 86400
    endure.write(tmp_path)
    kinds = [] if long_run.IS_LONG else ["killed", "interrupted", "exited at once", "stopped"]
    asked = argparse.Namespace(struck=long_run.cases(20, 1), stop=1, seed=seed, kinds=kinds)
    wrong, said = endure.strike(asked, tmp_path)
    assert not wrong, said
