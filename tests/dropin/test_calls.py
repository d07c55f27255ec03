"""Goal: whatever is called in whatever order, on whatever database, ends as with py-lmdb.

Method: tests/support/calls.py, some hundred examples of it; ``make calls`` makes a million calls.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.calls import Machine

TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
