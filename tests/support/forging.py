"""Provenance files with every checksum right, and whatever else one likes.

``unseal`` takes one apart, ``seal`` puts it together again: what is changed in between is false by
its meaning alone, which is what nobody but a forger, or a bug of ours, can do.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmdbio import _core, provenance
from lmdbio.provenance import BLOCKS_AT, Entry, Facts, Provenance

Numbers = Sequence[int]


@dataclass(slots=True)
class Unsealed:
    """Attributes:
    facts, entries: of the directory.
    blocks: the stored bytes of all blocks, in order.
    """

    facts: Facts
    entries: list[Entry]
    blocks: bytes


def unseal(sidecar: Path) -> Unsealed:
    with Provenance.open(sidecar) as opened:
        entries = [section._entry for section in opened.sections]
        stored = sum(int(e.block_stored.sum()) + e.numbers_bytes for e in entries)
        facts = opened.facts
    return Unsealed(facts, entries, sidecar.read_bytes()[BLOCKS_AT : BLOCKS_AT + stored])


def seal(sidecar: Path, what: Unsealed) -> int:
    """Writes it; how many bytes it has."""
    return seal_raw(sidecar, provenance.pack_directory(what.facts, what.entries), what.blocks)


def seal_raw(sidecar: Path, directory: bytes, blocks: bytes) -> int:
    stored = provenance.compress(directory)
    head = provenance.pack_preamble(BLOCKS_AT + len(blocks), stored, len(directory))
    return sidecar.write_bytes(head + blocks + stored)


def number_blocks(*parts: Numbers) -> tuple[np.ndarray, bytes]:
    """Blocks of numbers: what the directory tells of them, and their bytes."""
    rows, packed = [], []
    for part in parts:
        raw = provenance.pack_numbers(np.array(part, np.uint64))
        packed.append(provenance.compress(raw))
        rows.append((len(part), len(raw), len(packed[-1]), zlib.crc32(packed[-1])))
    return np.array(rows, np.uint32).reshape(-1, 4), b"".join(packed)


def extent_blocks(entry: Entry, layout: _core.Layout, extents: _core.Extents) -> bytes:
    """Has an entry hold these extents; the bytes of its blocks."""
    rows, packed = [], []
    while len(extents):
        block = _core.encode_block(layout, extents)
        packed.append(provenance.compress(block.raw))
        row = (block.records, len(block.raw), len(packed[-1]), zlib.crc32(packed[-1]))
        rows.append((*row, block.form))
        extents = extents[block.records :]
    set_rows(entry, np.array(rows, np.uint32).reshape(-1, 5))
    return b"".join(packed)


def set_rows(entry: Entry, rows: np.ndarray) -> None:
    """Has an entry hold these blocks: records, raw and stored size, crc32, form in a row."""
    columns = rows.T
    entry.block_records, entry.block_raw, entry.block_stored, entry.block_crc = columns[:4]
    entry.block_form = columns[4].astype(np.uint8)
