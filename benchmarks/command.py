"""A command that runs before something made for it alone: signals, its end, its exit status."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb

from lmdbio.bench.processes import RunFailed, end
from lmdbio.system.signals import ended_by_signals, number_of

UNAVAILABLE, FAILED = 69, 70  # sysexits.h: EX_UNAVAILABLE, EX_SOFTWARE
NOT_FOUND = 127  # as a shell says
SECONDS_TO_DIE = 5.0


class Missing(Exception):
    """Something that this machine lacks; the message says what, and how to get it."""


class Failed(Exception):
    """A step did not work; the message says which."""


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
    """Return the exit status of ``run``, which signals end as Ctrl-C does.

    Args:
        run: makes what the command needs, runs it, and takes all down however it ends. It raises
            ``Missing`` where this machine cannot do it, ``Failed`` or ``RunFailed`` when a step
            failed.
    """
    try:
        with ended_by_signals():
            return run()
    except (Missing, Failed, RunFailed, OSError, ValueError, lmdb.Error) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return UNAVAILABLE if isinstance(error, Missing) else FAILED
    except KeyboardInterrupt as interrupt:
        return 128 + number_of(interrupt)


def parser(program: str, words: str) -> argparse.ArgumentParser:
    """Return a parser of what every wrapper here takes: --json, a folder, a command."""
    made = plain_parser(program, words)
    made.add_argument("--json", metavar="FILE", help="the counters as JSON; - is standard output")
    made.add_argument("folder", type=_folder)
    made.add_argument("command", nargs="+", help="after --")
    return made


def plain_parser(program: str, words: str) -> argparse.ArgumentParser:
    """Return a parser that prints its words as they are."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is not a folder")
    return Path(text)


def run(
    words: Sequence[str],
    prefix: str,
    mounts: Mapping[str, Path],
    join: Sequence[str] = (),
    left: Callable[[], Sequence[int]] = tuple,
) -> tuple[int, float]:
    """Run a command; return its exit status as a shell gives it, and the seconds it took.

    Args:
        words: of the command; {NAME} in them stands for a mount.
        prefix: of the variables that tell the command its mounts: PREFIX_NAME, PREFIX_MOUNTS.
        mounts: by name.
        join: words before the command.
        left: finds the processes that it has left behind; they are killed.
    """
    found = {**os.environ, f"{prefix}_MOUNTS": str(len(mounts))}
    for name, mount in mounts.items():
        found[f"{prefix}_{name.upper()}"] = str(mount)
        words = [word.replace(f"{{{name}}}", str(mount)) for word in words]
    begun = time.monotonic()
    try:
        process = subprocess.Popen([*join, *words], env=found, start_new_session=True)
    except OSError as error:
        print(f"run.py: {words[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND, 0.0
    try:
        code = process.wait()
    finally:
        if process.poll() is None:  # interrupted
            end(process)
        _kill(left, process)
    return (code if code >= 0 else 128 - code), time.monotonic() - begun


def report(file: str | None, found: Mapping[str, Any], words: str) -> None:
    """Write the counters as JSON to ``file`` ("-": standard output), or print them in words."""
    if file is None:
        print(words, file=sys.stderr)
    elif file == "-":
        print(json.dumps(found, indent=1))
    else:
        Path(file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _kill(left: Callable[[], Sequence[int]], process: subprocess.Popen[Any]) -> None:
    """Kill what is left behind, until nothing is."""
    until = time.monotonic() + SECONDS_TO_DIE
    while (found := left()) and time.monotonic() < until:
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)
        process.poll()


def remove_group(group: Path) -> None:
    """Remove a control group, which processes that have ended leave a moment later."""
    until = time.monotonic() + SECONDS_TO_DIE
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
