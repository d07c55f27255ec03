"""mmocr's RecogLMDBDataset: labels when it is made, an image per sample, decoded by OpenCV."""

from __future__ import annotations

import io
from typing import Any

from tests.clients.client import bare

DISTRIBUTION = "mmocr"
CALLS = "`begin` and `get` per image, one transaction over all labels; decodes PNG"
COUNT = 2000


def write(path: str) -> None:
    import lmdb
    import numpy as np
    from PIL import Image

    env = lmdb.open(path, map_size=1 << 30)
    with env.begin(write=True) as txn:
        txn.put(b"num-samples", b"%d" % COUNT)
        for i in range(COUNT):
            file = io.BytesIO()
            noise = np.random.default_rng(i).integers(0, 256, (8, 25), np.uint8)
            Image.fromarray(noise).resize((100, 32)).save(file, "PNG")
            txn.put(b"image-%09d" % (i + 1), file.getvalue() if i != 7 else b"")
            txn.put(b"label-%09d" % (i + 1), f"wörd {i}".encode())
        txn.delete(b"image-%09d" % 12)
    env.close()


def made(path: str) -> Any:
    return bare("mmocr.datasets.recog_lmdb_dataset").RecogLMDBDataset(path, pipeline=[])


def opened(path: str) -> Any:
    return made(path)


def epoch(reader: Any) -> list[Any]:
    return [reader.prepare_data(i) for i in range(len(reader)) if i != 7]


def odd(reader: Any, path: str) -> dict[str, Any]:
    def closed() -> Any:
        env = reader.env
        reader.close()
        return env.begin()

    return {
        "length": lambda: len(reader),
        "an image that is empty": lambda: reader.prepare_data(7),
        "an image that is not there": lambda: reader.prepare_data(11),
        "index too large": lambda: reader.prepare_data(COUNT),
        "opened twice": lambda: len(made(path)),
        "after close": closed,
        "no such folder": lambda: made(path + "?"),
    }


DIFFERS = {"opened twice"}


def test_the_data_set_gives_the_same_samples(race: Any) -> None:
    race()
