"""Block size: how many iterations a block has, and how large the slots are that hold it."""

from __future__ import annotations

import os

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.machine.bounds import FootprintBound, LengthBound
from lmdbio.planning.mode import AUTO
from lmdbio.planning.order import Epochs
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.roots import RootSource
from lmdbio.system.frozen import dataclass

__all__ = [
    "MESSAGE_BYTES",
    "TURN_BLOCK_BYTES_TARGET",
    "Sizing",
    "WindowBuffers",
    "copied_window_bytes",
    "spare_bytes",
]

#: Bytes that a block aims for where block_iterations is derived: several requests in flight, and
#: a window whose pages are few beside the bytes that pass through it.
BLOCK_BYTES_TARGET = 8 * 2**20
#: The same where each request goes to a server, tens of milliseconds away: with two blocks of a
#: window under way, 16 requests of 4 MiB are in flight. With 8 MiB there were four, and records of
#: 3 KB came at a third of the rate.
REMOTE_BLOCK_BYTES_TARGET = 32 * 2**20
#: The same where several roots take turns: records out of place (LMDB uses pages again that a
#: commit freed, some MiB back) are a request of their own less often, and a turn, which ends when
#: the last request has begun, lasts longer than the token takes to go on.
TURN_BLOCK_BYTES_TARGET = 16 * 2**20
#: Where roots take turns and records are strided, a block is one piece for each of its iterations,
#: and the root that has the turn reads all of them: the fewer, the more nearly all roots together
#: read the file in order. A turn must still be worth a token's hop, 1-2 ms.
TURN_BYTES_TARGET = 2**20
#: Blocks of that size in the window: ranks use one while the root reads two, for the storage has
#: nothing to do between one block's last request and the next one's first. Compute that takes 1.2
#: times as long as I/O waited for 0.7-1.3 % of the time with one block read at once, and 0.4 %
#: with two.
BLOCKS_AHEAD = 3
#: Small blocks get more slots, so that a root reads as much ahead as with large ones; at most
#: so many.
SLOTS_MAX = 16
#: Whole windows in a root's memory: one is used, one is read, and between them one is guarded, or
#: the rest of it is on its way to other roots. With two, the storage waited an eighth of the time.
WINDOW_BUFFERS = 3
#: Smaller windows are read with others of their block, of which they are a small part.
WINDOW_BYTES_MIN = 2 * 2**20
#: Of messages between roots, packed.
MESSAGE_BYTES = _core.Exchange.MESSAGE_BYTES
#: A slot may be so much larger than the bound, for gaps that a root reads over.
GAP_ALLOWANCE = 1.25
#: Blocks whose rows are staged from a disk, while one before is copied: on average a root has
#: those of as many blocks as there are roots. With two, images of one root took 1.5 times as long.
STAGES = 4


@dataclass(frozen=True, slots=True)
class WindowBuffers:
    """Memory of a root for whole windows of a shuffled order.

    Attributes:
        count: windows; 0: none, and blocks are read one by one.
        size: size of each buffer, bytes.
    """

    count: int = 0
    size: int = 0


class Sizing:
    """Sizes a root's slots: by a proven bound, within the budget.

    Args:
        schedule: schedule with blocks of one iteration.
        team: index of this root's team in the schedule.
        slots: least number of slots.
        budget: bytes of this root's part of the window.
        apart: bytes of the budget that slots cannot have.
        roots_here: number of roots on this machine, which share its memory.
        takes_turns: whether roots read in turn (``Mode.tokens``).
        takes_copies: whether rows may be copied to their slots (``is_joint``).
        sliced: the order whose windows roots may read in slices; None: they read block by block.

    Attributes:
        roots_here: the argument.
        request_bytes_max: bytes per request; 0 before ``measure``.
        sliced: order that roots may read in slices; None once ``drop_windows`` was called.
        window_buffers: buffers of this root, which is alone or exchanges rows with the others.
        why_no_windows: reason for having no buffers, where the order has windows.
    """

    def __init__(
        self,
        schedule: Schedule,
        team: int,
        slots: int,
        budget: int,
        apart: int,
        roots_here: int,
        *,
        takes_turns: bool,
        takes_copies: bool = False,
        sliced: Epochs | None = None,
    ) -> None:
        self._schedule, self._team, self._slots = schedule, team, slots
        self._budget, self._outside, self._stages = budget, apart, 0
        self._rows, self.roots_here = _rows_max(schedule, team), roots_here
        self._alignment = share.SLOT_ALIGNMENT
        self.request_bytes_max = 0  # until it is measured
        self._bound = FootprintBound(1, 1)
        self._lengths = LengthBound(_core.ROW_ALIGNMENT) if takes_copies else None
        self.window_buffers, self.why_no_windows = WindowBuffers(), ""
        self._is_known, self._is_derived = True, False  # extents; the number of iterations
        self._is_cached, self._is_read_aside, self._disk_buffer = False, False, 0
        self._least_target = BLOCK_BYTES_TARGET
        self._takes_turns, self.sliced = takes_turns and len(schedule.teams) > 1, sliced

    @property
    def _usual_target(self) -> int:
        """Bytes of a block where its records lie together."""
        is_shared = self._takes_turns or self.messages > 0
        return max(self._least_target, TURN_BLOCK_BYTES_TARGET * is_shared)

    @property
    def _target(self) -> int:
        """Bytes that a block aims for."""
        if self._takes_turns and self._schedule.assignment.follows_places and not self.is_joint:
            return TURN_BYTES_TARGET
        return self._usual_target

    @property
    def _apart(self) -> int:
        """Bytes of the budget that slots cannot have."""
        buffers = self.window_buffers.count * self.window_buffers.size + self._disk_buffer
        return self._outside + self._stages + buffers + self.messages * MESSAGE_BYTES

    def measure(self, job: share.Job, source: RootSource) -> None:
        """Go through all extents once, where the source knows them, to bound a block's bytes.

        Args:
            job: job of this rank.
            source: the root's open data set and engines.
        """
        if self.request_bytes_max:
            return
        step = source.read_alignment
        if source.choice.engine == "remote":
            self._least_target = REMOTE_BLOCK_BYTES_TARGET
        self._alignment = max(share.SLOT_ALIGNMENT, os.sysconf("SC_PAGE_SIZE"), step)
        self.request_bytes_max = -(-source.choice.request_bytes_max // step) * step
        if isinstance(source.index, CursorWalk):
            # Any block may be as large as the budget allows; memory is taken as it is filled.
            self._is_known = False
            self._budget = min(self._budget, _shared_room(job) // self.roots_here)
            self._set_apart_stages(source)
            return
        self._bound = FootprintBound(self._schedule.count, step)
        for extents in source.all_extents():
            self._bound.add(extents)
            if self._lengths is not None:
                self._lengths.add(extents)
        self._set_apart_stages(source)
        self._set_apart_windows(max(source.mode.block_iterations, 1))

    def _set_apart_stages(self, source: RootSource) -> None:
        """Count the stages of direct reads; without room for them, read through the page cache."""
        self._stages = source.stage_bytes()
        if self._stages and not self._fits(max(source.mode.block_iterations, 1)):
            self._stages = 0
            source.end_direct_path("the memory budget has no room for what they need besides")

    def _set_apart_windows(self, k: int) -> None:
        """Count buffers for this root's slices of whole windows.

        Small windows, or such as have no room, are read block by block.
        """
        schedule, bound = self._schedule, self._bound
        if self.sliced is None:
            return
        roots = len(schedule.teams)
        size = self._rounded(int(_slice_bytes(schedule, self.sliced, bound) * GAP_ALLOWANCE))
        if roots * size < WINDOW_BYTES_MIN:
            self.why_no_windows = f"windows of {roots * size >> 10} KiB are small"
            return
        aim = TURN_BLOCK_BYTES_TARGET if roots > 1 else BLOCK_BYTES_TARGET
        self.window_buffers = WindowBuffers(max(WINDOW_BUFFERS, -(-2 * aim // size)), size)
        if not self._fits(k):
            need = self.window_buffers.count * size >> 20
            self.why_no_windows = f"the memory budget has no room for {need} MiB of windows"
            self.drop_windows()

    def drop_windows(self) -> None:
        """Read block by block: another root has no room for windows, or there is no exchange."""
        self.sliced, self.window_buffers = None, WindowBuffers()

    def reserve_cache(self, *, is_whole: bool, buffer_bytes: int) -> None:
        """Count what roots need that cache parts of the file, but not those parts.

        Args:
            is_whole: whether roots cache all of it; else rows are read from the file, into memory
                beside the slots.
            buffer_bytes: size of buffers for writes to disks; 0: no disks, and no staged rows.
        """
        self._is_cached, self._is_read_aside = True, not is_whole
        self._disk_buffer = buffer_bytes

    def stage_bytes(self, k: int) -> int:
        """Return the bytes of rows on their way from this root's disk, at most.

        As many as suit, if there is room for them beside the slots; at least those of a block.
        """
        block = self._stage_block_bytes(k)
        left = self._budget - self._apart - self._slots * self._slot_bytes(k)
        return min(max(left, block), STAGES * block)

    def _stage_block_bytes(self, k: int) -> int:
        """Return the bytes of a block whose rows are all on one disk, in whole pages."""
        if not self._disk_buffer or self._lengths is None:
            return 0
        rows = k * self._schedule.batch_size
        pages = 2 * rows * PAGE_BYTES  # a row begins and ends anywhere in one
        return self._rounded(self._lengths.any(rows) + pages)

    @property
    def is_joint(self) -> bool:
        """Whether rows are copied to their slots, out of memory or messages."""
        return self._is_cached or self.window_buffers.count > 0

    @property
    def messages(self) -> int:
        """Messages to other roots that are packed at a time, ``MESSAGE_BYTES`` each."""
        if not self.is_joint or len(self._schedule.teams) == 1:
            return 0
        ahead = 2 * TURN_BLOCK_BYTES_TARGET // MESSAGE_BYTES
        if self.window_buffers.count:
            ahead = self.window_buffers.count * self.window_buffers.size // MESSAGE_BYTES
        return min(max(ahead, 2), _core.Exchange.MESSAGES_MAX)

    def _rounded(self, size: int) -> int:
        return -(-max(size, 1) // self._alignment) * self._alignment

    def _table_bytes(self, k: int) -> int:
        return self._rounded(k * self._rows * _core.TABLE_ROW_BYTES)

    def _data_bytes(self, k: int) -> int:
        """Return the bytes that any block of ``k`` iterations needs at most, gaps excluded."""
        schedule, bound = self._schedule, self._bound
        if not self._is_known:
            return self._alignment
        rows = k * self._rows
        if self.is_joint:
            return self._rounded(self._copied_bytes(k, rows))
        if schedule.epochs is not None:
            return self._rounded(min(bound.any(rows), self._chunks_bytes(rows)))
        if schedule.assignment.has_chunks:
            return self._rounded(bound.run(k * self._rows))
        scattered = bound.runs(schedule.runs(self._team), k)
        return self._rounded(min(scattered, bound.run(k * schedule.batch_size)))

    def _copied_bytes(self, k: int, rows: int) -> int:
        """Return the bytes of ``rows`` that are copied, one behind the other.

        Among them a record may be as often as epochs in a block have it; with any shares of
        these, rows need most where all shares are as large.
        """
        schedule = self._schedule
        span = rows if schedule.assignment.has_chunks else k * schedule.batch_size
        most = schedule.orders.uses_max(span)
        uses = max(1, min(most, rows))
        assert self._lengths is not None
        return uses * self._lengths.any(-(-rows // uses))

    def _chunks_bytes(self, rows: int) -> int:
        """Return the bytes of all chunks that ``rows`` neighbours in a shuffled order lie in."""
        schedule = self._schedule
        if schedule.epochs is None or not self._mixed_rows:
            return self._bound.total
        shuffle = schedule.epochs.shuffle
        chunks = (-(-(rows - 1) // self._mixed_rows) + 1) * (self._mixed_rows // shuffle.chunk)
        return min(self._bound.total, chunks * self._bound.run(shuffle.chunk))

    def block_bytes(self, k: int) -> int:
        """Return the bytes that a block of ``k`` iterations needs on average; 0: unknown."""
        return (
            0 if not self._is_known else self._bound.total * self._rows * k // self._schedule.count
        )

    def _fits(self, k: int) -> bool:
        return self._need(k) <= self._budget

    def _need(self, k: int) -> int:
        return self._apart + self._stage_block_bytes(k) + self._slots * self._slot_bytes(k)

    def _slot_bytes(self, k: int) -> int:
        """Return the bytes of a slot, and of what is read beside it for its rows."""
        aside = self._rounded(self._bound.any(k * self._rows)) if self._is_read_aside else 0
        return self._table_bytes(k) + self._data_bytes(k) + aside

    def propose(self, k: int) -> int:
        """Return how many iterations a block should have.

        Args:
            k: ``block_iterations`` of the mode; AUTO: derive it.

        Raises:
            ValueError: ``k`` iterations do not fit the budget, or not even one does.
        """
        if not self._fits(max(k, 1)):
            need = self._need(max(k, 1))
            what = "one iteration" if k <= 1 else f"a block of {k} iterations"
            raise ValueError(
                f"{what} needs {need} bytes of window on this root ({self._slots} slots), "
                f"and its part of the memory budget is {self._budget} bytes: take a smaller "
                "batch_size, fewer slots, or a larger memory_bytes_max"
            )
        self._is_derived = k == AUTO
        if k != AUTO:
            return k
        schedule = self._schedule
        each = max(1, self.block_bytes(1))
        best = min(-(-self._target // each), schedule.count // schedule.batch_size)
        if self._mixed_rows and not self.is_joint:
            best = max(1, self._mixed_rows // max(1, self._rows))
        if schedule.iterations is not None:
            # Two blocks at least, or nothing is read ahead.
            best = min(best, -(-schedule.iterations // 2))
        low, best = 1, max(1, best)
        while low < best:
            middle = (low + best + 1) // 2
            low, best = (middle, best) if self._fits(middle) else (low, middle - 1)
        return low

    @property
    def _mixed_rows(self) -> int:
        """Records that are shuffled among each other alone; 0: each may come from anywhere.

        A block of so many is one group, or one window: its chunks are read once, and whole.
        """
        schedule = self._schedule
        is_alone = len(schedule.teams) == 1
        if schedule.epochs is None or not (is_alone or schedule.assignment.has_chunks):
            return 0
        shuffle = schedule.epochs.shuffle
        mixed = shuffle.window_records(schedule.count)
        return mixed if mixed < schedule.count and not shuffle.held else 0

    def layout(self, k: int) -> share.Layout:
        """Return how to cut this root's part of the window for blocks of ``k`` iterations."""
        table, data = self._table_bytes(k), self._data_bytes(k)
        slots = self._more_slots(k, self._slot_bytes(k))
        room = self._budget - self._apart - self.stage_bytes(k)
        spare = room // slots - self._slot_bytes(k)
        allowance = min(int(data * (GAP_ALLOWANCE - 1)), spare) if self._is_known else spare
        if self._mixed_rows and not self.is_joint:
            # Where a block begins inside a group, it takes parts of two: both are read whole.
            allowance = min(max(allowance, self._chunks_bytes(k * self._rows) - data), spare)
        data += max(0, allowance) // self._alignment * self._alignment
        is_bounded = self._is_known and self._schedule.epochs is None and not self.is_joint
        return share.Layout(slots, table, data, self._alignment, is_bounded)

    def _more_slots(self, k: int, slot_bytes: int) -> int:
        """Return a number of slots with which a root reads as far ahead as with usual blocks."""
        if not self._is_derived:
            return self._slots
        wanted = BLOCKS_AHEAD * self._usual_target // max(1, self.block_bytes(k))
        left = self._budget - self._apart - self.stage_bytes(k)
        room = int(left // (GAP_ALLOWANCE * slot_bytes))
        return max(self._slots, min(wanted, room, SLOTS_MAX))


def copied_window_bytes(sizing: Sizing, k: int) -> int:
    """Return the bytes of window of a root that copies all rows to their slots, at least.

    Args:
        sizing: sizing that has measured the records.
        k: ``block_iterations`` of the mode.
    """
    k = max(k, 1)
    data = sizing._rounded(sizing._copied_bytes(k, k * sizing._rows))
    return sizing._slots * (sizing._table_bytes(k) + data)


def spare_bytes(sizing: Sizing, layout: share.Layout) -> int:
    """Return the bytes of a root's part of the budget that its slots leave.

    Args:
        sizing: sizing that has measured the records.
        layout: layout of the slots.
    """
    return max(0, sizing._budget - sizing._apart - layout.slots * layout.slot_bytes)


def _shared_room(job: share.Job) -> int:
    """Return the shared memory that is free, bytes; as good as any where nobody says."""
    free = job.memory_free()
    return 2**63 if free is None else free


def _rows_max(schedule: Schedule, team: int) -> int:
    """Return the rows of a team in an iteration, at most.

    A team without a row in full batches may have one in a short one.
    """
    last = 0 if schedule.iterations is None else max(0, schedule.iterations - 1)
    return max(schedule.team_rows(team), schedule.team_shares(last)[team])


def _slice_bytes(schedule: Schedule, sliced: Epochs, bound: FootprintBound) -> int:
    """Return the bytes of a root's slice of a whole window, at most; gaps excluded."""
    shuffle, roots = sliced.shuffle, len(schedule.teams)
    mixed = shuffle.window_records(schedule.count)
    rows = -(-mixed // roots)
    # A slice takes whole chunks where it has no neighbours; else parts of two more, and the
    # file's last chunk may be a short one between them.
    most = -(-mixed // shuffle.chunk)
    parts = (rows - 2) // shuffle.chunk + 2 + (schedule.count % shuffle.chunk > 0)
    chunks = most if roots == 1 else min(max(parts, 1), most)
    return min(bound.total, chunks * bound.run(min(shuffle.chunk, rows)))
