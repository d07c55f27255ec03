"""Write a provenance file: extents become blocks, and blocks a draft.

    extents -> blocks, raw, in the draft -> compressed in its front, or leaves instead
            -> directory -> preamble

The caller reads the draft back and compares it before it is published under its name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import (
    BlockForm,
    Database,
    Extents,
    History,
    KeyRun,
    Layout,
    Leaves,
    Meta,
)
from lmdbio.errors import IncompatibleError, ProvenanceError
from lmdbio.provenance.directory import (
    BLOCKS_AT,
    DATABASES_MAX,
    DIRECTORY_BYTES_MAX,
    pack_directory,
    pack_preamble,
)
from lmdbio.provenance.entry import (
    ALL_KEY_RUNS_MAX,
    BLOCK,
    NUMBERS,
    NUMBERS_MAX,
    Entry,
    Facts,
    Name,
    Rows,
)
from lmdbio.provenance.frames import compress, extents_crc, pack_numbers, zigzag
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.publish import Draft

__all__ = ["Form", "Made", "Writer"]

#: How a provenance file says where records lie; "auto": see ``Writer.end``.
Form: TypeAlias = Literal["auto", "replay", "runs", "leaves", "explicit"]
BLOCK_FORMS = {"runs": BlockForm.RUNS, "explicit": BlockForm.EXPLICIT}
#: Bytes of a block's row in the directory.
ROW_BYTES = 17
#: Of zstd: 19 takes forty times as long for leaves, and 7 % less room.
LEAVES_LEVEL = 16
#: Bytes that zstd adds at most, besides a 128th.
FRAME_BYTES = 128
#: Bytes that file systems give out at least.
BLOCK_BYTES = 4096


def parts_of(numbers: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of each block."""
    for at in range(0, len(numbers), NUMBERS_MAX):
        yield numbers[at : at + NUMBERS_MAX]


@dataclass(slots=True)
class Made(Entry):
    """A database as far as it is written, and what it is compared with when it is read back.

    Attributes:
        rows: rows of ``blocks``, which are known when the file ends.
        mark: mark of all extents as they were walked (``_core.mark_extents``).
        each_crc, order_crc: crc32 of the counts of each key, and of the order.
    """

    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    mark: int = 0
    each_crc: int = 0
    order_crc: int = 0


class Writer:
    """Turns extents into blocks, and blocks into a draft. Memory: one block's records.

    Blocks wait in the draft as they are until their database ends: to compress them takes longer
    than all the rest, and where leaves tell the same in fewer bytes most of it would be in vain.
    """

    def __init__(self, draft: Draft, layout: Layout, form: Form = "auto", data: str = "") -> None:
        draft.cut(0)
        self._draft, self._layout, self._form, self._data = draft, layout, form, data
        self._block_form = BLOCK_FORMS.get(form)
        self._at = BLOCKS_AT
        #: Records of no block yet, so many of them.
        self._records, self._pending = np.empty(2 * _core.BLOCK_RECORDS_MAX, _core.EXTENT), 0
        self._runs_left = ALL_KEY_RUNS_MAX
        #: Blocks that wait: their records, raw size, form, and where they are in the draft.
        self._waiting: list[tuple[int, int, BlockForm, int]] = []
        self.made: list[Made] = []
        self.extents_end = 0

    def begin(self, name: Name, db: Database) -> None:
        """Begin the next database.

        Raises:
            IncompatibleError: it is one too many.
        """
        if len(self.made) == DATABASES_MAX:
            raise IncompatibleError(
                f"{self._data}: a provenance file describes {DATABASES_MAX:,} databases at most: "
                "name those that are read (--db)"
            )
        self.made.append(Made(name, db))

    def add(self, extents: Extents) -> None:
        """Add the next records."""
        while len(extents):
            taken = extents[: len(self._records) - self._pending]
            self._records[self._pending : self._pending + len(taken)] = taken
            self._pending += len(taken)
            extents = extents[len(taken) :]
            while self._pending >= _core.BLOCK_RECORDS_MAX:
                self._block()

    def end(self, leaves: Leaves | None = None) -> None:
        """End a database, of which the smaller form is kept.

        Args:
            leaves: leaves on which the same records lie (dtype ``LEAF``).
        """
        while self._pending:
            self._block()
        blocks: list[_core.Block] = []
        if leaves is not None and self._form in ("auto", "leaves"):
            blocks = self._leaves_blocks(leaves)
        stored = [compress(block.raw, LEAVES_LEVEL) for block in blocks]
        most = self._room(sum(map(len, stored)) + ROW_BYTES * len(stored)) if blocks else None
        if self._pack(most):
            return
        for block, packed in zip(blocks, stored, strict=True):
            self._store(block.records, len(block.raw), block.form, packed)

    def _room(self, size: int) -> int:
        """Return how many bytes tables may take to be kept instead of leaves of this ``size``.

        Leaves have to save a block of the storage, for extents are found in tables without reading
        the data.
        """
        return size + BLOCK_BYTES - 1 if self._form == "auto" else 0

    def _leaves_blocks(self, leaves: Leaves) -> list[_core.Block]:
        blocks, at = [], 0
        while at < len(leaves):
            block, taken = _core.encode_leaves(self._layout, leaves[at:])
            blocks.append(block)
            at += taken
        return blocks

    def _pack(self, most: int | None) -> bool:
        """Compress what waits in the draft.

        Args:
            most: bytes that it may take; None: as many as it does.

        Returns:
            False if it would take more: then nothing is left of it.
        """
        waiting, self._waiting = self._waiting, []
        made, began = self.made[-1], self._at
        for records, raw_size, form, at in waiting:
            self._store(records, raw_size, form, compress(self._draft.read(raw_size, at)))
            if most is not None and self._at - began + ROW_BYTES * len(made.rows) > most:
                self._at = began
                made.rows.clear()
                return False
        return True

    def know_keys(self, runs: tuple[KeyRun, ...]) -> None:
        """Add the pattern of the database's keys; empty: they follow none.

        Where the file has no room for more, readers look keys up in the tree.
        """
        if len(runs) <= self._runs_left:
            self._runs_left -= len(runs)
            self.made[-1].keys = runs

    def group(self, each: npt.NDArray[np.uint64]) -> None:
        """Add how many records each key has, to the database that was ended last."""
        made = self.made[-1]
        made.each_crc = zlib.crc32(each.tobytes())
        made.groups = self._numbers(parts_of(each))

    def order(self, order: npt.NDArray[np.int64]) -> None:
        """Add the order in which its records were put; after ``group``."""
        made = self.made[-1]
        made.order_crc = zlib.crc32(order.tobytes())
        made.order = self._numbers(
            zigzag(np.diff(part, prepend=-1) - 1) for part in parts_of(order)
        )

    def _numbers(self, parts: Iterable[npt.NDArray[np.uint64]]) -> Rows:
        """Write numbers, each part as a block; return a row for each. They are made as they go."""
        rows = []
        for some in parts:
            raw = pack_numbers(some)
            rows.append((len(some), len(raw), *self._append(compress(raw))))
        return np.array(rows, NUMBERS)

    def replay(self, history: History, extents: Sequence[Extents]) -> None:
        """Make a database of its history alone, which leads to all of these extents."""
        made = self.made[-1]
        made.history, made.records = history, history.count
        made.extents_crc = extents_crc(extents)
        made.record_bytes = history.count * history.length
        ends = (int(part["offset"].max()) + history.length for part in extents)
        self.extents_end = max(self.extents_end, *ends)

    def _block(self) -> None:
        made = self.made[-1]
        pending = self._records[: self._pending]
        try:
            block = _core.encode_block(self._layout, pending, self._block_form, self._data)
        except IncompatibleError as e:
            raise IncompatibleError(
                f"{self._data}: form runs describes values that begin a page of their own, and "
                "here values lie on pages among others: take form leaves, explicit or auto"
            ) from e
        extents = pending[: block.records]
        again = _core.decode_block(self._layout, block.form, block.raw, block.records)
        if not np.array_equal(again.view(np.uint64), extents.view(np.uint64)):
            raise ProvenanceError(f"{self._draft.target}: a block does not decode to its records")
        self._wait(block)
        made.mark = _core.mark_extents(extents, made.mark)
        made.records += block.records
        made.record_bytes += int(extents["length"].sum(dtype=np.uint64))
        made.runs += block.runs
        self.extents_end = max(
            self.extents_end, int((extents["offset"] + extents["length"]).max())
        )
        self._pending -= block.records
        self._records[: self._pending] = pending[block.records :]

    def _wait(self, block: _core.Block) -> None:
        """Put a block behind those that wait.

        With room for each to become a little longer when it is compressed: what is written then
        lies before what is still to be read.
        """
        at = self._at
        if self._waiting:
            _, raw_size, _, before = self._waiting[-1]
            at = before + raw_size
        at += len(block.raw) // 128 + FRAME_BYTES
        self._draft.write(block.raw, at)
        self._waiting.append((block.records, len(block.raw), block.form, at))

    def _store(self, records: int, raw_size: int, form: BlockForm, stored: bytes) -> None:
        self.made[-1].rows.append((records, raw_size, *self._append(stored), form))

    def _append(self, stored: bytes) -> tuple[int, int]:
        """Write a compressed block behind the others; returns its size and crc32."""
        self._draft.write(stored, self._at)
        self._at += len(stored)
        return len(stored), zlib.crc32(stored)

    def finish(self, meta: Meta, hints: FileIdentity, digest: bytes) -> int:
        """Write the directory and the preamble; returns the file's size."""
        facts = Facts(
            version=meta.layout.version,
            page_size=meta.layout.page_size,
            env_flags=meta.layout.env_flags,
            txnid=meta.txnid,
            last_pgno=meta.last_pgno,
            extents_end=self.extents_end,
            free_db=meta.free_db,
            main_db=meta.main_db,
            hints=hints,
            digest=digest,
        )
        for made in self.made:
            made.blocks = np.array(made.rows, BLOCK)
        raw = pack_directory(facts, self.made)
        if len(raw) > DIRECTORY_BYTES_MAX:
            raise IncompatibleError(f"{self._draft.target}: too many records for this format")
        stored = compress(raw)
        self._draft.write(stored, self._at)
        self._draft.cut(self._at + len(stored))
        self._draft.write(pack_preamble(self._at, stored, len(raw)), 0)
        self._draft.sync()
        return self._at + len(stored)
