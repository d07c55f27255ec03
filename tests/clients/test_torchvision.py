"""torchvision's LSUN class: it lists the keys when it opens, and begins once per image."""

from __future__ import annotations

import io
from typing import Any

from tests.clients.client import bare

DISTRIBUTION = "torchvision"
CALLS = "`begin` and `get` per image, `stat`, `cursor().iternext(values=False)`; decodes JPEG"
COUNT = 1000


def write(path: str) -> None:
    import lmdb
    import numpy as np
    from PIL import Image

    env = lmdb.open(path, map_size=1 << 30)
    with env.begin(write=True) as txn:
        for i in range(COUNT):
            noise = np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8)
            file = io.BytesIO()
            Image.fromarray(noise).resize((128 + i % 7, 128)).save(file, "JPEG")
            txn.put(b"%040x" % (i * 7919), file.getvalue())
    env.close()


def opened(path: str) -> Any:
    return bare("torchvision.datasets.lsun").LSUNClass(path)


def epoch(reader: Any) -> list[Any]:
    return [reader[i] for i in range(len(reader))]


def odd(reader: Any, path: str) -> dict[str, Any]:
    lsun = bare("torchvision.datasets.lsun")
    return {
        "keys": lambda: reader.keys,
        "index too large": lambda: reader[COUNT],
        "no such folder": lambda: lsun.LSUNClass(path + "?"),
        "a class that is not there": lambda: lsun.LSUN(path, classes=["tower_train"]),
        "opened twice": lambda: len(lsun.LSUNClass(path)),
    }


DIFFERS = {"opened twice"}


def test_lsun_gives_the_same_images(race: Any) -> None:
    race()
