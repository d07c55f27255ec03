"""One fault kind at one surface: faults are made, and what becomes of them is judged.

A surface (surfaces.py) makes its calls through ``Cell.attempt``. A call that fails must fail
with a documented exception that names the file, and must work when it is made again without
faults. The calls' results are compared with py-lmdb's through ``Cell.equal``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import lmdb
from kinds import Kind

T = TypeVar("T")

#: The exceptions that reading may raise (README.md, ARCHITECTURE.md).
DOCUMENTED = (OSError, lmdb.Error, MemoryError)
#: Tries without faults after one failed; the first may still tell of the fault.
TRIES = 4
READS = re.compile(r"\d+ bytes at offset \d+")
CUT = re.compile(
    r"wanted \d+ bytes at offset \d+, got \d+|has [\d,]+ bytes, its records need [\d,]+"
)


class BrokenError(Exception):
    """A call that failed keeps failing without a fault; the breach is noted."""


class Fault(Protocol):
    """Make the faults of one kind (kinds.py)."""

    span: int

    def measure(self) -> None: ...

    def arm(self, share: int = 1) -> None: ...

    def disarm(self) -> None: ...

    def injected(self, raised: int) -> int: ...


class Cell:
    """Counts and judges.

    Attributes:
        raised: calls that failed.
        recovered: of those, how many worked when they were made again.
        compared: results that were compared with py-lmdb's.
        wrong: results that differed.
        breaches: what should not be, in words.
    """

    #: A use without faults falls into so many parts, in each of which one may strike.
    SHARE = 8

    def __init__(self, kind: Kind, fault: Fault, names: list[Path]) -> None:
        self.kind, self._fault = kind, fault
        self._names = [str(name) for name in names]
        self.raised = self.recovered = self.compared = self.wrong = 0
        self.breaches: list[str] = []
        self.armed = False

    @property
    def injected(self) -> int:
        return self._fault.injected(self.raised)

    def breach(self, text: str) -> None:
        if len(self.breaches) < 20:
            self.breaches.append(text)

    def arm(self) -> None:
        self._fault.arm(self.SHARE)
        self.armed = True

    def disarm(self) -> None:
        self._fault.disarm()
        self.armed = False

    def note(self, error: BaseException) -> None:
        """Ends the faults for now, and judges what was raised."""
        active, self.armed = self.armed, False
        self._fault.disarm()
        self.raised += active
        told = f"{type(error).__name__}: {error}"
        if self.kind.borne:
            self.breach(f"raised what should have been borne: {told}")
        if not isinstance(error, DOCUMENTED):
            self.breach(f"an exception that is not documented: {told}")
        elif not isinstance(error, MemoryError) and not any(n in told for n in self._names):
            self.breach(f"names no file: {told}")
        elif isinstance(error, OSError) and self._is_read(error) and not READS.search(told):
            self.breach(f"says neither offset nor length: {told}")
        elif type(error).__name__ == "ShortReadError" and not CUT.search(told):
            self.breach(f"says not what was wanted and got: {told}")

    def _is_read(self, error: OSError) -> bool:
        told = self.kind.name.startswith("read:") and error.errno in (errno.EIO, errno.EAGAIN)
        return told and "stat" not in str(error)

    def attempt(self, call: Callable[[], T]) -> T:
        """Makes a call; when it fails, again without faults, which must work."""
        failed = False
        for _ in range(TRIES):
            try:
                result = call()
            except StopIteration:
                self.wrong += 1
                self.breach("an iterator ended too early" + " after it failed" * failed)
                raise BrokenError from None
            except Exception as error:
                failed = True
                self.note(error)
                continue
            self.recovered += failed
            if not self.armed:
                self.arm()
            return result
        self.breach("what failed does not work without faults either")
        raise BrokenError

    def equal(self, got: Any, wanted: Any, what: str) -> None:
        """Compares a result with py-lmdb's."""
        self.compared += 1
        if got != wanted:
            self.wrong += 1
            self.breach(f"wrong: {what}")
