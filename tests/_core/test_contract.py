"""Functions assert what others have promised them, in the builds of sanitizers alone.

Goal: a broken promise ends the process with the place and the condition, in the builds of
`make asan` and `make tsan`; a release evaluates nothing. Method: programs that break one, each
built with the flags of these builds and with those of a release.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, scripts

#: Takes back a block that ranks have seen.
BREAKS_WINDOW = """
#include <stddef.h>
#include "window.h"
static _Alignas(64) char control[8192];
int main(void)
{
    if (lio_window_format(control, 1, 1, NULL) != LIO_OK)
        return 1;
    lio_window_publish(control, 0, 2);
    lio_window_publish(control, 0, 1);
    return 0;
}
"""
#: Forgets what was said of a piece that is held.
BREAKS_PIECE = """
#include "engine_pieces.h"
int main(void)
{
    uint32_t held = lio_piece_said(0, true, 1);
    return lio_piece_state_of(lio_piece_forgotten(held)) == LIO_PIECE_HELD ? 0 : 1;
}
"""
CASES = (
    ("window.c", "published >=", BREAKS_WINDOW),
    ("engine_pieces.h", "lio_piece_state_of(before) == LIO_PIECE_MISSING", BREAKS_PIECE),
)


@pytest.fixture(autouse=True, scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where there is no C compiler, or none that has the fuzzer's sanitizers."""
    probe = tmp_path_factory.mktemp("probe") / "probe"
    probe.with_suffix(".c").write_text("int main(void) { return 0; }\n")
    command = ["cc", *scripts.load("fuzz").FLAGS, str(probe.with_suffix(".c")), "-o", str(probe)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this C compiler has no sanitizers")


def run(folder: Path, source: str, program: str, flags: tuple[str, ...]) -> tuple[int, str]:
    """Return the exit status of a program over a file of ``csrc/``, and what it says."""
    (folder / "program.c").write_text(program)
    made = str(folder / "program")
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", *flags, f"-I{ROOT / 'csrc'}", "-o", made]
    files = [name for name in (source, "status.c") if name.endswith(".c")]
    sources = [str(folder / "program.c"), *(str(ROOT / "csrc" / name) for name in files)]
    subprocess.run([*command, *sources], check=True)
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("build", ["fuzz", "tsan"])
@pytest.mark.parametrize(("source", "condition", "program"), CASES)
def test_a_broken_promise_ends_what_sanitizers_run(tmp_path, build, source, condition, program):
    flags = tuple(scripts.load(build).FLAGS)
    if build == "tsan":  # it wants memory at places that randomisation may take
        flags = tuple(flag for flag in flags if not flag.startswith("-fsanitize"))
    status, said = run(tmp_path, source, program, flags)
    assert status == -6, said
    assert f"csrc/{source}:" in said
    assert f"a promise is broken: {condition}" in said


@pytest.mark.parametrize(("source", "condition", "program"), CASES)
def test_a_release_asserts_nothing(tmp_path, source, condition, program):
    assert run(tmp_path, source, program, ("-O2",)) == (0, ""), condition
