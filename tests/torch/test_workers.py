"""The choice of workers. Goal: from any start it settles within 5 % of what the best fixed setting
gives, also when the job becomes another one, and text says why. Method: jobs of known costs, by
threads that share a lock, by processes, and with noise, are handed to it batch by batch.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass

import pytest

from lmdbio.torch.workers import INLINE_SECONDS, LOOP, Handed, Setting, Workers, counts_up_to

#: Of what the best fixed setting gives, and the seconds of a job that are looked at.
WITHIN, NOISE = 0.95, 0.04
LEARN_SECONDS, POLL_SECONDS, BATCHES_MIN = 40.0, 20.0, 1500


@dataclass(frozen=True)
class Job:
    """The cost of a job's batches.

    Attributes:
        free: seconds of a batch without Python's lock.
        locked: seconds with it.
        step: seconds of the loop's own step, half of which needs the lock.
        cores: number of processors.
        switch: part by which ``locked`` grows with each thread beside the first.
        sending: seconds that this process spends on a batch of a worker process.
    """

    free: float
    locked: float
    step: float = 0.0
    cores: int = 16
    switch: float = 0.0
    sending: float = 1e-3

    def handed(self, setting: Setting) -> Handed:
        """Return what a batch takes when it is made by these workers."""
        took = self.free + self.locked
        if setting.way == "loop":
            return Handed(took, took, 1.0, took, self.step)
        count = setting.count
        if setting.way == "processes":
            each, away, busy = max(took / min(count, self.cores), self.sending), self.step, 0.1
        else:
            locked = self.locked * (1 + self.switch * (count - 1))
            each = max(took / min(count, self.cores), locked)
            away = self.step * (1 + 0.15 * min(count, 8) * self.locked / took)
            busy = min(1.0, took / (each * count))
        return Handed(each * count, each * count, busy, max(0.0, each - away), away)

    def cost(self, setting: Setting) -> float:
        """Return the seconds of a batch."""
        handed = self.handed(setting)
        return handed.waited + handed.away

    def best(self, threads: int, processes: int) -> float:
        """Return the seconds of a batch by the best fixed setting."""
        ways = [Setting("threads", n + 1) for n in range(threads)]
        ways += [Setting("processes", n + 1) for n in range(processes)]
        return min(map(self.cost, ways))


def run(
    workers: Workers, job: Job, seconds: float, draw: random.Random, epoch: int | None = None
) -> float:
    """Hand out batches for a while, and return the mean seconds of one.

    Args:
        epoch: batches of an iteration; None: there is one.
    """
    total, batches = 0.0, 0
    while total < seconds or batches < BATCHES_MIN:
        if epoch is not None and batches % epoch == 0:
            workers.begin()
        factor = draw.uniform(1 - NOISE, 1 + NOISE)
        one = job.handed(workers.setting)
        total += (one.waited + one.away) * factor
        batches += 1
        seen = (one.took, one.wall, one.busy, one.waited, one.away)
        took, wall, busy, waited, away = (value * factor for value in seen)
        workers.note(Handed(took, wall, min(1.0, busy), waited, away))
    return total / batches


def jobs(seed: int) -> Job:
    draw = random.Random(seed)
    free = 10 ** draw.uniform(-3, -0.7)
    locked = min(0.5, free * 10 ** draw.uniform(-2, 1.5))
    step = draw.choice([0.0, 10 ** draw.uniform(-3, -1)])
    cores = draw.choice([2, 4, 8, 16, 64])
    return Job(free, locked, step, cores, draw.choice([0.0, 0.1, 0.5]))


@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(seed, marks=pytest.mark.more) for seed in range(7, 25))]
)
def test_it_settles_on_the_best_from_any_start(seed: int) -> None:
    job, draw = jobs(seed), random.Random(seed)
    threads, processes = job.cores, max(1, job.cores - 2)
    start = draw.choice([None, 1, min(16, threads)])
    workers = Workers(threads, processes, start=start, may_loop=False)
    run(workers, job, LEARN_SECONDS, draw)
    found = run(workers, job, POLL_SECONDS, draw)
    best = job.best(threads, processes)
    # The cost of a trial now and then is part of it.
    assert best / found >= WITHIN - 0.06, (job, workers.reason.text)


@pytest.mark.parametrize(("cores", "epoch"), [(64, 50), (64, 100), (16, 30), (16, 1)])
def test_an_iteration_that_is_briefer_than_a_trial_keeps_no_bad_setting(
    cores: int, epoch: int
) -> None:
    # Processes are far worse: what they send takes longer than to make it.
    job, draw = Job(0.02, 0.004, switch=0.05, cores=cores, sending=0.05), random.Random(3)
    workers = Workers(cores, cores - 2, may_loop=False)
    run(workers, job, LEARN_SECONDS, draw, epoch)
    found = run(workers, job, LEARN_SECONDS, draw, epoch)
    assert job.best(cores, 0) / found >= 0.8, workers.reason.text


def test_what_is_slow_at_first_alone_needs_no_more_workers() -> None:
    lock, draw = Job(0.0002, 0.006, switch=0.2, cores=2), random.Random(4)
    for count in range(10):
        workers = Workers(2, 0, may_loop=False)
        slow = Job(0.0002, 0.006 * 1.3, switch=0.2, cores=2)
        while workers.setting == Setting("threads", 1):  # until the first trial
            one = slow.handed(workers.setting)
            factor = draw.uniform(1 - NOISE, 1 + NOISE)
            workers.note(Handed(one.took, one.wall, one.busy, one.waited * factor, one.away))
        seen = []
        for _ in range(400):
            one = lock.handed(workers.setting)
            workers.note(one)
            seen.append(workers.setting.count)
        assert seen.count(2) < 100, (count, workers.reason.text)


DECODER_IN_C = Job(0.4, 0.01)
DECODER_IN_PYTHON = Job(0.001, 0.003, switch=0.5)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_becomes_another_one_gets_other_workers(seed: int) -> None:
    draw, workers = random.Random(seed), Workers(16, 14, may_loop=False)
    for job in (DECODER_IN_C, DECODER_IN_PYTHON, DECODER_IN_C):
        run(workers, job, LEARN_SECONDS, draw)
        found = run(workers, job, POLL_SECONDS, draw)
        assert job.best(16, 14) / found >= 0.9, workers.reason.text


def test_decoders_in_c_get_threads_and_those_in_python_processes() -> None:
    for job, way in ((DECODER_IN_C, "threads"), (DECODER_IN_PYTHON, "processes")):
        workers = Workers(16, 14)
        run(workers, job, LEARN_SECONDS, random.Random(1))
        assert workers.setting.way == way
        assert str(workers.setting) in workers.reason.text and "of it" in workers.reason.text


def test_a_loop_that_does_not_wait_keeps_few_workers() -> None:
    workers = Workers(16, 0, start=16)
    run(workers, Job(0.01, 0.0001, step=0.05), LEARN_SECONDS, random.Random(2))
    assert workers.setting.count <= 2


def test_bounds_are_kept() -> None:
    for threads, processes in ((1, 0), (3, 0), (0, 2), (2, 5)):
        workers, draw = Workers(threads, processes, may_loop=False), random.Random(3)
        for _ in range(3000):
            setting = workers.setting
            assert setting.count <= {"threads": threads, "processes": processes}[setting.way]
            one = DECODER_IN_PYTHON.handed(setting)
            factor = draw.uniform(0.5, 2)
            workers.note(Handed(one.took, one.wall, one.busy, one.waited * factor, one.away))


def test_nothing_is_chosen_where_both_ways_are_forbidden() -> None:
    workers = pickle.loads(pickle.dumps(Workers(0, 0)))
    for _ in range(100):
        workers.note(Handed(0.1, 0.1, 1.0, 0.1, 0.0))
        assert workers.setting == LOOP


def test_a_loop_that_may_not_is_left_a_thread() -> None:
    workers = Workers(0, 2, may_loop=False)
    workers.refuse("processes", "no children here")
    assert workers.setting == Setting("threads", 1)


def test_a_way_that_is_refused_is_left_for_good() -> None:
    workers = Workers(4, 4)
    while workers.setting.way == "threads":
        workers.note(DECODER_IN_PYTHON.handed(workers.setting))
    workers.refuse("processes", "no children here")
    for _ in range(3000):
        assert workers.setting.way == "threads"
        workers.note(DECODER_IN_PYTHON.handed(workers.setting))


def test_brief_batches_are_made_by_the_loop_and_long_ones_are_not() -> None:
    workers = Workers(4, 0)
    brief, long = INLINE_SECONDS / 10, INLINE_SECONDS * 20
    for _ in range(200):
        workers.note(Handed(brief, brief, 1.0, brief, 0.0))
    assert workers.setting == LOOP
    workers.note(Handed(long, long, 1.0, long, 0.0))
    assert workers.setting.way == "threads"


def test_a_pause_of_the_loop_changes_nothing() -> None:
    workers, draw = Workers(8, 0, may_loop=False), random.Random(4)
    run(workers, DECODER_IN_C, LEARN_SECONDS, draw)
    before = workers.setting
    one = DECODER_IN_C.handed(before)
    for _ in range(3):
        for _ in range(50):
            workers.note(one)
        workers.note(Handed(one.took, one.wall, one.busy, 0.0, 60.0))  # a validation
    assert workers.setting.count >= before.count * 3 // 4


def test_numbers_of_workers_grow_by_a_quarter_at_most_up_to_the_bound() -> None:
    assert counts_up_to(0) == [] and counts_up_to(1) == [1]
    assert counts_up_to(16) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16]
    assert counts_up_to(64)[-1] == 64
