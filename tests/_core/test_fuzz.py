"""A short run of the fuzzer; ``make fuzz`` runs it for longer.

Goal: no mutated database or sidecar block makes the C core crash, hang or take much memory.
Method: tests/fuzz, built with AddressSanitizer and UndefinedBehaviorSanitizer. One seed,
so that a change and not the day decides; ``make fuzz`` draws others.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.support import long_run, scripts


@pytest.mark.more
def test_mutated_files_never_crash_hang_or_grow(tmp_path):
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    sanitizers = ["cc", "-fsanitize=address,undefined", str(probe), "-o", str(tmp_path / "probe")]
    if subprocess.run(sanitizers, capture_output=True).returncode:
        pytest.skip("this C compiler has no sanitizers")
    seed = 20787  # the same every day; tests/fuzz/run.py draws others
    done = scripts.load("fuzz").run(long_run.cases(3000), seed)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}\n{done.stderr[-4000:]}"
    assert "no fault" in done.stdout
