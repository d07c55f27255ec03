"""phases: whether roots read what their own ranks use, or slices that they share out; and in turn.

    one phase     root -> the rows of its own ranks                      tokens keep roots in order
    two phases    root -> a slice of the next records -> whoever uses each    the exchange

Records that follow one another go to all ranks in turn. Where a rank's part of a batch is small,
its root finds its rows in small pieces, and the store serves many small requests, each of them out
of order; in two phases, requests are as large as a slice, whatever the ranks do with it.

Roots that read their own rows in turn hand tokens on: how many, ``count_tokens`` says, and why.

Source: two-phase I/O (del Rosario, Bordawekar, Choudhary, 1993; Thakur, Gropp, Lusk, ROMIO, 1999).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lmdbio import share
from lmdbio.machine.calibration import Staggering
from lmdbio.machine.choice import Reason
from lmdbio.machine.measured import choose_tokens
from lmdbio.planning.mode import AUTO, USUAL_TOKENS, Mode
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle
from lmdbio.system.log import log

__all__ = ["ROOTS_PER_TOKEN", "Sliced", "choose_phases", "count_tokens", "usual_tokens"]

#: Of a root, each time. With 8 MiB the store served an eighth less, with 32 MiB no more.
SLICE_BYTES = 16 * 2**20
#: Roots that find their rows in larger pieces read these as fast in turn, and send nothing, where
#: nodes have a page cache, which reads ahead; without one slices are faster up to 8 MiB.
PIECE_BYTES_MAX = 2**20
#: One token for so many roots, where no job has measured.
ROOTS_PER_TOKEN = 8


class Sliced(NamedTuple):
    """The order that roots read in slices, and why.

    Attributes:
        epochs: the order whose windows roots read in slices; None: each reads its own rows.
        reason: reason for the choice.
    """

    epochs: Epochs | None
    reason: Reason

    @property
    def are_read(self) -> bool:
        """Whether roots read whole windows of it."""
        return self.epochs is not None


def choose_phases(mode: Mode, schedule: Schedule, bytes_used: int, *, suggested: bool) -> Sliced:
    """Return the order whose windows roots are to read in slices, if they are.

    Args:
        mode: mode that the caller asked for.
        schedule: schedule of all ranks.
        bytes_used: size of all records in the file, bytes.
        suggested: whether the caller left the mode to us, and roots are on several nodes, of which
            the storage is far.
    """
    epochs, roots = schedule.epochs, len(schedule.teams)
    if epochs is not None and not epochs.shuffle.has_windows:
        return Sliced(None, Reason("facts", "records come in no windows"))
    if mode.phases == 1 and roots > 1:
        return Sliced(None, Reason("keyword", "one phase, as the mode says"))
    if epochs is not None:
        return Sliced(epochs, Reason("facts", "each byte is read once an epoch"))
    if roots == 1:
        return Sliced(None, Reason("facts", "one root reads all records"))
    record_bytes = bytes_used / schedule.count
    piece = max(max(schedule.runs(team), default=0) for team in range(roots))
    piece_bytes = int(piece * record_bytes)
    in_file_order = _in_file_order(schedule.count, int(roots * SLICE_BYTES / record_bytes))
    if in_file_order is None:
        return Sliced(None, Reason("facts", "one record has no slices"))
    if mode.phases != AUTO:
        return Sliced(in_file_order, Reason("keyword", "two phases, as the mode says"))
    if not suggested or not schedule.assignment.follows_places:
        return Sliced(None, Reason("facts", "each root reads the rows of its own ranks"))
    if piece_bytes > PIECE_BYTES_MAX:
        why = f"a root finds its rows in pieces of {piece_bytes >> 20} MiB"
        return Sliced(None, Reason("facts", why))
    why = f"a root would find its rows in pieces of {piece_bytes >> 10} KiB"
    return Sliced(in_file_order, Reason("facts", why))


def _in_file_order(count: int, window: int) -> Epochs | None:
    """Return the order of the file, as windows of so many records; None: there are too few."""
    size = min(max(window, 2), count)
    return Epochs(count, None, Shuffle.windows(size, 1)) if size > 1 else None


def usual_tokens(roots: int) -> int:
    """Return the number of tokens where no job has measured: one for eight roots.

    One token brings a block for each hop: 8 MiB in 1.5 ms are 5 GB/s, which is more than the
    links of a few nodes carry together. The fewer, the more nearly roots read the file in order.
    """
    return max(1, roots // ROOTS_PER_TOKEN)


def count_tokens(
    job: share.Job,
    schedule: Schedule,
    mode: Mode,
    measured: Sequence[Staggering] = (),
    *,
    suggested: bool,
) -> tuple[int, Reason]:
    """Return how many tokens there are, and why; the same on all ranks. Not collective.

    Args:
        schedule: says which roots have records at all.
        mode: mode that the caller asked for.
        measured: measurements of jobs on the first root's storage; the same on all ranks.
        suggested: whether no caller asked for tokens by name: there are none where MPI cannot hand
            them on, or where jobs measured that they gain nothing.

    Returns:
        0 tokens where every root reads whenever it can.

    Source: LMDBIO (ACM TOPC 2019), I/O staggering.
    """
    readers = sum(schedule.team_rows(i) > 0 for i in range(len(schedule.teams)))
    tokens, reason = mode.tokens, Reason("keyword", "as the mode says")
    if mode.tokens == USUAL_TOKENS:
        reason = Reason("facts", f"one for {ROOTS_PER_TOKEN} roots, for no job has measured")
        tokens, reason = choose_tokens(
            measured,
            nodes=len(job.nodes),
            roots=readers,
            assignment=schedule.assignment,
            may_be_none=suggested,
        ) or (usual_tokens(readers), reason)
    elif suggested:
        reason = Reason("facts", "turns are for several nodes that read one file far away")
    if tokens >= readers:
        return 0, Reason("facts", "every root would have a turn of its own")
    if tokens and suggested and not job.is_threaded:
        reason = Reason("facts", "this MPI was initialised for one thread alone")
        log(f"roots read whenever they can, instead of in turn: {reason.text}")
        return 0, reason
    return tokens, reason
