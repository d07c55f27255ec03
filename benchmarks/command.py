"""A command that runs before something made for it alone: signals, its end, its exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["SECONDS_TO_DIE", "Interrupted", "guarded", "signalled", "status"]

UNAVAILABLE, FAILED = 69, 70  # sysexits.h: EX_UNAVAILABLE, EX_SOFTWARE
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_TO_DIE = 5.0


class Interrupted(BaseException):
    """A signal asks for the end; the first one only, so that cleaning up is not disturbed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: object) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def guarded(run: Callable[[], int], missing: type[Exception], failed: type[Exception]) -> int:
    """The exit status of ``run``, which a signal ends as ``Interrupted``.

    Args:
        run: makes what the command needs, runs it, and takes all down however it ends.
        missing: raised where this machine cannot do it.
        failed: raised when a step failed.
    """
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return run()
    except missing as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return UNAVAILABLE
    except failed as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return FAILED
    except Interrupted as interrupted:
        return 128 + interrupted.number


def status(code: int) -> int:
    """An exit status as a shell gives it."""
    return code if code >= 0 else 128 - code


def signalled(process: subprocess.Popen[bytes], number: int) -> bool:
    """Hands a signal to a command and all of its group; says whether the command has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        process.wait(SECONDS_TO_DIE)
    except subprocess.TimeoutExpired:
        return False
    return True
