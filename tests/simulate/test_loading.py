"""Goal: the closed forms of an epoch's reading. Method: step by step, by hand or by hypothesis."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lmdbio.simulate.loading import double_buffer


@given(st.integers(0, 30), st.floats(0, 9), st.floats(0, 9))
def test_two_buffers_take_as_long_as_their_steps(groups: int, read: float, compute: float) -> None:
    filled = [0.0, 0.0]  # when each buffer was used up
    reading = computing = 0.0
    for group in range(groups):
        reading = max(reading, filled[group % 2]) + read
        computing = max(computing, reading) + compute
        filled[group % 2] = computing
    found = double_buffer(groups, read, compute)
    assert found.seconds == pytest.approx(computing)
    assert found.exposed_seconds == pytest.approx(computing - groups * compute, abs=1e-9)
    alone = double_buffer(groups, read, compute, buffers=1)
    assert alone.exposed_seconds == pytest.approx(groups * read)


def test_three_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 2"):
        double_buffer(1, 1, 1, buffers=3)
