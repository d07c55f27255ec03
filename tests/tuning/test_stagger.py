"""Tokens: what is tried, how much each run reads, and what follows from what was measured.

Goal: every number of tokens that can matter is tried alike; the fewest that are fast enough are
taken, by jobs of about as many roots, the same on all ranks. Method: tables; no job, no file. The
measuring itself runs in tests/mpi.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lmdbio import share
from lmdbio.cli.choices import turn_choices
from lmdbio.errors import IncompatibleError, PeerError
from lmdbio.machine import calibration
from lmdbio.machine.calibration import Calibration, Sample, Staggering, TokenSample
from lmdbio.machine.measured import choose_tokens
from lmdbio.planning.mode import USUAL_TOKENS, Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.phases import count_tokens, usual_tokens
from lmdbio.tuning import stagger
from lmdbio.tuning.job import counts_of
from lmdbio.tuning.stagger import (
    ROUNDS,
    ROUNDS_MIN,
    RUN_BYTES_MAX,
    RUN_BYTES_MIN,
    RankRun,
    RunLength,
)

MIB = 1 << 20


# --- planning -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roots", "tried"),
    [
        (2, (1, 0)),
        (3, (1, 2, 0)),
        (4, (1, 2, 0)),
        (5, (1, 2, 4, 0)),
        (8, (1, 2, 4, 0)),
        (9, (1, 2, 4, 8, 0)),
        (100, (1, 2, 4, 8, 16, 32, 64, 0)),
    ],
)
def test_tokens_are_doubled_up_to_the_roots_and_then_nobody_waits(roots, tried):
    assert stagger.token_counts(roots) == tried


@pytest.mark.parametrize("tokens", [(1, 0), (1, 2, 0), (1, 2, 4, 0)])
def test_everybody_reads_once_in_a_round_and_begins_one_as_often(tokens):
    rounds = [stagger.round_order(tokens, number) for number in range(len(tokens))]
    assert all(sorted(one) == sorted(tokens) for one in rounds)
    assert sorted(one[0] for one in rounds) == sorted(tokens)


@pytest.mark.parametrize(
    ("nodes", "roots", "is_threaded", "why"),
    [
        (1, 1, True, "one node"),
        (1, 2, True, "one node"),
        (2, 2, False, "one thread"),
        (2, 2, True, ""),
        (8, 16, True, ""),
    ],
)
def test_where_turns_cannot_be_measured_the_reason_is_told(nodes, roots, is_threaded, why):
    told = stagger.obstacle(nodes=nodes, roots=roots, is_threaded=is_threaded)
    assert why in told
    assert bool(told) == bool(why)


@pytest.mark.parametrize(
    ("ranks", "count", "record_bytes", "size"),
    [
        (16, 80_000, 4096.0, 2048),  # half a MiB each
        (16, 1300, 200_000.0, 41),
        (16, 100, 200_000.0, 16),  # an eighth of the data set, but one for each rank
        (16, 20, 2e9, 16),
        (2, 1000, 0.0, 125),
    ],
)
def test_batches_are_what_training_takes_and_each_rank_has_a_record(
    ranks, count, record_bytes, size
):
    assert stagger.batch_size(ranks, count, record_bytes) == size


def length(seconds: float = 10.0, most: int = 10**9, contestants: int = 4) -> RunLength:
    return RunLength(seconds, contestants, roots=4, batch_bytes=MIB, most=most)


@pytest.mark.parametrize(
    ("number", "elapsed_s", "rate", "beside_s", "batches"),
    [
        # 20 runs in 10 s: half a second each, less what lies beside reading.
        (0, 0.0, 1000 * MIB, 0.0, 500),
        (0, 0.0, 2000 * MIB, 0.25, 500),
        (4, 8.0, 1000 * MIB, 0.0, 500),
        # Not less than blocks of the usual size, and not more than says anything.
        (0, 0.0, 0, 0.0, 4 * RUN_BYTES_MIN // MIB),
        (0, 0.0, 400 * MIB, 2.0, 4 * RUN_BYTES_MIN // MIB),
        (0, 0.0, 10**12, 0.0, 4 * RUN_BYTES_MAX // MIB),
        # Time is over: not before there is a median.
        (ROUNDS_MIN - 1, 11.0, 400 * MIB, 0.0, 4 * RUN_BYTES_MIN // MIB),
        (ROUNDS_MIN, 10.0, 400 * MIB, 0.0, 0),
        (ROUNDS, 0.0, 400 * MIB, 0.0, 0),
    ],
)
def test_runs_read_as_much_as_there_is_time_for(number, elapsed_s, rate, beside_s, batches):
    planned = length()
    if rate:
        planned.note(rate, beside_s)
    assert planned.plan(number, elapsed_s) == batches


def test_a_run_reads_the_data_set_once_at_most_and_a_batch_at_least():
    fast = length(most=7)
    fast.note(1e12, 0.0)
    assert fast.plan(0, 0.0) == 7
    assert RunLength(1.0, 2, roots=2, batch_bytes=1e12, most=1).plan(0, 0.0) == 1


def test_a_run_takes_as_long_as_its_slowest_node_by_that_nodes_clock():
    told = [
        RankRun(1, 100.0, 100.5),
        RankRun(1, None, 101.0),  # another one reads for it
        RankRun(1, 7.0, 7.2),
        RankRun(1, 7.1, 8.5),
    ]
    assert stagger.run_seconds([(0, 1), (2, 3)], told) == pytest.approx(1.5)
    assert stagger.run_seconds([(0,)], [RankRun(0, 5.0, 5.0)]) > 0


# --- choosing -----------------------------------------------------------------------------


def job(rates: dict[int, float], **more: Any) -> Staggering:
    """Of eight roots on eight nodes, in MiB/s by tokens."""
    samples = tuple(TokenSample(tokens, (rate * MIB,)) for tokens, rate in rates.items())
    return replace(Staggering(8, 8, "strided", 1.0, samples), **more)


def tokens_of(measured: list[Staggering], *, roots: int = 8, may_be_none: bool = False, **more):
    found = choose_tokens(
        measured, **{"nodes": 8, "assignment": "strided"} | more, roots=roots,
        may_be_none=may_be_none,
    )  # fmt: skip
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("rates", "stag", "auto"),
    [
        ({1: 100, 2: 100, 4: 100, 0: 90}, 1, 1),
        ({1: 80, 2: 96, 4: 100, 0: 90}, 2, 2),
        ({1: 94, 2: 80, 4: 100, 0: 50}, 4, 4),
        ({1: 96, 2: 97, 4: 98, 0: 100}, 1, 0),
        ({1: 100, 2: 97, 4: 98, 0: 95}, 1, 0),
        ({1: 100, 2: 97, 4: 98, 0: 94}, 1, 1),
        ({1: 50, 2: 60, 4: 70, 0: 100}, 0, 0),
        ({0: 100}, 0, 0),
        ({2: 100}, 2, 2),
    ],
)
def test_the_fewest_that_are_fast_enough_are_taken_and_none_where_turns_gain_nothing(
    rates, stag, auto
):
    assert tokens_of([job(rates)]) == stag
    assert tokens_of([job(rates)], may_be_none=True) == auto
    found = turn_choices([job(rates)])[0]
    assert (found.stag, found.auto) == (stag, auto)
    assert f"stag {stag or 'none'}" in str(found)


def test_one_run_among_many_decides_nothing():
    swings = job({1: 100, 2: 90, 0: 10})
    spoilt = replace(swings.samples[0], rates=(100.0 * MIB, 1.0, 101.0 * MIB))
    lucky = replace(swings.samples[1], rates=(90.0 * MIB, 900.0 * MIB, 80.0 * MIB))
    assert tokens_of([replace(swings, samples=(spoilt, lucky, swings.samples[2]))]) == 1


@pytest.mark.parametrize(
    ("roots", "found"),
    [(5, None), (6, 2), (8, 2), (12, 2), (13, None), (16, None), (2, None)],
)
def test_what_was_measured_counts_for_about_as_many_roots(roots, found):
    assert tokens_of([job({1: 50, 2: 100, 0: 60})], roots=roots) == found


def test_the_nearest_job_counts_then_the_newest_and_its_assignment_alone():
    two, one, four = job({1: 1, 2: 9}), job({1: 9}), job({1: 1, 4: 9})
    measured = [two, replace(one, roots=10), replace(four, assignment="blocked")]
    assert tokens_of(measured, roots=8) == 2
    assert tokens_of(measured, roots=10) == 1
    assert tokens_of(measured, roots=8, assignment="blocked") == 4
    assert tokens_of([two, replace(one, nodes=4)], nodes=4) == 1
    assert tokens_of([two, replace(one, measured=2.0)]) == 1
    assert tokens_of([]) is None


def test_the_reason_has_the_figures():
    found = choose_tokens(
        [job({1: 80, 2: 96, 4: 100, 0: 70})],
        nodes=8, roots=8, assignment="strided", may_be_none=True,
    )  # fmt: skip
    assert found is not None and found[1].origin == "tune"
    for text in ("96 MiB/s with 2 of 8 roots", "100 MiB/s at best", "70 MiB/s without turns"):
        assert text in found[1].text


# --- what a Reader does -------------------------------------------------------------------


def counted(
    mode: Mode,
    measured: tuple[Staggering, ...] = (),
    *,
    roots: int = 8,
    suggested: bool = False,
    is_threaded: bool = True,
):
    """Tokens, and where they come from, of one root on each node."""
    teams = tuple((rank,) for rank in range(roots))
    played: Any = SimpleNamespace(nodes=teams, is_threaded=is_threaded)
    schedule = Schedule(1000, 64, teams, assignment="strided")
    tokens, reason = count_tokens(played, schedule, mode, measured, suggested=suggested)
    assert reason.text
    return tokens, reason.origin


USUAL = Mode.named("stag")
MEASURED = (job({1: 50, 2: 100, 4: 99, 0: 97}),)


def test_usual_tokens_are_the_measured_ones_where_there_are_any():
    assert USUAL.tokens == USUAL_TOKENS
    assert counted(USUAL) == (usual_tokens(8), "facts")
    assert counted(USUAL, MEASURED) == (2, "tune")
    assert counted(USUAL, MEASURED, suggested=True) == (0, "tune")
    assert counted(USUAL, MEASURED, roots=32) == (usual_tokens(32), "facts")


def test_who_asks_for_tokens_by_number_gets_so_many():
    assert counted(replace(USUAL, tokens=4), MEASURED) == (4, "keyword")
    assert counted(replace(USUAL, tokens=0), MEASURED) == (0, "keyword")
    assert counted(Mode.named("coal"), MEASURED) == (0, "keyword")


def test_there_are_no_turns_where_each_root_would_have_one_or_mpi_hands_on_none():
    assert counted(replace(USUAL, tokens=8)) == (0, "facts")
    assert counted(USUAL, roots=1) == (0, "facts")
    assert counted(USUAL, suggested=True, is_threaded=False) == (0, "facts")
    assert counted(USUAL, is_threaded=False)[0] == 1, "it is refused by who links"


# --- keeping ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_jobs_measured_is_kept_beside_the_rest():
    sample = Sample("direct", "stream", MIB, 8, 100, 1.0)
    made = Calibration("nfs4 server:/data", 12.5, (sample,), MEASURED)
    calibration.store(made)
    assert calibration.load("nfs4 server:/data").calibration == made


def test_a_job_that_is_measured_anew_replaces_itself_and_no_other():
    old, other = job({1: 1}), job({1: 2}, roots=4, nodes=4)
    new, blocked = job({1: 3}, measured=9.0), job({1: 4}, assignment="blocked")
    assert calibration.renewed((old, other), (new, blocked)) == (other, new, blocked)
    assert calibration.renewed((old, other), ()) == (old, other)
    many = [job({1: 1}, roots=roots) for roots in range(2, 99)]
    kept = calibration.renewed(many, (new,))
    assert len(kept) == calibration.STAGGERINGS_MAX and kept[-1] == new


# --- who is started by a launcher ---------------------------------------------------------


@pytest.mark.parametrize("size", [None, "", "1", "many"])
def test_a_process_alone_starts_no_mpi(monkeypatch, size):
    for name in share.LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    if size is not None:
        monkeypatch.setenv("PMI_SIZE", size)
    assert share.world() is None


def test_ranks_that_cannot_speak_to_each_other_are_told(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "16")
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(IncompatibleError, match="16 ranks were started"):
        share.world()


@pytest.mark.parametrize(
    ("nodes", "counts"), [(2, (2,)), (3, (2, 3)), (4, (2, 4)), (16, (2, 4, 8, 16))]
)
def test_numbers_of_readers_are_powers_of_two_and_all(nodes: int, counts: tuple[int, ...]) -> None:
    assert counts_of(nodes) == counts


class Unsettled:
    """A job whose ranks have no environment in common."""

    nodes, size, rank = ((0,), (1,)), 2, 0

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.told: list[BaseException] = []
        self.is_freed = False

    def together(self, step: object) -> None:
        raise self.error

    def fail(self, error: BaseException) -> None:
        self.told.append(error)

    def free(self) -> None:
        self.is_freed = True


def test_who_cannot_connect_goes_no_further(monkeypatch):
    def connect(comm: object) -> None:
        raise PeerError("rank 1 failed: KeyboardInterrupt")

    monkeypatch.setattr(share, "connect", connect)
    with pytest.raises(PeerError, match="rank 1"):
        stagger.measure("nowhere", None, seconds=1)


@pytest.mark.parametrize("error", [ValueError("environments differ"), KeyboardInterrupt()])
def test_a_failure_to_settle_is_told_to_the_other_ranks(monkeypatch, error):
    job = Unsettled(error)
    monkeypatch.setattr(share, "connect", lambda comm: job)
    if isinstance(error, ValueError):
        assert stagger.measure("nowhere", None, seconds=1).reason == "environments differ"
    else:
        with pytest.raises(KeyboardInterrupt):
            stagger.measure("nowhere", None, seconds=1)
    assert job.told == [error] and job.is_freed
