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

from lmdbio import _core
from lmdbio.provenance import BLOCKS_AT, Entry, Facts, Provenance
from lmdbio.provenance.directory import pack_directory, pack_preamble
from lmdbio.provenance.entry import BLOCK, NUMBERS
from lmdbio.provenance.frames import compress, pack_numbers

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
        stored = sum(entry.stored_bytes for entry in entries)
        facts = opened.facts
    return Unsealed(facts, entries, sidecar.read_bytes()[BLOCKS_AT : BLOCKS_AT + stored])


def seal(sidecar: Path, what: Unsealed) -> int:
    """Writes it; how many bytes it has."""
    return seal_raw(sidecar, pack_directory(what.facts, what.entries), what.blocks)


def seal_raw(sidecar: Path, directory: bytes, blocks: bytes) -> int:
    stored = compress(directory)
    head = pack_preamble(BLOCKS_AT + len(blocks), stored, len(directory))
    return sidecar.write_bytes(head + blocks + stored)


def number_blocks(*parts: Numbers) -> tuple[np.ndarray, bytes]:
    """Blocks of numbers: what the directory tells of them, and their bytes."""
    rows, packed = [], []
    for part in parts:
        raw = pack_numbers(np.array(part, np.uint64))
        packed.append(compress(raw))
        rows.append((len(part), len(raw), len(packed[-1]), zlib.crc32(packed[-1])))
    return np.array(rows, NUMBERS), b"".join(packed)


def extent_blocks(entry: Entry, layout: _core.Layout, extents: _core.Extents) -> bytes:
    """Has an entry hold these extents; the bytes of its blocks."""
    rows, packed = [], []
    while len(extents):
        block = _core.encode_block(layout, extents)
        packed.append(compress(block.raw))
        row = (block.records, len(block.raw), len(packed[-1]), zlib.crc32(packed[-1]))
        rows.append((*row, block.form))
        extents = extents[block.records :]
    entry.blocks = np.array(rows, BLOCK)
    return b"".join(packed)
