"""Images in folders, one for each class, as torchvision's ImageFolder numbers and sorts them.

    train/cat/1.jpg, train/cat/more/2.jpg, train/dog/3.png     -> labels 0, 0, 1
    photos/1.jpg, photos/2.jpg                                 -> no labels

Some 40 bytes for each file are in memory. The names of the classes become the record ``classes``,
JSON.

Source: torchvision.datasets.folder, ``find_classes`` and ``make_dataset``.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from lmdbio.errors import Error
from lmdbio.ingest.reading import BATCH_BYTES, BATCH_SAMPLES_MAX, THREADS, in_order
from lmdbio.ingest.sources import IMAGES, Batch, Sample

__all__ = ["Folder"]

ENDINGS = tuple(f".{ending}" for ending in IMAGES)


class _Class:
    """The images of a class, sorted, with their sizes.

    Args:
        folder: path of its folder.
        is_deep: whether the folders in it belong to it, too.
    """

    def __init__(self, folder: str, *, is_deep: bool) -> None:
        self.folder, self.sizes = folder, array("Q")
        names: list[str] = []
        times = array("q")
        walk = os.walk(folder, onerror=_fail, followlinks=True)
        for root, _, files in sorted(walk) if is_deep else [next(walk)]:
            base = root[len(folder) + 1 :]
            for name in sorted(files):
                if name.lower().endswith(ENDINGS):
                    found = os.stat(f"{root}/{name}")  # noqa: PTH116  (a Path takes as long)
                    if not stat.S_ISREG(found.st_mode):
                        raise ValueError(f"{root}/{name}: is called as an image, and is no file")
                    names.append(f"{base}/{name}" if base else name)
                    self.sizes.append(found.st_size)
                    times.append(found.st_mtime_ns)
        self._names = os.fsencode("\0".join(names))
        state = hashlib.blake2b(self._names, digest_size=8)
        state.update(self.sizes)
        state.update(times)
        self.state = f"{len(names):,} images, {sum(self.sizes):,} bytes ({state.hexdigest()})"

    def __len__(self) -> int:
        return len(self.sizes)

    def paths(self) -> list[str]:
        """Return the paths of all images."""
        return [f"{self.folder}/{name}" for name in os.fsdecode(self._names).split("\0")]


def _fail(error: OSError) -> None:
    """Raise what ``os.walk`` would pass over."""
    raise error


class Folder:
    """A folder of images, with a folder for each class or without; see ``Source``.

    Args:
        folder: path of the folder.

    Raises:
        ValueError: there are no images, or a class has none; or some lie beside the classes.
        OSError: it cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        path = os.path.normpath(folder)
        with os.scandir(path) as entries:
            kinds = {entry.name: entry.is_dir() for entry in entries}
        names = sorted(name for name, is_folder in kinds.items() if is_folder)
        image = next((name for name in kinds if name.lower().endswith(ENDINGS)), None)
        if names and image not in (None, *names):
            raise ValueError(
                f"{path}: has the image {image} and the folder {names[0]}: images lie in the "
                "folders of their classes, or all in one"
            )
        self._classes = [_Class(f"{path}/{name}", is_deep=True) for name in names]
        self._has_labels = bool(names)
        if not names:
            self._classes = [_Class(path, is_deep=False)]
        empty = next((one for one in self._classes if not len(one)), None)
        if empty is not None:
            known = ", ".join(ENDINGS)
            raise ValueError(
                f"{empty.folder}: has no image ({known}), and each folder in {path} is a class: "
                "remove it, or name another folder"
                if names
                else f"{path}: has no image ({known}), and no folder of a class"
            )
        self.facts: Mapping[str, str] = {one.folder: one.state for one in self._classes}
        classes = json.dumps(names, ensure_ascii=False).encode("utf-8", "surrogateescape")
        self.metadata: Mapping[bytes, bytes] = {b"classes": classes} if names else {}
        self.total, self.unit = sum(map(len, self._classes)), "samples"

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over the images from number ``first`` on; see ``Source``."""
        done = first
        for samples in in_order(self._tasks(first), THREADS):
            done += len(samples)
            yield Batch(samples, done)

    def _tasks(self, first: int) -> Iterator[Callable[[], list[Sample]]]:
        for label, one in enumerate(self._classes):
            skipped, first = min(first, len(one)), max(0, first - len(one))
            if skipped == len(one):
                continue
            text = b"%d" % label if self._has_labels else None
            for paths, sizes in _runs(one.paths()[skipped:], one.sizes[skipped:]):
                yield partial(_read, paths, sizes, text)


def _runs(
    paths: Sequence[str], sizes: Sequence[int]
) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Yield files of about a batch's bytes together, and their sizes."""
    start = total = 0
    for at, size in enumerate(sizes):
        total += size
        if total >= BATCH_BYTES or at + 1 - start == BATCH_SAMPLES_MAX or at + 1 == len(sizes):
            yield paths[start : at + 1], sizes[start : at + 1]
            start, total = at + 1, 0


def _read(paths: Sequence[str], sizes: Sequence[int], label: bytes | None) -> list[Sample]:
    """Read files, and return samples.

    Raises:
        Error: a file is not as long as it was when the folder was listed.
    """
    samples: list[Sample] = []
    for path, size in zip(paths, sizes, strict=True):
        value = _content(path, size)
        samples.append((value,) if label is None else (value, label))
    return samples


def _content(path: str, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        value = os.read(fd, size + 1)
        if len(value) != size:  # a system may read less at once
            while more := os.read(fd, BATCH_BYTES):
                value += more
    finally:
        os.close(fd)
    if len(value) != size:
        raise Error(f"{path}: changed while it was imported: {size:,} bytes, now {len(value):,}")
    return value
