"""How long a read of a remote file may take, how often it is tried, and when it is given up.

    attempt -> failed -> pause, longer each time -> attempt ...   no byte comes: a bounded number
    attempt -> some bytes, then failed -> attempt from there on   bytes come: until time is up

Every wait is cut into slices, between which it is asked whether anybody still wants the bytes.
"""

from __future__ import annotations

import errno
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from lmdbio.errors import Error

__all__ = ["SLICE_S", "TIMEOUT", "AbandonedError", "Effort", "Patience", "never"]

#: Environment variable: seconds without a byte after which a connection is given up.
TIMEOUT = "LMDBIO_REMOTE_TIMEOUT_S"
#: A wait looks so often whether it is still wanted.
SLICE_S = 0.1
#: Of the text of a server no more than so many characters are told.
REASON_MAX = 400
#: A request with all its attempts may take so many times what a silence may.
TOTAL_FACTOR = 10


class AbandonedError(Error):
    """Nobody waits for a read any more."""


def never() -> bool:
    """Say that a read is still wanted."""
    return False


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of a request.

    Attributes:
        connect_s: to be connected, TLS included, seconds.
        stall_s: without a byte.
        total_s: for the request with all its attempts.
        attempts: in a row that bring no byte.
        pause_s, pause_s_max: before the second attempt, and before any; each is twice as long as
            the one before, less up to a half by chance.
        retry_after_s_max: that a server may ask for by ``Retry-After``.
    """

    connect_s: float = 10.0
    stall_s: float = 30.0
    total_s: float = 300.0
    attempts: int = 7
    pause_s: float = 0.2
    pause_s_max: float = 10.0
    retry_after_s_max: float = 60.0

    @classmethod
    def from_env(cls) -> Patience:
        """Return the usual bounds, or those that the environment asks for.

        Raises:
            ValueError: the variable is no number above 0.
        """
        text = os.environ.get(TIMEOUT, "").strip()
        if not text:
            return cls()
        try:
            stall_s = float(text)
        except ValueError:
            stall_s = math.nan
        if not 0 < stall_s < math.inf:
            raise ValueError(f"{TIMEOUT} must be a number of seconds above 0, not {text!r}")
        connect_s = min(cls().connect_s, stall_s)
        return cls(connect_s=connect_s, stall_s=stall_s, total_s=TOTAL_FACTOR * stall_s)


class Effort:
    """One read of a remote file, with all its attempts.

    Args:
        patience: its bounds.
        name: of the file, for errors.
        what: of the file that is read, for errors, such as "bytes 0-99".
        is_given_up: nobody waits for it any more.
    """

    def __init__(
        self, patience: Patience, name: str, what: str, is_given_up: Callable[[], bool] = never
    ) -> None:
        self.patience, self.name, self.what = patience, name, what
        self._is_given_up = is_given_up
        self._until = time.monotonic() + patience.total_s
        self._failures = 0

    def check(self) -> float:
        """Return how many seconds are left.

        Raises:
            AbandonedError: nobody waits any more.
            TimeoutError: none is.
        """
        if self._is_given_up():
            raise AbandonedError(f"{self.name}: the read of {self.what} was given up")
        left = self._until - time.monotonic()
        if left <= 0:
            raise self.error(
                errno.ETIMEDOUT,
                f"{self.what} did not come within {self.patience.total_s:g} s, in all attempts",
            )
        return left

    def error(self, number: int, reason: str) -> OSError:
        """Return an error of the file; its class follows from the number (PEP 3151)."""
        reason = "".join(c if c.isprintable() else "?" for c in reason[:REASON_MAX])
        return OSError(number, f"{os.strerror(number)}: {reason}", self.name)

    def progressed(self) -> None:
        """Note that bytes have come."""
        self._failures = 0

    def failed(self, reason: str, number: int = errno.EIO, after_s: float | None = None) -> None:
        """Note that an attempt has failed, and wait until the next one is due.

        Args:
            reason: why.
            number: of the error, if it was the last one.
            after_s: seconds that the server asks for.

        Raises:
            OSError: it was the last attempt.
            AbandonedError: nobody waits any more.
        """
        patience = self.patience
        self._failures += 1
        if self._failures >= patience.attempts:
            raise self.error(number, f"{self.what}: {reason} ({self._failures} attempts)")
        pause = min(patience.pause_s * 2 ** (self._failures - 1), patience.pause_s_max)
        pause *= random.uniform(0.5, 1)
        if after_s is not None:
            pause = max(pause, after_s)
            if after_s > min(patience.retry_after_s_max, self._until - time.monotonic()):
                raise self.error(
                    number,
                    f"{self.what}: {reason}, and is not to be asked for {after_s:,.0f} s",
                )
        self._pause(pause, reason, number)

    def _pause(self, pause: float, reason: str, number: int) -> None:
        end = time.monotonic() + pause
        if end >= self._until:
            raise self.error(
                number,
                f"{self.what}: {reason}; {self.patience.total_s:g} s, for all attempts, are over",
            )
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, SLICE_S))
