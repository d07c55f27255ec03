"""The kinds of faults: what goes wrong, and whether anybody may notice."""

from __future__ import annotations

import abc
import errno
import os
import random
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from interposer import Act, Call, Interposer


@dataclass(frozen=True, slots=True)
class Rule:
    """One call that fails. ``steady``: all the time, every so many calls; 0: now and then."""

    call: Call
    act: Act
    error: int = 0
    steady: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: for the table.
        rules: of the interposer; none: the kind is one of ``REAL``.
        borne: nobody may notice: whatever is read is read all the same.
        only: surfaces that it is for; (): all.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    borne: bool = False
    only: tuple[str, ...] = ()


def _failing(name: str, call: Call, error: int, *only: str) -> Kind:
    return Kind(name, (Rule(call, Act.FAIL, error),), only=only)


def _borne(name: str, *rules: Rule, only: tuple[str, ...] = ()) -> Kind:
    return Kind(name, rules, borne=True, only=only)


KINDS = (
    _failing("read: EIO", Call.READ, errno.EIO),
    _failing("read: EAGAIN", Call.READ, errno.EAGAIN),
    _failing("read: ENOMEM", Call.READ, errno.ENOMEM),
    Kind("read: end of file", (Rule(Call.READ, Act.END),)),
    Kind("read: zeros of a cut page", (Rule(Call.READ, Act.CUT),)),
    Kind("RWF_NOWAIT: zeros of a cut page", (Rule(Call.PEEK, Act.CUT),)),
    _borne("read: EINTR", Rule(Call.READ, Act.FAIL, errno.EINTR, 2)),
    _borne("read: short", Rule(Call.READ, Act.SHORT, 0, 1)),
    _borne("read: slow", Rule(Call.READ, Act.DELAY, 0, 5)),
    _borne("RWF_NOWAIT: refused", Rule(Call.PEEK, Act.FAIL, errno.EOPNOTSUPP, 1)),
    _borne("RWF_NOWAIT: short", Rule(Call.PEEK, Act.SHORT, 0, 1)),
    _failing("open: EMFILE", Call.OPEN, errno.EMFILE),
    _borne("open: EINTR", Rule(Call.OPEN, Act.FAIL, errno.EINTR, 2)),
    _borne("O_DIRECT: refused", Rule(Call.OPEN_DIRECT, Act.FAIL, errno.EINVAL, 1)),
    _borne("O_DIRECT: no reads", Rule(Call.READ_DIRECT, Act.FAIL, errno.EINVAL, 1)),
    _failing("O_DIRECT: EIO", Call.READ_DIRECT, errno.EIO),
    _failing("mmap: ENOMEM", Call.MAP, errno.ENOMEM),
    _borne("fadvise: EINVAL", Rule(Call.ADVISE, Act.FAIL, errno.EINVAL, 1)),
    _borne("cachestat: ENOSYS", Rule(Call.CACHESTAT, Act.FAIL, errno.ENOSYS, 1)),
    _failing("io_uring: EPERM", Call.URING, errno.EPERM),
    _borne("io_uring: ENOMEM", Rule(Call.URING_ENTER, Act.FAIL, errno.ENOMEM, 2)),
    _failing("fstat: EIO", Call.STAT, errno.EIO),
    _borne("thread: EAGAIN", Rule(Call.THREAD, Act.FAIL, errno.EAGAIN, 1)),
    _failing("malloc: NULL", Call.MEMORY, errno.ENOMEM),
    _failing("write: ENOSPC", Call.WRITE, errno.ENOSPC, "convert", "collect"),
    _borne("write: short", Rule(Call.WRITE, Act.SHORT, 0, 1), only=("convert", "collect")),
    _failing("fsync: EIO", Call.SYNC, errno.EIO, "convert", "collect"),
    Kind("file cut while read"),
    Kind("few descriptors"),
    Kind("little address space"),
)


#: How long a file stays cut. Long enough for a thread that reads meanwhile to see the size: made
#: whole again at once, it shows nobody that the kernel gave zeros for its last page.
CUT_SECONDS = 0.05


class Scripted:
    """A kind made by the interposer's rules."""

    def __init__(self, kind: Kind, interposer: Interposer, rng: random.Random) -> None:
        self._rules, self._interposer, self._rng = kind.rules, interposer, rng
        self.span = 0  # calls in a use without faults
        self._done = 0

    def measure(self) -> None:
        """After a use without faults: how many calls there are to fail."""
        self.span = sum(self._interposer.seen(rule.call) for rule in self._rules)

    def arm(self, share: int = 1) -> None:
        """``share``: into how many parts of a use the next fault may fall."""
        for rule in self._rules:
            first, every, limit = 0, rule.steady, 0
            if not rule.steady:
                first = self._rng.randrange(max(1, self.span // share))
                every, limit = 1, self._rng.choice((1, 1, 1, 2, 8))
            self._interposer.arm(rule.call, rule.act, rule.error, first, every, limit)

    def disarm(self) -> None:
        struck = self._struck()
        self._done += struck
        for rule in self._rules:
            self._interposer.arm(rule.call, Act.NONE)
        if struck and any(rule.act == Act.CUT for rule in self._rules):
            time.sleep(CUT_SECONDS)
            self._interposer.make_whole()

    def _struck(self) -> int:
        return sum(self._interposer.done(rule.call) for rule in self._rules)

    def injected(self, raised: int) -> int:
        """Faults up to now."""
        del raised
        return self._done + self._struck()


class _Real:
    """A kind that needs no interposer: only what was raised shows how often it struck."""

    span = 1

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def measure(self) -> None:
        pass

    def injected(self, raised: int) -> int:
        return raised


class Cut(_Real):
    """A thread cuts the file and makes it whole again, over and over.

    The first pages stay: py-lmdb, which keeps the reader slots, maps them, and would die.
    """

    KEPT_BYTES = 2 * 4096

    def __init__(self, rng: random.Random, file: Path) -> None:
        super().__init__(rng)
        self._file, self._content = file, file.read_bytes()
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    def arm(self, share: int = 1) -> None:
        del share
        self.disarm()
        self._end.clear()
        self._thread = threading.Thread(target=self._cut)
        self._thread.start()

    def _cut(self) -> None:
        with self._file.open("r+b", buffering=0) as file:
            while not self._end.is_set():
                size = self._rng.randrange(self.KEPT_BYTES, len(self._content))
                file.truncate(size)
                self._end.wait(CUT_SECONDS + self._rng.random() * 2e-3)
                os.pwrite(file.fileno(), memoryview(self._content)[size:], size)
                self._end.wait(self._rng.random() * 2e-3)

    def disarm(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._end.set()
            thread.join()


class _Limit(_Real, abc.ABC):
    """A resource limit close to what is in use."""

    WHICH: int

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._before = resource.getrlimit(self.WHICH)

    @abc.abstractmethod
    def _bound(self) -> int:
        """The limit; what is in use now and a little more."""

    def arm(self, share: int = 1) -> None:
        del share
        resource.setrlimit(self.WHICH, (self._bound(), self._before[1]))

    def disarm(self) -> None:
        resource.setrlimit(self.WHICH, self._before)


class FewDescriptors(_Limit):
    """No to three descriptors are left."""

    WHICH = resource.RLIMIT_NOFILE

    def _bound(self) -> int:
        used = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
        left, bound = self._rng.randrange(4), 0
        while left or bound in used:
            left -= bound not in used
            bound += 1
        return bound


class LittleSpace(_Limit):
    """Some KiB to some MiB of address space are left."""

    WHICH = resource.RLIMIT_AS

    def _bound(self) -> int:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE") + (self._rng.choice((0, 1, 16, 64)) << 16)


def wait_until(test: Callable[[], bool], seconds: float = 2.0) -> bool:
    """Polls; what ends by itself may take a moment."""
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            return False
        with suppress(InterruptedError):
            time.sleep(0.002)
    return True
