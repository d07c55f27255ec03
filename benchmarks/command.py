"""A command that runs before something made for it alone: signals, its end, its exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

UNAVAILABLE, FAILED = 69, 70  # sysexits.h: EX_UNAVAILABLE, EX_SOFTWARE
NOT_FOUND = 127  # as a shell says
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_TO_DIE = 5.0


class Missing(Exception):
    """Something that this machine lacks; the message says what, and how to get it."""


class Failed(Exception):
    """A step did not work; the message says which."""


class Interrupted(BaseException):
    """A signal asks for the end; the first one only, so that cleaning up is not disturbed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, _frame: object) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def words_of(known: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the words of a list with commas, or all that are known for "all".

    Raises:
        ValueError: one of them is not known.
    """
    if text == "all":
        return tuple(known)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in known:
            raise ValueError(f"{word!r}: there are {', '.join(known)}, all")
    return words


def guarded(run: Callable[[], int]) -> int:
    """Return the exit status of ``run``, which a signal ends as ``Interrupted``.

    Args:
        run: makes what the command needs, runs it, and takes all down however it ends. It raises
            ``Missing`` where this machine cannot do it, ``Failed`` when a step failed.
    """
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return run()
    except (Missing, Failed) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return UNAVAILABLE if isinstance(error, Missing) else FAILED
    except Interrupted as interrupted:
        return 128 + interrupted.number


def carry_out(
    words: Sequence[str],
    paths: Mapping[str, Path],
    variables: Mapping[str, str],
    *,
    prefix: Sequence[str] = (),
    left: Callable[[], Sequence[int]] = tuple,
) -> tuple[int, float]:
    """Run a command; return its exit status as a shell gives it, and the seconds it took.

    Args:
        words: of the command; {NAME} stands for the path of that name.
        paths: by name.
        variables: further ones of its environment.
        prefix: words before it.
        left: finds the processes that it has left behind; they are killed.
    """
    for name, path in paths.items():
        words = [word.replace(f"{{{name}}}", str(path)) for word in words]
    begun = time.monotonic()
    try:
        process = subprocess.Popen(
            [*prefix, *words], env={**os.environ, **variables}, start_new_session=True
        )
    except OSError as error:
        print(f"run.py: {words[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND, 0.0
    try:
        code = process.wait()
    except Interrupted as interrupted:
        _end(process, interrupted.number)
        raise
    finally:
        _kill(left, process)
    return (code if code >= 0 else 128 - code), time.monotonic() - begun


def _end(process: subprocess.Popen[Any], number: int) -> None:
    """Hand a signal to a command and all of its group, and see them end."""
    for each in (number, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, each)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_DIE)
            return


def _kill(left: Callable[[], Sequence[int]], process: subprocess.Popen[Any]) -> None:
    """Kill what is left behind, until nothing is."""
    end = time.monotonic() + SECONDS_TO_DIE
    while (found := left()) and time.monotonic() < end:
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)
        process.poll()
