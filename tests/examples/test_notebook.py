"""The notebook runs from its first cell to its last, in an empty folder, without a warning.

Goal: its loss falls, and what it resumes is what it left. Method: its cells as one program, which
ends with what only a notebook shows: the card of the data set.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    """Return the cells of a kind."""
    found = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


@pytest.mark.more
def test_every_cell_runs_and_the_training_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the notebook trains with PyTorch")
    code = ["".join(cell["source"]) for cell in cells("code")]
    program = "\n".join([*code, "print(records._repr_html_())"])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    losses = re.findall(r"^epoch \d: loss (\d\.\d+) to (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert len(losses) == 2 and float(losses[1][1]) < float(losses[0][0]) / 2
    assert "10 batches before, 30 after" in done.stdout
    assert "2,000" in done.stdout.partition("30 after")[2], "the card of the data set"


def test_no_output_is_stored_and_every_guide_it_names_is_there() -> None:
    assert not [cell for cell in cells("code") if cell["outputs"] or cell["execution_count"]]
    text = "".join(line for cell in cells("markdown") for line in cell["source"])
    named = re.findall(r"`(docs/[^`]+)`", text)
    assert len(named) >= 5 and all((ROOT / name).is_file() for name in named)
