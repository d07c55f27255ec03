"""Sources: their facts, and their samples in one order, from any of them on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["IMAGES", "Batch", "Sample", "Source", "states_of"]

#: A value, and its label if the samples of the source have labels.
Sample = tuple[bytes] | tuple[bytes, bytes]

#: Endings of image files: torchvision's.
IMAGES = ("jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp")


class Batch(NamedTuple):
    """Samples, one after the other.

    Attributes:
        samples: the samples.
        done: part of the source's ``total`` that is read after them.
    """

    samples: Sequence[Sample]
    done: int


class Source(Protocol):
    """Samples in an order that depends on the source's state alone.

    Attributes:
        facts: state of the source, by the name of each of its parts.
        metadata: records beside its samples.
        total, unit: amount of work, and its unit, for a progress bar.
    """

    facts: Mapping[str, str]
    metadata: Mapping[bytes, bytes]
    total: int
    unit: str

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over all samples from number ``first`` on.

        Raises:
            Error: the source is damaged, or has changed.
            ValueError: a sample lacks a part that others have.
            OSError: it cannot be read.
        """
        ...


def states_of(files: Sequence[Path]) -> dict[str, str]:
    """Return the state of each file, in words, and that of their order, which samples follow."""
    order = hashlib.blake2b(b"\0".join(map(os.fsencode, files)), digest_size=8).hexdigest()
    states = {str(file): file.stat() for file in files}
    return {
        name: f"{found.st_size} bytes, changed at {found.st_mtime_ns} ns"
        for name, found in states.items()
    } | {"order": order}
