"""Goal: the rate at which threads copy memory is measured, kept and read again.

Method: a short measurement of the real memory; no figure is compared, but with what is possible.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lmdbio.machine import calibration
from lmdbio.machine.measured import tier_rate
from lmdbio.tuning.tune import CHUNK_BYTES, measure_memory


@pytest.mark.alone
def test_each_number_of_threads_has_a_rate() -> None:
    made = measure_memory(seconds=0.05)
    most = len(os.sched_getaffinity(0))
    threads = [sample.depth for sample in made.samples]
    assert threads[0] == 1 and threads[-1] == most and threads == sorted(set(threads))
    for sample in made.samples:
        assert sample.requests >= sample.depth and sample.request_bytes == CHUNK_BYTES
        assert 1e8 < sample.rate < 1e13, "more than a disk, less than any machine has"


def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibration.load(calibration.MEMORY).calibration is None
    made = measure_memory(seconds=0.01)
    calibration.store(made)
    assert calibration.load(calibration.MEMORY).calibration == made
    assert tier_rate(made).points[0] == (1, made.samples[0].rate / 2**20)


def test_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="seconds must be positive, not 0"):
        measure_memory(seconds=0)
