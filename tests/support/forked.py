"""A command in a process of its own that need not import anything: a child of the test's process.

Streams, status, Ctrl-C and all that the command changes are its own, as if it had been typed; what
Python imports is there already. Tests of what is imported start Python anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

__all__ = ["run"]

#: A command that takes longer is ended, seconds.
SECONDS_MAX = 60


def run(
    main: Callable[[], object],
    words: list[str],
    *,
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        main: function of the command, which finds its words in ``sys.argv``.
        words: name of the command, and what follows.
        folder: current folder of the process.
        env: variables of the process; None for those of this one.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _be(main, words, folder, env, (out.fileno(), err.fileno()))
        _, status = os.waitpid(child, 0)
        told = []
        for file in (out, err):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(status), *told)


def _be(
    main: Callable[[], object],
    words: list[str],
    folder: Path,
    env: Mapping[str, str] | None,
    output: tuple[int, int],
) -> NoReturn:
    """Run the command, and end the process."""
    status = 70
    try:
        signal.alarm(SECONDS_MAX)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output[0], 1)
        os.dup2(output[1], 2)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m) for n, m in enumerate("rww"))
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        os.chdir(folder)
        sys.argv = words
        warnings.resetwarnings()
        for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning):
            warnings.simplefilter("ignore", ignored)
        status = _status_of(main)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    finally:
        os._exit(status)


def _status_of(main: Callable[[], object]) -> int:
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
