"""Goal: whatever is called in whatever order, on whatever database, ends as with py-lmdb.

Method: tests/support/calls.py, some hundred examples of it, with files that stay in the page cache
and with files that are put out of it; ``make calls`` makes a million calls.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support import cold, long_run
from tests.support.calls import OPERATIONS, ColdMachine, Machine, folder

LIMITS = settings(
    max_examples=long_run.cases(150),
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


COLD_LIMITS = settings(LIMITS, max_examples=long_run.cases(60))


class TestMachine(Machine.TestCase):
    settings = LIMITS


@pytest.mark.more
class TestColdMachine(ColdMachine.TestCase):
    settings = COLD_LIMITS

    def runTest(self) -> None:  # noqa: N802 - the name is of unittest
        why = cold.why_warm(folder())
        if why:
            pytest.skip(why)
        before = counts = dict(OPERATIONS)
        for _ in range(4):  # in one of ten the random calls never meet a step that waits
            super().runTest()
            counts = {what: count - before[what] for what, count in OPERATIONS.items()}
            if counts["waits"]:
                break
        assert counts["left in"] * 10 <= counts["put out"], counts
        assert counts["waits"], counts
