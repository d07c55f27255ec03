"""Run LMDB's copy in a process of its own, whose pipe reports how far it is.

py-lmdb copies, which keeps every kind of database and both data formats. It dies by a signal of
damage that it maps, and a call into it cannot be ended: so it has a process, which ends when
nobody reads its pipe. Databases with duplicates of one size (dupfixed), of which LMDB's copy dies
when one key has many, are put record by record, into a new file.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from lmdbio.errors import Error, IncompatibleError

__all__ = ["Copier", "copy_pages", "put_records"]

#: Read from the pipe at once; LMDB writes as much.
PIECE_BYTES = 1 << 20
#: From the end of its pipe to the end of the process that copies; then it is killed.
SECONDS_TO_END = 5.0
#: Of what a copying process tells.
NUMBER_BYTES = 8


class Copier:
    """The process in which LMDB works; it ends with its pipe, also when we are killed.

    Args:
        program: a function that needs nothing around it, so that the process is soon ready.
        arguments: arguments of the program; the first is the environment that is copied.
    """

    def __init__(self, program: Callable[[], None], arguments: list[str]) -> None:
        self._home = arguments[0]
        code = f"{inspect.getsource(program)}\n{program.__name__}()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            start_new_session=True,  # Ctrl-C is ours to handle
        )

    def _pipe(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def number(self) -> int | None:
        """The next eight bytes; None at the end."""
        head = b""
        while len(head) < NUMBER_BYTES:
            more = os.read(self._pipe(), NUMBER_BYTES - len(head))
            if not more:
                return None
            head += more
        return int.from_bytes(head, "little")

    def pieces(self) -> Iterator[memoryview]:
        """All that follows; each piece is good until the next one is asked for."""
        with contextlib.suppress(OSError):  # fewer turns; the kernel may have its limits
            fcntl.fcntl(self._pipe(), fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        memory = memoryview(bytearray(PIECE_BYTES))
        while taken := os.readv(self._pipe(), [memory]):
            yield memory[:taken]

    def finish(self, hint: str) -> None:
        """Waits for the end of the process.

        Raises:
            IncompatibleError: it died. ``hint`` says what that may come from.
            Error: LMDB refused, and why.
        """
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace").split("\n")
        status = self._process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            raise IncompatibleError(f"{self._home}: LMDB's compacting copy died of {name}{hint}")
        if status:
            last = next((line for line in reversed(words) if line.strip()), f"status {status}")
            raise Error(f"{self._home}: LMDB's compacting copy failed: {last.strip()}{hint}")

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        # Its next write fails, and LMDB ends in order.
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def copy_pages() -> None:
    """A program: its transaction and then all pages, to standard output."""
    import os
    import sys

    import lmdb

    home, subdir, map_size = sys.argv[1:]
    folder, map_bytes = subdir == "1", int(map_size)
    try:
        with lmdb.open(os.fsencode(home), map_bytes, folder, readonly=True, lock=False) as env:
            with env.begin() as txn:
                os.write(1, int(txn.id()).to_bytes(8, "little"))
                env.copyfd(1, compact=True, txn=txn)
    except (lmdb.Error, OSError, MemoryError) as error:
        sys.exit(str(error) or type(error).__name__)


def put_records() -> None:
    """A program: puts every record, in order and in one transaction, into a new file.

    Tells its transaction, and from time to time how many items were put, on standard output.
    """
    import itertools
    import os
    import sys

    import lmdb

    home, subdir, map_size, target, version, *names = sys.argv[1:]
    folder, map_bytes, count = subdir == "1", int(map_size), 0
    named = [bytes.fromhex(name) for name in names]
    keys = {name + (b"" if version == "1" else b"\0") for name in named}

    def report(number: int) -> None:
        os.write(1, number.to_bytes(8, "little"))

    try:
        old = lmdb.open(os.fsencode(home), map_bytes, folder, True, lock=False, max_dbs=len(named))
        fresh = {"subdir": False, "lock": False, "sync": False}
        new = lmdb.open(
            os.fsencode(target),
            map_bytes,
            max_dbs=len(named),
            lib_version=int(version != "1"),
            **fresh,
        )
        with old, new, old.begin(buffers=True) as source, new.begin(write=True) as made:
            report(source.id())
            for name in [None, *named]:
                db = old.open_db(name, source, create=False)
                items = source.cursor(db).iternext()
                if name is None:
                    items = (item for item in items if bytes(item[0]) not in keys)
                copy = made.cursor(new.open_db(name, made, **db.flags()))
                while some := list(itertools.islice(items, 1000)):
                    copy.putmulti(some, dupdata=True, append=True)
                    count += len(some)
                    report(count)
    except (lmdb.Error, OSError, MemoryError) as error:
        sys.exit(str(error) or type(error).__name__)
