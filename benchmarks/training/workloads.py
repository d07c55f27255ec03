"""Samples: one function makes one of a value, the same for every way of loading.

A batch is the images and the numbers of their records. The numbers prove that each record was
handed out once in an epoch; some bytes of each image are added up, and all ways must agree.

    tensors        3 KB of pixels: a tensor of each value, torch's own collate
    pil            JPEG files of 98 KB, to 224 x 224 by PIL
    cv2            the same by OpenCV
    torchvision    the same by torchvision, decoded and resized on the CPU
    nothing        3 KB, untouched, and counted: what handing over costs
    array          3 KB of pixels: the Loader makes each batch as a whole, others as in "tensors"
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from benchmarks.training import photos
from lmdbio.bench.datasets import RECORDS, Recipe

RECORDS["photo"] = photos.records

SIDE = 224
RECORD_BYTES, SHAPE = 3072, (3, 32, 32)
#: Of each image so many bytes are added up, far from one another.
LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Workload:
    """Values that are loaded, and the samples that are made of them.

    Attributes:
        name, title: in short, and in a table.
        kind: of data set: "fixed" or "photo".
        batch: samples of a batch.
        needs: module that decodes; "" for none.
        transform: makes a sample of a value; None: the value is the sample.
        shape: of an image in a batch; () where there is none.
        decoder: makes the Loader's decoder of whole batches; None: it makes samples as all do.
    """

    name: str
    title: str
    kind: str
    batch: int
    needs: str = ""
    transform: Callable[[Any], Any] | None = None
    shape: tuple[int, ...] = ()
    decoder: Callable[[], Any] | None = None

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """Makes a batch of samples: torch's own, or a count."""
        return len if self.transform is None else default_collate

    def recipe(self, mib: int) -> Recipe:
        """Return the data set of so many MiB."""
        record = RECORD_BYTES if self.kind == "fixed" else 0
        return Recipe(f"{self.kind}-{mib}m", self.kind, mib << 20, record_bytes=record)


def number_of(value: Any) -> int:
    """Return the number that a JPEG file has in its comment."""
    return int(bytes(value[photos.NUMBER]))


def tensor(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(value), dtype=torch.uint8).view(SHAPE)


def array() -> Any:
    from lmdbio.torch import Array

    return Array("u1", SHAPE)


def by_pil(value: Any) -> tuple[torch.Tensor, int]:
    from PIL import Image

    image = Image.open(io.BytesIO(value)).convert("RGB")
    pixels = np.array(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels), number_of(value)


def by_cv2(value: Any) -> tuple[torch.Tensor, int]:
    import cv2

    image = cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_COLOR)
    return torch.from_numpy(cv2.resize(image, (SIDE, SIDE))), number_of(value)


def by_torchvision(value: Any) -> tuple[torch.Tensor, int]:
    from torchvision.io import decode_jpeg
    from torchvision.transforms.v2 import functional

    image = decode_jpeg(torch.frombuffer(bytearray(value), dtype=torch.uint8))
    return functional.resize(image, [SIDE, SIDE], antialias=True), number_of(value)


WORKLOADS = {
    one.name: one
    for one in (
        Workload("tensors", "3 KB, a tensor of each", "fixed", 512, "", tensor, SHAPE),
        Workload("pil", "JPEG, PIL", "photo", 64, "PIL.Image", by_pil, (SIDE, SIDE, 3)),
        Workload("cv2", "JPEG, OpenCV", "photo", 64, "cv2", by_cv2, (SIDE, SIDE, 3)),
        Workload("torchvision", "JPEG, torchvision", "photo", 64, "torchvision.io",
                 by_torchvision, (3, SIDE, SIDE)),
        Workload("nothing", "3 KB, untouched", "fixed", 512),
        Workload("array", "3 KB, whole batches", "fixed", 512, "", tensor, SHAPE, array),
    )
}  # fmt: skip


class Account:
    """The records that an epoch handed out, and a checksum of them.

    Args:
        count: records of the data set.

    Attributes:
        samples: handed out.
        checksum: of bytes of all images; it does not depend on the order.
    """

    def __init__(self, count: int) -> None:
        self._times = np.zeros(count, np.int32)
        self.samples = self.checksum = 0

    def add(self, batch: Any) -> int:
        """Look at a batch, and return how many samples it has.

        Raises:
            IndexError: a number is no record's.
        """
        if isinstance(batch, int):  # of untouched values
            self.samples += batch
            return batch
        if isinstance(batch, torch.Tensor):  # each begins with its number
            images, size = batch, len(batch)
            flat = images.reshape(size, -1)
            numbers: npt.NDArray[Any] = flat[:, :8].contiguous().view(torch.int64).numpy()
        else:
            images, numbers = batch[0], np.asarray(batch[1])
            size = len(images)
            flat = images.reshape(size, -1)
        stride = flat.shape[1] // LOOKED_AT
        self.checksum += int(flat[:, stride - 1 :: stride].sum(dtype=torch.int64))
        np.add.at(self._times, numbers.reshape(-1), 1)
        self.samples += size
        return size

    def fault(self) -> str:
        """Return what is wrong with the epoch; "" for nothing."""
        count = len(self._times)
        if self.samples != count:
            return f"{self.samples:,} samples of {count:,} records"
        if self._times.any() and not (self._times == 1).all():
            return f"{int((self._times == 0).sum()):,} records are missing, and others come twice"
        return ""
