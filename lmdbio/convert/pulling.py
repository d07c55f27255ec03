"""Copy a data file from elsewhere, from its first byte on.

    FILE.part           the bytes up to now
    FILE.part.note      of which state, and how many of them are on the disk

Invariants:
  - all bytes are of one state: each piece is read against it, and a note of another state counts
    for nothing;
  - bytes are noted after they are on the disk;
  - FILE appears whole, after all its trees were read and found sound, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lmdbio import _core
from lmdbio.convert.verify import verify
from lmdbio.errors import Error
from lmdbio.provenance import find_data
from lmdbio.provenance.freshness import Progress
from lmdbio.provenance.paths import DATA, SUFFIX
from lmdbio.remote import is_url, open_data
from lmdbio.remote.url import redacted, with_suffix
from lmdbio.system.log import WARNING, log
from lmdbio.system.publish import Draft, has_name, try_lock, unwritable

__all__ = ["PullReport", "pull"]

#: A piece is one request; so many are in flight, and in memory.
PIECE_BYTES, DEPTH = 4 << 20, 16
#: Both meta pages lie in so many bytes.
METAS_BYTES = 128 << 10
#: So often what has come is put to the disk, and noted.
NOTE_SECONDS = 2.0
WHAT = "the copy"


@dataclass(frozen=True, slots=True)
class PullReport:
    """The result of ``pull``.

    Attributes:
        source: the URL, for people.
        target: the file.
        sidecar: path of its provenance file, which came along; None: there was none.
        bytes: size of the file.
        resumed_bytes: part of ``bytes`` that was there already from a run before.
        records: number of records that were found sound.
        seconds: duration of the copy.
    """

    source: str
    target: Path
    sidecar: Path | None
    bytes: int
    resumed_bytes: int
    records: int
    seconds: float


def pull(
    url: str,
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PullReport:
    """Copy a data file from elsewhere, and its provenance file if there is one.

    A run that is broken off leaves its part, and the next one goes on with it, as long as the file
    is in the same state there.

    Args:
        url: URL of the data file, or of its folder, with "/" at its end.
        target: a file; or a folder, which is there or ends in "/", for ``data.mdb``.
        overwrite: whether to take the place of a file that is there.
        progress: function of (done, in all, stage): "copy" counts bytes, "verify" pages.

    Raises:
        FileExistsError: the target is there, and ``overwrite`` is False.
        BlockingIOError: another process copies to it.
        ValueError: ``url`` is none.
        OSError, Error: the file cannot be read or written, has changed meanwhile, or is damaged.
    """
    begun = time.monotonic()
    if not is_url(url):
        raise ValueError(f"{url}: is no URL; files of this machine are copied by cp")
    goal = _goal(target)
    if not overwrite and os.path.lexists(goal):
        raise FileExistsError(errno.EEXIST, "exists", str(goal))
    source = os.fspath(find_data(url))
    with open_data(source, depth=DEPTH) as engine, _Part(goal, _State.of(engine)) as part:
        resumed = part.written
        _copy(engine, part, progress)
        try:
            _refuse_change(engine, part)
            report = verify(part.path, progress=progress, stage="verify")
        except Error:
            part.discard()
            raise
        part.publish()
    sidecar = _copy_sidecar(source, goal)
    return PullReport(
        source=redacted(url),
        target=goal,
        sidecar=sidecar,
        bytes=goal.stat().st_size,
        resumed_bytes=resumed,
        records=report.records,
        seconds=time.monotonic() - begun,
    )


def _goal(target: str | os.PathLike[str]) -> Path:
    """Return the file to be written; the folder that is named for it is made."""
    goal = Path(target)
    if goal.is_dir() or os.fspath(target).endswith(os.sep):
        goal = goal / DATA
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, goal, WHAT) from error
    return goal


# --- the part -----------------------------------------------------------------------------


class _State(NamedTuple):
    """The state of the file elsewhere."""

    size: int
    validator: str

    @classmethod
    def of(cls, engine: _core.Engine) -> _State:
        file = engine.remote_file
        assert file is not None
        return cls(file.size, file.validator)


class _Part:
    """A file that is being copied, and the note beside it.

    Attributes:
        path: path of the file.
        written: number of bytes that are written, of which an earlier run may have left some.
    """

    def __init__(self, goal: Path, state: _State) -> None:
        self._goal, self._state = goal, state
        self.path = goal.with_name(goal.name + ".part")
        self._note = goal.with_name(goal.name + ".part.note")
        self._noted_s = time.monotonic()
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise unwritable(error, goal, WHAT) from error
        try:
            # Two that copy to one file would cut and publish it under each other.
            is_locked = try_lock(self._fd)
            if is_locked is None:
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            # Another process may have published it between the two calls.
            is_ours = is_locked and has_name(self._fd, self.path)
            if is_ours:
                self.written = self._noted = self._read_note()
                os.ftruncate(self._fd, self.written)
        except OSError as error:
            os.close(self._fd)
            raise unwritable(error, goal, WHAT) from error
        if not is_ours:
            os.close(self._fd)
            raise BlockingIOError(errno.EAGAIN, "another process copies to it", str(goal))

    def _note_for(self, count: int) -> dict[str, Any]:
        return {"version": 2, **self._state._asdict(), "bytes": count}

    def _read_note(self) -> int:
        """Return the bytes that an earlier run has left; none of another state."""
        try:
            noted = json.loads(self._note.read_bytes())
            count = int(noted["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        is_there = 0 <= count <= os.fstat(self._fd).st_size
        return (
            count if is_there and self._state.validator and noted == self._note_for(count) else 0
        )

    def write(self, content: memoryview) -> None:
        """Write what comes next, and put to the disk and note what has come, from time to time."""
        try:
            while content:
                count = os.pwrite(self._fd, content, self.written)
                content, self.written = content[count:], self.written + count
            if time.monotonic() >= self._noted_s + NOTE_SECONDS:
                self.note()
        except OSError as error:
            raise unwritable(error, self._goal, WHAT) from error

    def read(self, length: int) -> bytes:
        """Return its first bytes."""
        return os.pread(self._fd, length, 0)

    def note(self) -> None:
        """Put to the disk what was written, and note it.

        Raises:
            OSError: the disk fails.
        """
        os.fsync(self._fd)
        draft = self._note.with_name(self._note.name + ".new")
        draft.write_text(json.dumps(self._note_for(self.written)), encoding="utf-8")
        draft.replace(self._note)
        self._noted, self._noted_s = self.written, time.monotonic()

    def discard(self) -> None:
        """Leave nothing for the next run."""
        for path in (self.path, self._note):
            path.unlink(missing_ok=True)

    def publish(self) -> None:
        """Give it its name."""
        try:
            os.fsync(self._fd)
            self.path.replace(self._goal)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(error, self._goal, WHAT) from error

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.written > self._noted and self.path.exists():
                with contextlib.suppress(OSError):
                    self.note()
        finally:
            os.close(self._fd)


# --- copying ------------------------------------------------------------------------------


def _copy(engine: _core.Engine, part: _Part, progress: Progress | None) -> None:
    """Bring all that is missing, several pieces in flight."""
    size, asked = engine.size(), part.written
    free = [
        _core.Memory(PIECE_BYTES) for _ in range(min(DEPTH, -(-(size - asked) // PIECE_BYTES)))
    ]
    flying: deque[tuple[int, _core.Memory, _core.Ticket]] = deque()
    try:
        while part.written < size:
            while asked < size and free:
                length, memory = min(PIECE_BYTES, size - asked), free.pop()
                reads = np.array([(asked, length, length, memory.address)], _core.READ)
                flying.append((length, memory, engine.submit(reads, memory)))
                asked += length
            length, memory, ticket = flying[0]
            ticket.wait()
            flying.popleft()
            part.write(memoryview(_core.lend(memory.address, length, memory)).cast("B"))
            free.append(memory)
            if progress is not None:
                progress(part.written, size, "copy")
    finally:
        for *_, ticket in flying:
            ticket.close()
    part.note()


def _refuse_change(engine: _core.Engine, part: _Part) -> None:
    """Hold the meta pages that were copied against those that are there now.

    Nothing else tells of a change where the server does not hold each range against an ETag.
    """
    if engine.keeps_state:
        return
    length = min(METAS_BYTES, engine.size())
    if part.read(length) != engine.read(0, length):
        raise Error(f"{engine.path}: changed while it was copied; copy it again")


def _copy_sidecar(source: str, goal: Path) -> Path | None:
    """Copy the provenance file as well; None: there is none that can be read.

    One that is there is of the file whose place was taken, and goes.
    """
    place = goal.with_name(goal.name + SUFFIX)
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(error, place, "the provenance file") from error
    try:
        with open_data(with_suffix(source, SUFFIX)) as engine:
            content = engine.read(0, engine.size())
    except (FileNotFoundError, PermissionError):
        return None
    except (OSError, Error) as error:  # the data is there, and whole
        log(f"the provenance file is not copied: {error}", WARNING)
        return None
    with Draft(place, "the provenance file") as draft:
        draft.write(content, 0)
        draft.sync()
        draft.publish(overwrite=True)
    return place
