"""Bounds of a read of a remote file: deadline, attempts, backoff.

    attempt -> failed -> backoff, longer each time -> attempt ...   no byte comes: limited attempts
    attempt -> some bytes, then failed -> attempt from there on     bytes come: until the deadline

Every wait is cut into slices; between two of them the read may be cancelled.
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

__all__ = [
    "SLICE_S",
    "TIMEOUT",
    "AbandonedError",
    "Deadline",
    "RetryPolicy",
    "RetryableError",
    "never",
]

#: Environment variable: seconds without a byte after which a connection is given up.
TIMEOUT = "LMDBIO_REMOTE_TIMEOUT_S"
#: Length of the slices of a wait: nobody notices that a read goes on for so long after its end,
#: and dozens of connections that wait for a silent server hardly use a processor.
SLICE_S = 0.2
#: Number of characters that an error quotes of a server's text.
REASON_MAX = 400
#: Limit for a request with all its attempts, in multiples of that for a silence.
TOTAL_FACTOR = 10


class AbandonedError(Error):
    """Nobody waits for a read any more."""


class RetryableError(Exception):
    """An attempt failed, and another one may succeed."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


def never() -> bool:
    """Say that a read is still wanted."""
    return False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of a request.

    Attributes:
        connect_s: limit for the connection, TLS included, seconds.
        stall_s: limit for a silence of the server.
        total_s: limit for the request with all its attempts.
        attempts: number of attempts in a row that bring no byte.
        refused_attempts: the same while a file is opened, of connections that are refused: then
            the port is wrong, or there is no server, rather than one that starts again.
        backoff_s, backoff_s_max: pause before the second attempt, and before any; each is twice
            as long as the one before, less up to a half by chance.
        retry_after_s_max: longest ``Retry-After`` that is obeyed.
    """

    connect_s: float = 10.0
    stall_s: float = 30.0
    total_s: float = 300.0
    attempts: int = 7
    refused_attempts: int = 3
    backoff_s: float = 0.2
    backoff_s_max: float = 10.0
    retry_after_s_max: float = 60.0

    @classmethod
    def from_env(cls) -> RetryPolicy:
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


class Deadline:
    """Deadline of one read of a remote file, with all its attempts.

    Args:
        policy: bounds of the read.
        name: name of the file, for errors.
        what: part of the file, for errors, such as "bytes 0-99".
        is_given_up: whether nobody waits for the read any more.
    """

    def __init__(
        self, policy: RetryPolicy, name: str, what: str, is_given_up: Callable[[], bool] = never
    ) -> None:
        self.policy, self.name, self.what = policy, name, what
        self._is_given_up = is_given_up
        self._until = time.monotonic() + policy.total_s
        self._failures = 0

    def check(self) -> None:
        """Raise if the read is to end now.

        Raises:
            AbandonedError: nobody waits any more.
            TimeoutError: the deadline has passed.
        """
        if self._is_given_up():
            raise AbandonedError(f"{self.name}: the read of {self.what} was given up")
        if time.monotonic() >= self._until:
            raise self.error(
                errno.ETIMEDOUT,
                f"{self.what} not received within {self.policy.total_s:g} s (all attempts)",
            )

    def error(self, number: int, reason: str) -> OSError:
        """Return an error of the file; its class follows from the number (PEP 3151)."""
        reason = "".join(c if c.isprintable() else "?" for c in reason[:REASON_MAX])
        return OSError(number, f"{os.strerror(number)}: {reason}", self.name)

    def progressed(self) -> None:
        """Note that bytes have come."""
        self._failures = 0

    def failed(
        self,
        reason: str,
        number: int = errno.EIO,
        after_s: float | None = None,
        attempts: int | None = None,
    ) -> None:
        """Note that an attempt failed, and wait until the next one is due.

        Args:
            reason: cause of the failure.
            number: error number, if it was the last attempt.
            after_s: seconds that the server asks for.
            attempts: bound of attempts in a row; None: that of the policy.

        Raises:
            OSError: it was the last attempt.
            AbandonedError: nobody waits any more.
        """
        policy = self.policy
        self._failures += 1
        text = f"{self.what}: {reason}"
        if self._failures >= (policy.attempts if attempts is None else attempts):
            raise self.error(number, f"{text} ({self._failures} attempts)")
        pause = min(policy.backoff_s * 2 ** (self._failures - 1), policy.backoff_s_max)
        pause *= random.uniform(0.5, 1)
        if after_s is not None:
            pause = max(pause, after_s)
            if after_s > min(policy.retry_after_s_max, self._until - time.monotonic()):
                raise self.error(number, f"{text}; Retry-After of {after_s:,.0f} s is too long")
        end = time.monotonic() + pause
        if end >= self._until:
            raise self.error(number, f"{text}; the limit of {policy.total_s:g} s is reached")
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, SLICE_S))
