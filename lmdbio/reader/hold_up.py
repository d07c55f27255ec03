"""Hold-up: a root's memory is full of rows that other roots, far behind, have not asked for.

Not for ever: the root takes them back, and those roots read them from the file when they come.
"""

from __future__ import annotations

from time import monotonic

from lmdbio.reader.holdings import Holdings
from lmdbio.system.log import tell

__all__ = ["HoldUp"]

#: Once rows were taken back, the same roots are waited for this part of the time, until none had
#: to be taken back for so long, seconds.
IMPATIENT_PART, IMPATIENT_SECONDS = 20, 5.0


class HoldUp:
    """Takes rows back from a root's holdings, where others keep it waiting.

    A block may have rows of many windows, and this root's own may all be in the last: while one
    window after the other is used up, nobody is behind.

    Args:
        holdings: holdings whose memory is full.
        path: path of the file, for the logger.
    """

    def __init__(self, holdings: Holdings, path: str) -> None:
        self._holdings, self._path = holdings, path
        # How far this root had come when it could not go on, and since when.
        self._since: tuple[object, float] | None = None
        self._taken_s = -IMPATIENT_SECONDS

    def note(self, patience_s: float, *, may_hurry: bool) -> None:
        """Note that the root cannot go on; take rows back if that is so for too long.

        Args:
            patience_s: time after which rows are taken back, seconds.
            may_hurry: whether, soon after rows were taken back, a part of it suffices.
        """
        progress, now_s = self._holdings.progress, monotonic()
        if self._since is None or self._since[0] != progress:
            self._since = progress, now_s
        if may_hurry and now_s < self._taken_s + IMPATIENT_SECONDS:
            patience_s /= IMPATIENT_PART
        if now_s - self._since[1] > patience_s:
            tell(f"{self._path}: rows for roots that are far behind are taken back")
            self._holdings.take_back()
            self._taken_s = now_s

    def end(self) -> None:
        """Note that the root has gone on."""
        self._since = None
