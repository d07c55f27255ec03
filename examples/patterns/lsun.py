"""LSUN: images under opaque keys, asked for by index.

    images = LSUN("church_outdoor_train_lmdb", transform=torchvision.transforms.ToTensor())

The usual reader walks the whole database for its keys, and pickles them beside it. Here an index
is enough; ``key`` tells the name of an image where it matters.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch.utils.data
from PIL import Image

import lmdbio

__all__ = ["LSUN"]


class LSUN(torch.utils.data.Dataset[Any]):
    """Images as PIL has them, or what ``transform`` makes of them."""

    def __init__(self, path: str, transform: Callable[[Any], Any] | None = None) -> None:
        self.records, self.transform = lmdbio.Records(path), transform

    def __len__(self) -> int:
        return len(self.records)

    def key(self, index: int) -> str:
        return self.records.key(index).decode()

    def __getitem__(self, index: int) -> Any:
        return self.image(self.records[index])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """A whole batch, for a DataLoader: all of its reads are in flight at once."""
        return [self.image(view) for view in self.records.read(indices)]

    def image(self, data: bytes | memoryview) -> Any:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return image if self.transform is None else self.transform(image)
