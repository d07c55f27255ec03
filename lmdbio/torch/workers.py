"""Workers: the choice of those that make a loader's next batches: its loop, threads, processes.

batch handed out -> Handed: what it took, how long the loop waited -> Workers -> a Setting

Nobody can say before which is best: decoders in C gain by each thread, each of Python's makes the
others wait for its lock, and the training's own step with them. So the batches tell. The cost of
a batch to the loop, its step included, is measured over a window of some; a setting beside the
best one so far is tried for a window, and kept if it costs less. Pure: numbers in, a decision out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from statistics import median

from lmdbio.machine.choice import Reason

__all__ = ["LOOP", "Handed", "Setting", "Workers", "counts_up_to"]

#: A thread saves its caller the time of a job, as far as the caller does something else meanwhile.
#: While it saves less than the first of these, in the mean over some jobs, it costs more; the
#: second is what it is taken to save at first.
INLINE_SECONDS, SAVED_SECONDS, SAVED_OVER = 250e-6, 10e-3, 8
#: Batches of a window, at least, and for each worker; and the seconds that it takes. One for each
#: worker is enough where these take long.
WINDOW_BATCHES, WINDOW_EACH, WINDOW_SECONDS, LONG_SECONDS = 3, 2, 0.2, 0.5
#: A window in which the loop waits for a smaller part of the time needs no more workers.
WAITS = 0.05
#: Jobs of threads that use a smaller part of their time of a processor wait for Python's lock, or
#: for the storage.
BUSY = 0.75
#: Several threads that use less than so many processors together do.
LOCKED = 1.3
#: How far away, among the numbers of ``counts_up_to``, a setting is tried.
STRIDES = (4, 2, 1)
#: The most that a setting with more workers, with fewer, or of another way costs if it is kept.
MORE, FEWER, OTHER_WAY = 0.97, 1.02, 0.95
#: Another way that costs so many times as much is left at once.
HOPELESS = 1.3
#: A trial ends when it took so many times as long as a window of the best setting, and so many
#: seconds: a few brief jobs say nothing.
HOPELESS_WINDOW, TRIAL_SECONDS = 2.0, 0.1
#: A setting that cost so much more is not tried again soon.
WORSE = 1.1
#: Jobs take so much of the loop's time, and the loop's step is so much of it, where they may make
#: it slower.
LOAD, STEP = 0.05, 0.2
#: The best setting costs so much more or less than before, or its jobs use a processor for so much
#: more or less of their time, in so many windows one after another: the job is another one.
CHANGED, CHANGED_BUSY, CHANGED_WINDOWS = 1.3, 0.3, 3
#: Windows over which the cost of the best setting is a mean.
MEAN_OVER = 4
#: Trials take at most so much of the time, beside so many windows.
TRIAL_SHARE, TRIAL_WINDOWS = 0.05, 12
#: Seconds of the loop before another way of one worker is tried, and over their number of several:
#: a trial takes up to a quarter of one, and gains at most what the workers do at once.
WAY_SECONDS = 20.0
#: Windows until the neighbours of the best setting are tried again, at first and at most; and
#: until another way is.
HOLD_MIN, HOLD_MAX, WAY_HOLD = 8, 256, 512

_ONE = {"threads": "thread", "processes": "process"}


@dataclass(frozen=True, slots=True)
class Setting:
    """The workers that make batches.

    Attributes:
        way: "loop", the thread that asks for them; "threads" or "processes".
        count: number of threads or processes; 0: the loop's own thread.
    """

    way: str
    count: int

    def __str__(self) -> str:
        if self.way == "loop":
            return "the loop's own thread"
        return f"{self.count} {self.way}" if self.count > 1 else f"1 {_ONE[self.way]}"


LOOP = Setting("loop", 0)


@dataclass(frozen=True, slots=True)
class Handed:
    """One batch that was handed out, in seconds.

    Attributes:
        took: time of its job: of a processor, or in all if it waited for longer than for Python's
            lock.
        wall: time from the job's begin to its end.
        busy: part of it in which the job's thread used a processor.
        waited: time that the loop waited for it.
        away: time that the loop did something else before.
    """

    took: float
    wall: float
    busy: float
    waited: float
    away: float


@dataclass(frozen=True, slots=True)
class _Window:
    """The cost of a window's batches to the loop.

    Attributes:
        cost: seconds of a batch, and of the loop's step.
        waits: part of it that the loop waited.
        step: part of it that the loop did something else.
        busy: part of their time in which jobs used a processor.
        load: time of a job, as a multiple of the cost.
        seconds: time that the window took.
    """

    cost: float
    waits: float
    step: float
    busy: float
    load: float
    seconds: float


def counts_up_to(limit: int) -> list[int]:
    """Return the numbers of workers that are tried: each at most a quarter more, or one."""
    counts, count = [], 1
    while count < limit:
        counts.append(count)
        count += max(1, count // 4)
    return counts + [limit] * (limit > 0)


class Workers:
    """Chooses who makes batches, by what those that were handed out took.

    Args:
        threads, processes: upper bounds; 0: none.
        may_loop: whether the loop's own thread may make them though there are threads.
        start: number of threads at first; None: a quarter of the bound, 2 to 4.

    Attributes:
        setting: setting of the next batches.
    """

    def __init__(
        self,
        threads: int,
        processes: int = 0,
        *,
        may_loop: bool = True,
        start: int | None = None,
    ) -> None:
        self._counts = {
            "threads": counts_up_to(threads),
            "processes": counts_up_to(processes),
        }
        self._may_loop = may_loop
        self._base = self._first(threads, processes, start)
        self.setting = self._base
        self._why = "the first batches will tell"
        self._saved = SAVED_SECONDS
        self._window: list[Handed] = []
        self._skipped = 0  # number of batches that are of the setting before
        self._handed = 0  # batches of this iteration
        self._measured_s = self._spent = 0.0  # seconds of windows, and of those in trials
        self._odd = 0  # odd windows one after another
        #: A trial that seems good, and its first cost, until it is tried again.
        self._seems: tuple[Setting, float] | None = None
        self._cost, self._busy = 0.0, 1.0  # of ``_base``; 0: not known
        self._tried: dict[Setting, float] = {}  # what they cost, of what the base costs
        self._hold, self._hold_next = 0, HOLD_MIN
        #: The best setting of the way before, its cost and its jobs, while another way is tried.
        self._outer: tuple[Setting, float, float] | None = None
        self._refused: dict[str, int] = {}  # ways, and the windows until they are tried again

    def _first(self, threads: int, processes: int, start: int | None) -> Setting:
        if threads:
            counts = self._counts["threads"]
            wanted = min(threads, start or max(2, min(4, threads // 4)))
            return Setting("threads", max(count for count in counts if count <= wanted))
        return Setting("processes", processes) if processes else LOOP

    @property
    def reason(self) -> Reason:
        """The workers that make the batches now, and the reason for them."""
        return Reason("facts", f"{self.setting}: {self._why}")

    def begin(self) -> None:
        """Take notice that an iteration begins, with no batch made ahead."""
        self._skipped = max(self._skipped, self.setting.count)
        if self._handed:  # a brief iteration is no window: it goes on in the next one
            self._skipped = min(self._skipped, self._handed // 2)
        self._handed = 0

    def refuse(self, way: str, why: str) -> None:
        """Leave a way for good, since it cannot do this job.

        Args:
            way: "processes" or "threads".
            why: reason in words.
        """
        if not self._counts[way]:
            return  # it was left before
        self._counts[way] = []
        if self._base.way == way:
            self._go(self._outer[0] if self._outer else self._fallback())
            self._cost = self._outer[1] if self._outer else 0.0
            self._base, self._outer = self.setting, None
        self._why = why

    def _fallback(self) -> Setting:
        for way in ("threads", "processes"):
            if self._counts[way]:
                return Setting(way, self._counts[way][0])
        if self._may_loop:
            return LOOP
        self._counts["threads"] = [1]
        return Setting("threads", 1)

    def note(self, handed: Handed) -> None:
        """Take notice of a batch that was handed out; ``setting`` may be another one then."""
        self._handed += 1
        if self._base == LOOP or self._judge_loop(handed):
            return
        if self._skipped > 0:
            self._skipped -= 1
            return
        window = self._window
        window.append(handed)
        if len(window) < WINDOW_BATCHES:
            return
        seconds = sum(one.waited + one.away for one in window)
        each = 1 if seconds >= LONG_SECONDS else WINDOW_EACH
        is_enough = len(window) >= each * self.setting.count and seconds >= WINDOW_SECONDS
        if is_enough or seconds > self._trial_seconds():
            self._measured_s += seconds
            self._end_window(_weigh(window))
            window.clear()

    def _trial_seconds(self) -> float:
        """Return the seconds of a window after which a trial is hopeless, however few batches."""
        reference = self._outer[1] if self._outer and not self._cost else self._cost
        is_base = self.setting == self._base and self._outer is None
        if is_base or not reference:
            return inf
        jobs = max(WINDOW_BATCHES, WINDOW_EACH * self._base.count)
        least = WINDOW_SECONDS if self._seems else TRIAL_SECONDS
        return max(least, HOPELESS_WINDOW * reference * jobs)

    def _judge_loop(self, handed: Handed) -> bool:
        """Decide whether the loop makes the next batches, and return whether it does."""
        if not self._may_loop:
            return False
        self._saved += (handed.took + handed.away / 4 - self._saved) / SAVED_OVER
        is_loop = self._saved < INLINE_SECONDS
        if is_loop and self.setting != LOOP:
            self._why = "to hand a batch over would take longer than to make it"
            self.setting = LOOP
        elif not is_loop and self.setting == LOOP:
            self._saved = SAVED_SECONDS  # not again soon
            self._go(self._base)
            self._why = "batches take longer than before"
        return is_loop

    def _go(self, setting: Setting) -> None:
        # Batches under way are of the setting before, and workers of another kind have to begin.
        is_other = setting.way != self.setting.way
        self._skipped = max(self.setting.count, setting.count * is_other)
        self.setting, self._seems, self._odd = setting, None, 0
        self._window.clear()

    def _end_window(self, window: _Window) -> None:
        self._refused = {way: left - 1 for way, left in self._refused.items() if left > 1}
        self._spent += window.seconds * (self.setting != self._base or self._outer is not None)
        if self.setting != self._base:
            self._end_trial(window)
            return
        if self._seems is not None:
            self._compare_anew(window, *self._seems)
            return
        if self._is_odd(window):
            return
        if self._hold > 0:
            self._hold -= 1
            return
        allowed = TRIAL_SHARE * self._measured_s + TRIAL_WINDOWS * window.seconds
        if self._outer is None and self._spent > allowed:
            return
        is_hopeless = self._outer is not None and window.cost > HOPELESS * self._outer[1]
        trial = None if is_hopeless else next(self._trials(window), None)
        if trial is None:
            self._settle(window)
        elif trial.way != self._base.way:
            # Its neighbours are tried as well before it is compared with what was.
            self._outer = self._base, self._cost, self._busy
            self._base, self._cost = trial, 0.0
            self._tried.clear()
            self._go(trial)
            self._why = f"{self._outer[0]} keep the loop waiting"
        else:
            self._go(trial)

    def _is_odd(self, window: _Window) -> bool:
        """Return whether a window of the best setting is unlike those before, but for good.

        When some were so one after another, the job is another one: all is open again.
        """
        is_first = not self._cost
        is_alike = self._cost / CHANGED < window.cost < self._cost * CHANGED
        if is_first or (is_alike and abs(window.busy - self._busy) < CHANGED_BUSY):
            over = 1 if is_first else MEAN_OVER
            self._cost += (window.cost - self._cost) / over
            self._busy += (window.busy - self._busy) / over
            self._odd = 0
            return False
        self._odd += 1
        if self._odd < CHANGED_WINDOWS:
            return True
        self._cost, self._busy, self._odd = window.cost, window.busy, 0
        self._hold, self._hold_next = 0, HOLD_MIN
        self._tried.clear()
        self._refused.clear()
        return False

    def _bound(self, trial: Setting) -> float:
        """Return the most that a trial costs if it is kept."""
        return self._cost * (FEWER if trial.count < self._base.count else MORE)

    def _compare_anew(self, window: _Window, trial: Setting, cost: float) -> None:
        """Compare a trial that seems good with the base behind it, before it is tried once more.

        First jobs cost more: nobody has touched their memory or loaded their code before.
        """
        self._cost, self._busy = window.cost, window.busy
        if cost <= self._bound(trial):
            self._go(trial)
            self._seems = trial, cost
        else:
            self._refuse_trial(trial, cost / self._cost)

    def _refuse_trial(self, trial: Setting, costs: float) -> None:
        self._tried[trial], self._seems = costs, None
        self._why = f"{trial} gave {1 / costs:.2f} of it"

    def _end_trial(self, window: _Window) -> None:
        trial, base, seems = self.setting, self._base, self._seems
        is_good = window.cost <= self._bound(trial)
        if is_good and seems is None and window.seconds < LONG_SECONDS:
            self._go(base)  # a short window says little
            self._seems = trial, window.cost
            return
        cost, self._seems = (seems[1] + window.cost) / 2 if seems else window.cost, None
        if cost <= self._bound(trial):
            gain = self._cost / cost
            if gain > max(1.0, trial.count / base.count) * CHANGED:
                self._tried.clear()  # workers alone gain less: it is the job that has changed
            else:
                self._tried = {one: worse * gain for one, worse in self._tried.items()}
                self._tried[base] = gain
            self._base, self._hold_next = trial, HOLD_MIN
            self._cost, self._busy = cost, window.busy
            self._why = f"{base} gave {1 / gain:.2f} of it"
            self._window.clear()
            trial = next(self._trials(window), None) or trial
            if trial.way == self._base.way and trial != self._base:
                self._go(trial)
            return
        self._refuse_trial(trial, cost / self._cost)
        if window.seconds < WINDOW_SECONDS:  # it was cut short, after a few batches
            self._tried[trial] = WORSE
        self._go(base)

    def _trials(self, window: _Window) -> Iterator[Setting]:
        """Yield the settings that are worth a trial, the best first."""
        base, counts = self._base, self._counts[self._base.way]
        at, waits = counts.index(base.count), window.waits > WAITS
        up = [counts[at + by] for by in STRIDES if at + by < len(counts)]
        down = [counts[at - by] for by in STRIDES if at - by >= 0]
        is_falling = any(one.way == base.way and one.count > base.count for one in self._tried)
        # All of them together use about one processor: that of Python's lock.
        cores = base.count * window.busy
        is_locked = waits and base.way == "threads" and base.count > 1 and cores < LOCKED
        if is_locked:
            yield from self._other_ways()
        wanted = (down + up if is_falling or is_locked else up + down) if waits else down
        for count in wanted:
            setting = Setting(base.way, count)
            if setting not in self._tried:
                yield setting
        contends = window.busy < BUSY or bool(up)
        slows = window.step > STEP and window.load > LOAD
        if (waits and contends) or (not waits and slows):
            yield from self._other_ways()

    def _other_ways(self) -> Iterator[Setting]:
        for way in ("processes", "threads") if self._outer is None else ():
            if way != self._base.way and self._counts[way] and way not in self._refused:
                count = self._counts[way][-1]
                if self._measured_s >= WAY_SECONDS / count:
                    yield Setting(way, count)

    def _settle(self, window: _Window) -> None:
        """Stay here for a while: nothing beside this is better."""
        forgets = self._hold_next == HOLD_MAX  # a short window may have been wrong
        cached = {one: worse for one, worse in self._tried.items() if worse > WORSE}
        self._tried = {} if forgets else cached
        if self._outer is not None:
            (before, cost, busy), now = self._outer, self._base
            self._outer = None
            is_settled = window.cost <= cost * OTHER_WAY
            worse, ratio = (
                (before, window.cost / cost) if is_settled else (now, cost / window.cost)
            )
            self._refused[worse.way] = WAY_HOLD
            self._why = f"{worse} gave {ratio:.2f} of it"
            if not is_settled:
                self._base, self._cost, self._busy = before, cost, busy
                self._tried.clear()
                self._go(before)
        self._hold, self._hold_next = self._hold_next, min(2 * self._hold_next, HOLD_MAX)


def _weigh(window: list[Handed]) -> _Window:
    """Return what a window cost. A pause of the loop's, such as a validation, is no step."""
    waited = sum(one.waited for one in window) / len(window)
    away = median(one.away for one in window)
    cost = max(waited + away, 1e-9)
    wall = sum(one.wall for one in window)
    busy = sum(one.busy * one.wall for one in window) / wall if wall > 0 else 1.0
    load = wall / len(window) / cost
    return _Window(cost, waited / cost, away / cost, busy, load, cost * len(window))
