"""Data sets as Caffe's ``convert_imageset`` writes them, made from nothing in a few seconds.

Every record is a ``Datum`` message under a key such as ``00000042_name.jpg``; a transaction is
committed every 1,000 puts, in key order. Two sets:

    cifar   3 x 32 x 32 raw bytes, one size for all
    jpeg    JPEG files (real ones: any decoder opens them), every size different

For figures that are to be compared with other machines' a further kind is plain: ``fixed``, random
bytes of one size under keys such as ``00000042``. It may lie on disk as many sets do that were not
written by Caffe: put from a shuffled list, or under numbers as text, which LMDB sorts as text.

A set is reused when its manifest fits and its bytes hash to what was written.
Source: caffe.proto, message Datum; convert_imageset.cpp.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
from rich.console import Console

from lmdbio.bench.bars import bars
from lmdbio.convert.convert import convert
from lmdbio.provenance import find_sidecar

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "CIFAR",
    "COMMIT_PUTS",
    "JPEG",
    "Dataset",
    "Recipe",
    "datum",
    "ensure",
    "prepare",
]

Progress = Callable[[int], None]

#: Raised whenever the bytes that a recipe makes change.
VERSION = 1
COMMIT_PUTS = 1000
#: Of a data set's folder.
FILES = ("data.mdb", "lock.mdb", "data.mdb.prov")
DIGEST_BYTES = 16

JPEG_BASES = 256
JPEG_MEDIAN_BYTES = 110_000
JPEG_SIGMA = 0.6  # of the log of the size, about what ImageNet's training set has
JPEG_BYTES_MIN, JPEG_BYTES_MAX = 22_000, 600_000
COMMENT_BYTES_MAX = 2000
#: Of random bytes, of which the values of "fixed" are pieces.
POOL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """A data set to be written.

    Attributes:
        name: name of the data set and of its folder.
        kind: kind of the records, of RECORDS.
        value_bytes_min: records are added until the values together have this size.
        seed: seed of everything that looks random.
        record_bytes: size of a value, bytes, for "fixed".
        order: the order in which records of "fixed" are put: "key", "random", or "text", the
            order of the numbers that are their keys.
    """

    name: str
    kind: str
    value_bytes_min: int
    seed: int = 1
    version: int = VERSION
    record_bytes: int = 0
    order: str = "key"

    @property
    def fixed_count(self) -> int:
        """Records of "fixed"."""
        return -(-self.value_bytes_min // self.record_bytes)


CIFAR = Recipe("cifar", "cifar", 504_000_000)
JPEG = Recipe("jpeg", "jpeg", 504_000_000)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set on disk.

    Attributes:
        recipe: Recipe that it was made from.
        path: the environment's folder.
        count: records.
        value_bytes: sum of the values' sizes.
        file_bytes: size of data.mdb.
        content: hash over the digests of keys and values, in key order (hexadecimal).
    """

    recipe: Recipe
    path: Path
    count: int
    value_bytes: int
    file_bytes: int
    content: str

    @property
    def data_file(self) -> Path:
        return self.path / "data.mdb"

    @property
    def keys_file(self) -> Path:
        """The keys, one a line, in key order: what a loader that shuffles keeps in memory."""
        return self.path.with_name(f"{self.path.name}.keys")


def varint(value: int) -> bytes:
    """A base-128 number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def datum(
    data: bytes, label: int, *, encoded: bool, shape: tuple[int, int, int] | None = None
) -> bytes:
    """A ``Datum``: channels=1, height=2, width=3, data=4, label=5, encoded=7.

    Args:
        data: the pixels or the image file.
        label: the class.
        encoded: ``data`` is an image file. Caffe then leaves the shape out.
        shape: channels, height, width.
    """
    parts = []
    for tag, value in zip((0x08, 0x10, 0x18), shape or (), strict=False):
        parts += [bytes([tag]), varint(value)]
    parts += [b"\x22", varint(len(data)), data, b"\x28", varint(label)]
    parts += [b"\x38", varint(int(encoded))]
    return b"".join(parts)


def cifar_records(recipe: Recipe) -> Iterator[tuple[bytes, bytes]]:
    """Raw 3 x 32 x 32 images, endless. Random bytes: nothing on the way can compress them."""
    rng = np.random.default_rng(recipe.seed)
    index = 0
    while True:
        pixels = rng.bytes(COMMIT_PUTS * 3072)
        labels = rng.integers(0, 10, COMMIT_PUTS).tolist()
        for i, label in enumerate(labels):
            value = datum(
                pixels[i * 3072 : (i + 1) * 3072], label, encoded=False, shape=(3, 32, 32)
            )
            yield b"%08d_image_%08d.jpg" % (index, index), value
            index += 1


def picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Shapes in soft colours and a fine grain."""
    from PIL import Image

    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    shapes = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    grain = rng.integers(-24, 25, (height, width, 1), dtype=np.int16)
    return Image.fromarray(np.clip(shapes + grain, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, quality: int) -> bytes:
    """A picture as a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def jpeg_bases(recipe: Recipe) -> list[bytes]:
    """Distinct JPEG files whose sizes spread as those of photographs do."""
    rng = np.random.default_rng(recipe.seed)
    targets = np.exp(rng.normal(math.log(JPEG_MEDIAN_BYTES), JPEG_SIGMA, JPEG_BASES))
    targets = np.clip(targets, JPEG_BYTES_MIN * 1.1, JPEG_BYTES_MAX)
    bytes_per_pixel = 0.5
    bases = []
    for target in targets:
        # The grain sets the bytes per pixel.
        pixels = float(target) / bytes_per_pixel
        aspect = float(rng.uniform(0.66, 1.5))
        width = max(16, round(math.sqrt(pixels * aspect)))
        height = max(16, round(math.sqrt(pixels / aspect)))
        bases.append(encoded(picture(rng, width, height), 85))
        bytes_per_pixel += 0.2 * (len(bases[-1]) / (width * height) - bytes_per_pixel)
    return bases


def with_comment(jpeg: bytes, comment: bytes) -> bytes:
    """The same picture with a comment segment (marker FFFE) right after the start marker."""
    return jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]


def jpeg_records(recipe: Recipe) -> Iterator[tuple[bytes, bytes]]:
    """JPEG files, endless; each has a comment of its own, so no two are equal."""
    bases = jpeg_bases(recipe)
    rng = random.Random(recipe.seed)
    index = 0
    while True:
        synset, serial = rng.randrange(1000), rng.randrange(30_000)
        name = b"n%08d_%d.JPEG" % (1440764 + 11 * synset, serial)
        filling = rng.randbytes(rng.randrange(COMMENT_BYTES_MAX // 2)).hex().encode()
        jpeg = with_comment(rng.choice(bases), b"record %d " % index + filling)
        yield b"%08d_%s" % (index, name), datum(jpeg, synset, encoded=True)
        index += 1


def fixed_records(recipe: Recipe) -> Iterator[tuple[bytes, bytes]]:
    """Values of one size: the record's number, then a piece of a pool of random bytes.

    Endless, but in random order.
    """
    rng = np.random.default_rng(recipe.seed)
    pool = rng.bytes(max(POOL_BYTES, 2 * recipe.record_bytes))
    form = b"%d" if recipe.order == "text" else b"%08d"
    numbers: Iterator[int] = count()
    if recipe.order == "random":
        numbers = iter(rng.permutation(recipe.fixed_count).tolist())
    while numbered := list(islice(numbers, COMMIT_PUTS)):
        places = rng.integers(0, len(pool) - recipe.record_bytes, len(numbered)).tolist()
        for index, at in zip(numbered, places, strict=True):
            number = index.to_bytes(8, "little")[: recipe.record_bytes]
            yield form % index, number + pool[at + len(number) : at + recipe.record_bytes]


#: Records without end, by kind. Programs may add kinds of their own.
RECORDS: dict[str, Callable[[Recipe], Iterator[tuple[bytes, bytes]]]] = {
    "cifar": cifar_records,
    "jpeg": jpeg_records,
    "fixed": fixed_records,
}


def digest(data: Any) -> bytes:
    """The 128-bit BLAKE2b hash of some bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def read_back(made: Dataset, progress: Progress) -> Dataset:
    """Return the data set as py-lmdb reads it; leave the keys in ``keys_file``."""
    keys, found, size = [], hashlib.blake2b(digest_size=DIGEST_BYTES), 0
    with lmdb.open(str(made.path), readonly=True, lock=False) as env:
        with env.begin(buffers=True) as txn:
            for key, value in txn.cursor():
                keys.append(bytes(key))
                found.update(digest(key) + digest(value))
                size += len(value)
                if len(keys) % COMMIT_PUTS == 0:
                    progress(size)
    progress(made.value_bytes)
    made.keys_file.write_bytes(b"\n".join(keys))
    return replace(made, count=len(keys), value_bytes=size, content=found.hexdigest())


def write(recipe: Recipe, path: Path, progress: Progress) -> Dataset:
    """Write a data set with py-lmdb, in the place of an old one; it has no hash yet.

    Args:
        recipe: Recipe of the data set.
        path: folder of the environment.
        progress: function that is called with the bytes of values up to then.

    Raises:
        OSError: the folder has files that are no data set's.
    """
    path.mkdir(parents=True, exist_ok=True)
    if foreign := [one.name for one in path.iterdir() if one.name not in FILES]:
        raise OSError(f"{path}: has {foreign[0]}, which is of no data set of lmdbio's")
    for old in (manifest(path), *(path / name for name in FILES)):
        old.unlink(missing_ok=True)
    records = value_bytes = 0
    # sync=False changes when pages reach the disk, not where they lie.
    env = lmdb.open(str(path), map_size=8 * recipe.value_bytes_min + (1 << 30), sync=False)
    with env:
        txn = env.begin(write=True)
        for key, value in RECORDS[recipe.kind](recipe):
            txn.put(key, value)
            records += 1
            value_bytes += len(value)
            if records % COMMIT_PUTS == 0:
                progress(value_bytes)
                txn.commit()
                txn = env.begin(write=True)
            if value_bytes >= recipe.value_bytes_min:
                break
        txn.commit()
        env.sync(True)
    progress(value_bytes)
    return Dataset(recipe, path, records, value_bytes, (path / "data.mdb").stat().st_size, "")


def manifest(path: Path) -> Path:
    """Where the description of the data set at ``path`` lies."""
    return path.with_name(f"{path.name}.json")


def existing(recipe: Recipe, path: Path) -> Dataset | None:
    """The data set at ``path`` if it looks like ``recipe``'s; its bytes are not read."""
    try:
        fields = json.loads(manifest(path).read_text(encoding="utf-8"))
        fields |= {"recipe": Recipe(**fields["recipe"]), "path": path}
        made = Dataset(**fields)
        size = made.data_file.stat().st_size
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return made if made.recipe == recipe and made.file_bytes == size else None


def ensure(recipe: Recipe, folder: Path, console: Console | None = None) -> tuple[Dataset, bool]:
    """The data set of ``recipe`` in ``folder``, written if it is not there and intact.

    Every record is read through py-lmdb and hashed on the way.

    Args:
        recipe: Recipe of the data set.
        folder: folder for the data set.
        console: Console that shows the progress; None: none does.

    Returns:
        The data set, and whether it was there already.

    Raises:
        ValueError: py-lmdb does not read back what it wrote.
    """
    path = folder / recipe.name
    with bars(console or Console(quiet=True), sizes=True) as progress:

        def counted(what: str) -> Progress:
            task = progress.add_task(f"{what} {recipe.name}", total=recipe.value_bytes_min)
            return lambda size: progress.update(task, completed=size)

        made = existing(recipe, path)
        if made is not None:
            with contextlib.suppress(lmdb.Error):
                if read_back(made, counted("hash")) == made:
                    return made, True
        made = write(recipe, path, counted("write"))
        found = read_back(made, counted("hash"))
    if found != replace(made, content=found.content):
        raise ValueError(
            f"{path}: py-lmdb reads {found.count:,} records of {found.value_bytes:,} bytes, "
            f"{made.count:,} of {made.value_bytes:,} were written"
        )
    made = found
    # It comes last: a data set without one is written again.
    text = json.dumps(asdict(made) | {"path": path.name}, indent=2)
    manifest(path).write_text(text + "\n", encoding="utf-8")
    return made, False


def prepare(recipe: Recipe, folder: Path, console: Console, *, converted: bool = False) -> Dataset:
    """Return the data set of ``recipe`` in ``folder``, written if it is not there and intact.

    Progress goes to ``console``.

    Args:
        recipe: Recipe of the data set.
        folder: folder for the data set, made if it is not there.
        console: Console that shows the progress.
        converted: whether it has a provenance file afterwards.

    Raises:
        OSError: the folder has no room for it, or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if existing(recipe, folder / recipe.name) is None:
        # A value of 3 KB occupies a page of 4 KiB.
        needed, free = recipe.value_bytes_min * 3 // 2, shutil.disk_usage(folder).free
        if needed > free:
            raise OSError(
                f"{folder}: {recipe.name} needs {needed >> 20:,} MiB, {free >> 20:,} are free"
            )
    made, _ = ensure(recipe, folder, console)
    if converted and not find_sidecar(made.data_file).exists():
        with console.status(f"convert {recipe.name}"):
            convert(made.path)
    return made
