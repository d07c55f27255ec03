"""The folder of a data set that is being written.

    TARGET.part/data.mdb        the records up to now
    TARGET.part/writing.json    the note: what is written, for the run that goes on with it

Invariants:
  - a part is locked as long as its writer lives;
  - a part has a note before it has data: a folder with data and no note is another's;
  - a part whose note has facts holds committed records; any other is of no use, and is emptied;
  - TARGET is a whole part, renamed: the kernel does that at once.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmdbio.errors import Error
from lmdbio.provenance.paths import DATA, SUFFIX
from lmdbio.system.publish import has_name, refuse_taken, sync_folder, try_lock, unwritable

__all__ = ["WHAT", "Part"]

#: The data set, in messages.
WHAT = "the data set"
NOTE = "writing.json"
FIELDS = {"facts", "columns", "is_sorted"}
#: Names that a writer gives in a part; the last ones are of its provenance file's drafts.
OURS = re.compile(
    "|".join(map(re.escape, (DATA, DATA + SUFFIX, "sorted", NOTE, NOTE + ".new")))
    + r"|\.lmdbio-[0-9a-f]{16}-[0-9a-f]{16}\.tmp"
)
#: The file that precedes a first note.
DRAFT = re.compile(re.escape(NOTE + ".new"))


class Part:
    """A part, locked.

    Args:
        target: path of the data set.
        facts: facts, by name, of what is written: a part of the same facts is continued. None: it
            is not continued.

    Attributes:
        target: path of the data set.
        folder: path of the part.
        columns: number of records of a sample that an earlier run has put; 0: records alone.
        is_sorted: whether all that is in it was put in the order of keys.
        is_resumed: whether an earlier run has left it.

    Raises:
        FileExistsError: the target exists, or a part of it that is another's.
        BlockingIOError: another process writes it.
        Error: a fact has changed.
        OSError: nothing can be written there.
    """

    def __init__(self, target: Path, facts: Mapping[str, str] | None) -> None:
        self.target, self._facts = target, None if facts is None else dict(facts)
        self.folder = target.with_name(target.name + ".part")
        self.columns, self.is_sorted = 0, True
        # A run was killed between giving the name and removing the note; or it is at that now.
        is_named = self._is_named()
        if not is_named:
            refuse_taken(target, WHAT, folder=True)
        self._fd = self._lock(target if is_named else self.folder)
        try:
            if is_named:
                if not self._is_named():  # its writer has ended before the lock
                    refuse_taken(target, WHAT, folder=True)
                target.rename(self.folder)
            self.is_resumed = self._resume()
            #: Whether the note has facts.
            self._is_noted = self.is_resumed
            if not self.is_resumed:
                _empty(self.folder)
        except BaseException:
            os.close(self._fd)
            raise

    def _is_named(self) -> bool:
        """Return whether a part of these facts has the name of the data set, and its note yet."""
        is_same = bool(self._facts) and _note_in(self.target).get("facts") == self._facts
        return is_same and not self.folder.exists()

    def _lock(self, folder: Path) -> int:
        try:
            folder.mkdir(exist_ok=True)
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unwritable(error, self.target, WHAT) from error
        # Another writer may have published it between the two calls.
        if try_lock(fd) is False or not has_name(fd, folder):
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, "another process writes it", str(self.target))
        return fd

    def _resume(self) -> bool:
        """Read the note of an earlier run, if there is one; return whether there is.

        Raises:
            FileExistsError, Error: the part is of something else.
        """
        note = _note_in(self.folder)
        before = note.get("facts")
        if before is None:
            return False
        if self._facts is None:
            text = "holds what was written until that was broken off: remove it, or end that first"
            raise FileExistsError(errno.EEXIST, text, str(self.folder))
        # A file that is new or gone changes their order, too: say the file.
        for name in sorted((*before, *self._facts), key="order".__eq__):
            old, new = before.get(name), self._facts.get(name)
            if old != new:
                raise Error(
                    f"{self.target}: the source has changed since its import began: {name} "
                    f"{_was(old, new)}; remove {self.folder} to begin again"
                )
        self.columns, self.is_sorted = int(note["columns"]), bool(note["is_sorted"])
        return True

    def begin(self) -> None:
        """Mark it as a writer's, before there is data in it."""
        if not self.is_resumed:
            self._write(None)

    def note(self, columns: int, is_sorted: bool) -> None:
        """Note what will be committed next, where another run is to go on with it."""
        is_same = (columns, is_sorted) == (self.columns, self.is_sorted)
        if self._facts is None or (self._is_noted and is_same):
            return
        self.columns, self.is_sorted = columns, is_sorted
        self._write(self._facts)
        self._is_noted = True

    def _write(self, facts: Mapping[str, str] | None) -> None:
        """Write the note."""
        content = {"facts": facts, "columns": self.columns, "is_sorted": self.is_sorted}
        draft = self.folder / (NOTE + ".new")
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / NOTE)
        except OSError as error:
            raise unwritable(error, self.target, WHAT) from error

    def publish(self) -> None:
        """Give it the name of the data set.

        Raises:
            FileExistsError: something else has got that name.
            OSError: nothing can be renamed there.
        """
        try:
            sync_folder(self.folder)
            self.folder.rename(self.target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                text = "came to exist meanwhile"
                raise FileExistsError(errno.EEXIST, text, str(self.target)) from error
            raise unwritable(error, self.target, WHAT) from error
        sync_folder(self.target.parent)
        (self.target / NOTE).unlink(missing_ok=True)
        self._unlock()

    def leave(self) -> None:
        """Leave a part that can be continued; remove any other one. May be called again."""
        if not self._is_noted:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _note_in(folder: Path) -> dict[str, Any]:
    """Return a folder's note; empty: there is no whole one."""
    try:
        found: dict[str, Any] = json.loads((folder / NOTE).read_bytes())
        return found if found.keys() == FIELDS else {}
    except (OSError, ValueError, AttributeError):
        return {}


def _was(old: str | None, new: str | None) -> str:
    """Say how a fact has changed."""
    if old is None:
        return f"is new: {new}"
    return f"was {old}, and is " + ("gone" if new is None else f"{new} now")


def _empty(folder: Path) -> None:
    """Remove what a dead run left.

    Raises:
        FileExistsError: something in it is another's; nothing is removed.
    """
    found = list(folder.iterdir())
    ours = OURS if _note_in(folder) else DRAFT
    other = next((left for left in found if not ours.fullmatch(left.name)), None)
    if other is not None:
        text = f"has {other.name}, which no writer has put there: move that folder away"
        raise FileExistsError(errno.EEXIST, text, str(folder))
    for left in found:
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
