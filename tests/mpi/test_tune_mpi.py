"""Goal: the ranks of a job measure turns together, and every Reader of the job takes the result.

Method: a program runs ``lmdbio tune`` and Readers on four ranks that play two nodes, each rank
with a cache folder of its own. The figures are this machine's and are not judged.
"""

from __future__ import annotations

from pathlib import Path

import data
import launch
import pytest

from lmdbio.convert.convert import convert

pytestmark = [pytest.mark.mpi, pytest.mark.more]


def test_ranks_measure_turns_together_and_readers_take_the_result(
    mpi: launch.Mpi, tmp_path: Path
) -> None:
    if mpi.name == "sockets":
        pytest.skip("lmdbio tune finds ranks of a launcher: tests/torch/test_torchrun.py")
    values = [data.fixed_value(i) for i in range(1200)]
    path, plain = data.write(tmp_path / "db", values), data.write(tmp_path / "plain", values)
    convert(path)
    out = mpi.run(4, "tuning.py", path, plain, tmp_path / "caches")
    assert out.count(" s\n") == 6
