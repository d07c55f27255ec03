"""A short run under ThreadSanitizer; ``make tsan`` runs it for longer, and Python's tests too.

Goal: what threads and processes share in csrc/ is ordered by locks and atomics. Method: many of
them meet at one engine, the pages of one snapshot and one window, and roots exchange rows over an
MPI that is made up (tests/tsan). The random seed is the same every day.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.support import long_run, scripts

PROBE = """
#include <pthread.h>
static void *run(void *x) { return x; }
int main(void) { pthread_t t; return pthread_create(&t, 0, run, 0) || pthread_join(t, 0); }
"""


@pytest.mark.more
def test_no_race_where_threads_forks_windows_and_roots_meet(tmp_path):
    tsan = scripts.load("tsan")
    source, program = tmp_path / "probe.c", tmp_path / "probe"
    source.write_text(PROBE)
    command = ["cc", *tsan.FLAGS, str(source), "-o", str(program), "-pthread"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this C compiler has no ThreadSanitizer")
    if subprocess.run(
        [*tsan.unrandomised(), str(program)], capture_output=True, check=False
    ).returncode:
        pytest.skip("ThreadSanitizer does not run on this machine")
    seed = 20787  # the same every day; the programs draw others by argument
    print(f"seed {seed}")
    good, told = tsan.stress(tmp_path, seed, long_run.cases(2, 1))
    assert good, told[-6000:]
