"""Program: ``lmdbio tune`` by all ranks, and Readers that do what it found.

Arguments: a data set of some MiB with a sidecar, one without, a folder for caches. Four ranks on
two nodes; one round of measuring is enough.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpi4py import MPI

from lmdbio import share
from lmdbio.cli import main
from lmdbio.machine import calibration
from lmdbio.machine.calibration import Calibration, Staggering, TokenSample
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader
from lmdbio.tuning import stagger
from lmdbio.tuning.job import MESSAGES_BYTES

COMM = MPI.COMM_WORLD
DATA, PLAIN, CACHES = sys.argv[1:]
MIB = 2**20


def tune(*words: str) -> tuple[int, str]:
    """The command: its status, and what it said."""
    said = io.StringIO()
    sys.argv = ["lmdbio", "tune", *words]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
    raise AssertionError("a command exits")


def tuned(path: str, *words: str) -> dict[str, Any]:
    """Return the first rank's answer; the others say nothing."""
    status, said = tune(path, "--seconds", "0.05", "--json", *words)
    assert status == 0, said
    assert COMM.rank == 0 or not said, said
    answer: dict[str, Any] = COMM.bcast(json.loads(said) if said else None)
    return answer


def kept_here() -> list[Calibration]:
    """Return the calibrations in this rank's folder."""
    paths = Path(os.environ["XDG_CACHE_HOME"]).glob("lmdbio/tuned/*.json")
    stored = (calibration.load(json.loads(path.read_text())["identity"]) for path in paths)
    return [one.calibration for one in stored if one.calibration is not None]


def all_numbers_of_tokens_are_measured_and_kept() -> None:
    turns = tuned(DATA)["turns"]
    assert not turns["reason"]
    for job, assignment in zip(turns["staggerings"], ("strided", "blocked"), strict=True):
        assert (job["nodes"], job["roots"], job["assignment"]) == (2, 2, assignment)
        assert [sample["tokens"] for sample in job["samples"]] == [1, 0]
        assert all(min(sample["rates"]) > 0 for sample in job["samples"])
        assert len({len(sample["rates"]) for sample in job["samples"]}) == 1, "one as the other"
    for assignment, choice in zip(("strided", "blocked"), turns["choices"], strict=True):
        with Reader(DATA, 64, comm=COMM, mode="stag", assignment=assignment, iterations=1) as rdr:
            assert rdr.mode.tokens == choice["stag"]
            assert rdr.turns.origin == "tune"


def rates_between_nodes_are_measured_and_kept() -> None:
    told = tuned(DATA)["network"]["mib_per_second"]
    assert [int(size) for size in told] == list(MESSAGES_BYTES)
    assert min(told.values()) > 0
    kept = calibration.load(calibration.NETWORK).calibration
    assert (kept is not None) == (COMM.rank == 0)
    if kept is not None:
        assert [sample.rate / MIB for sample in kept.samples] == list(told.values())
        assert {sample.depth for sample in kept.samples} == {2}


def nodes_that_read_at_once_are_measured_and_kept() -> None:
    told = tuned(DATA)["readers"]
    assert [(one["readers"], one["pattern"]) for one in told] == [(2, "stream"), (2, "random")]
    assert all(one["mib_per_second"] > 0 and one["requests"] >= 2 for one in told)
    if COMM.rank == 0:
        kept = next(one for one in kept_here() if one.shared)
        assert [one.readers for one in kept.shared] == [2, 2]


def the_first_ranks_word_counts_for_all() -> None:
    """The others have measured something else, or nothing."""
    if COMM.rank < 2:
        found = kept_here()
        assert len(found) == (2 if COMM.rank == 0 else 0)
    if COMM.rank == 0:
        kept = next(one for one in found if one.staggerings)
        samples = (TokenSample(1, (50.0 * MIB,)), TokenSample(0, (100.0 * MIB,)))
        job = Staggering(2, 2, "strided", 1.0, samples)
        calibration.store(replace(kept, staggerings=(job,)))
    COMM.barrier()
    for mode, tokens in (("stag", 0), (replace(Mode.named("stag"), tokens=1), 1), ("coal", 0)):
        with Reader(DATA, 64, comm=COMM, mode=mode, iterations=2) as rdr:
            assert COMM.allgather(rdr.mode.tokens) == [tokens] * 4, rdr.turns
            assert (rdr.turns.origin == "tune") == (mode == "stag")
            assert sum(len(batch) for batch in rdr) == 32


def what_jobs_measured_stays_where_others_measure_again() -> None:
    os.environ["LMDBIO_RANKS_PER_NODE"] = "4"
    found = tuned(DATA)
    turns = found["turns"]
    assert "one node" in turns["reason"] and not turns["staggerings"]
    assert "network" not in found
    os.environ["LMDBIO_RANKS_PER_NODE"] = "2"
    with Reader(DATA, 64, comm=COMM, mode="stag", iterations=1) as rdr:
        assert (rdr.mode.tokens, rdr.turns.origin) == (0, "tune")


def where_it_cannot_be_measured_the_reason_is_told() -> None:
    turns = tuned(PLAIN, "--dry-run")["turns"]
    assert "provenance" in turns["reason"] and not turns["staggerings"]
    status, said = tune(f"{PLAIN}/absent")
    assert status == 1
    assert (COMM.rank == 0) == ("absent" in said), said


CASES = (
    all_numbers_of_tokens_are_measured_and_kept,
    rates_between_nodes_are_measured_and_kept,
    nodes_that_read_at_once_are_measured_and_kept,
    the_first_ranks_word_counts_for_all,
    what_jobs_measured_stays_where_others_measure_again,
    where_it_cannot_be_measured_the_reason_is_told,
)

os.environ["LMDBIO_RANKS_PER_NODE"] = "2"
os.environ["XDG_CACHE_HOME"] = f"{CACHES}/{COMM.rank}"
stagger.ROUNDS_MIN = 1
assert share.world() is not None
for case in CASES:
    began = time.perf_counter()
    case()
    COMM.barrier()
    if COMM.rank == 0:
        print(f"{case.__name__}: {time.perf_counter() - began:.2f} s", flush=True)
