"""Batches of images: each is what torchvision makes of it alone, and all are one tensor.

Goal: images of any format come out as torchvision decodes and resizes them; broken ones are
named, or left out; where no GPU can be used, the CPU decodes and says why; without torchvision an
error names what to install.

Method: photographs are drawn here and written by PIL. No GPU is needed: what stands for one
decodes on the CPU, or fails.
"""

from __future__ import annotations

import io
import logging
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from lmdbio.torch import Datum, Image, Jpeg, Loader, RecordErrors, images
from tests.support import databases
from tests.torch.test_decoders import written, wrote
from tests.torch.test_formats import datum

try:
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import resize
except Exception as error:  # one that was built for another torch raises RuntimeError
    pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)

COUNT = 24


def drawn(i: int, size: tuple[int, int], kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """A smooth picture that depends on its number."""
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    planes = [rows * 3 + i * 9, columns * 2 + i, (rows + columns) * (i % 3 + 1)]
    image = PIL.Image.fromarray(np.stack(planes, axis=2).astype("u1"), "RGB").convert(mode)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def alone(value: bytes, mode: str = "RGB", size: Any = None) -> torch.Tensor:
    data = torch.frombuffer(bytearray(value), dtype=torch.uint8)
    image = decode_image(data, mode=ImageReadMode[mode])
    return image if size is None else resize(image, list(size), antialias=True)


@pytest.fixture(scope="module")
def jpegs() -> list[bytes]:
    return [drawn(i, (20 + i % 5, 30 + i % 3)) for i in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, jpegs: list[bytes]) -> Path:
    return written(tmp_path_factory.mktemp("images") / "db", jpegs)


@pytest.mark.parametrize("mode", ["RGB", "GRAY"])
@pytest.mark.parametrize("kind", [Image, Jpeg])
def test_images_are_resized_to_one_tensor(
    folder: Path, jpegs: list[bytes], kind: Any, mode: str
) -> None:
    decoder = kind((16, 12), mode)
    with Loader(folder, 7, decode=decoder, keys=True, shuffle=True) as loader:
        for keys, batch in loader:
            assert batch.dtype == torch.uint8 and batch.is_contiguous()
            wanted = [alone(jpegs[int(key)], mode, (16, 12)) for key in keys]
            assert torch.equal(batch, torch.stack(wanted))


def test_images_of_several_sizes_are_a_list(folder: Path, jpegs: list[bytes]) -> None:
    with Loader(folder, 7, decode=Jpeg()) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, list)
    assert all(torch.equal(one, alone(jpegs[i])) for i, one in enumerate(batch))


def test_images_of_one_size_are_a_tensor(tmp_path: Path) -> None:
    values = [drawn(i, (9, 8), "PNG" if i % 2 else "WEBP") for i in range(6)]
    path = written(tmp_path / "db", values)
    with Loader(path, 6, decode=Image()) as loader:
        batch = next(iter(loader))
    assert torch.equal(batch, torch.stack([alone(value) for value in values]))


def test_png_keeps_its_channels_where_that_is_asked_for(tmp_path: Path) -> None:
    values = [drawn(i, (9, 8), "PNG", "RGBA") for i in range(6)]
    path = written(tmp_path / "db", values)
    for mode, channels in (("RGB", 3), ("UNCHANGED", 4), ("GRAY_ALPHA", 2)):
        with Loader(path, 6, decode=Image(mode=mode)) as loader:
            assert next(iter(loader)).shape == (6, channels, 9, 8)


@pytest.mark.parametrize(
    ("kind", "broken", "why"),
    [
        (Image, b"", "no image that torchvision decodes"),
        (Image, b"no image at all", "no image that torchvision decodes"),
        (Jpeg, drawn(1, (9, 8), "PNG"), "no JPEG that torchvision decodes: Not a JPEG file"),
        (Jpeg, drawn(1, (90, 80))[:300], "no JPEG that torchvision decodes"),
    ],
)
def test_broken_images_are_named_or_left_out(
    tmp_path: Path, kind: Any, broken: bytes, why: str
) -> None:
    values = [drawn(i, (90, 80)) for i in range(5)]
    path = written(tmp_path / "db", [*values[:3], broken, *values[3:]])
    with Loader(path, 6, decode=kind((8, 8))) as loader:
        with pytest.raises(ValueError, match=f"record 3 is {why}") as caught:
            next(iter(loader))
    assert f"sample 3, key 00000003, file {path}" in wrote(caught.value)
    assert ".cpp" not in str(caught.value)
    with Loader(path, 6, decode=kind((8, 8)), errors="skip", keys=True) as loader:
        keys, batch = next(iter(loader))
        assert loader.stats().skipped_records == 1
    assert torch.equal(batch, torch.stack([alone(one, size=(8, 8)) for one in values]))
    assert b"00000003" not in keys


def test_encoded_datums_hold_images(tmp_path: Path, jpegs: list[bytes]) -> None:
    none = np.zeros((1, 1, 1), "u1")
    values = [datum(none, i, encoded=one) for i, one in enumerate(jpegs)]
    path = written(tmp_path / "db", values)
    with Loader(path, 9, decode=Datum(Jpeg((8, 8))), shuffle=True) as loader:
        for batch, labels in loader:
            wanted = [alone(jpegs[i], size=(8, 8)) for i in labels.tolist()]
            assert torch.equal(batch, torch.stack(wanted))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"size": (3,)}, "a height and a width"),
        ({"size": (0, 3)}, "a height and a width"),
        ({"mode": "BGR"}, "mode is one of RGB"),
        ({"device": "meta"}, "device is 'cpu' or a GPU"),
        ({"device": "cuda", "mode": "RGB_ALPHA"}, "a GPU decodes RGB, GRAY, UNCHANGED"),
    ],
)
def test_what_makes_no_sense_is_refused(words: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Jpeg(**words)


def test_decoders_pickle() -> None:
    again = pickle.loads(pickle.dumps(Jpeg((8, 9), "GRAY", device="cuda:1")))
    assert vars(again) == vars(Jpeg((8, 9), "GRAY", device="cuda:1"))


# --- a GPU -------------------------------------------------------------------------------


@pytest.fixture
def asked_anew() -> Any:
    images._gpu_reason.cache_clear()
    yield
    images._gpu_reason.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("there", [False, True])
def test_the_cpu_decodes_where_no_gpu_does_and_says_so(
    folder: Path,
    jpegs: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    there: bool,
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    # Torch says that there is one, and its driver fails.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr("lmdbio.system.log._logged", set())
    decoder = Jpeg((8, 8), device="cuda")
    with caplog.at_level(logging.WARNING, "lmdbio"):
        with Loader(folder, 7, decode=decoder) as loader:
            batch = next(iter(loader))
    assert torch.equal(batch, torch.stack([alone(one, size=(8, 8)) for one in jpegs[:7]]))
    why = decoder.decoding
    assert why.origin == "facts" and why.text.startswith("the CPU decodes: ")
    assert ("'cuda' does not" in why.text) == there
    assert [record.message for record in caplog.records].count(why.text) == 1
    assert Jpeg().decoding.text == "the CPU decodes: device='cpu'"


class _Stream:
    """Stands for a stream of a GPU, and is the context in which that is the current one."""

    def __init__(self, *_: Any) -> None:
        self.events: list[str] = []

    def synchronize(self) -> None:
        self.events.append("synchronize")

    def __enter__(self) -> None:
        self.events.append("enter")

    def __exit__(self, *_: object) -> None:
        self.events.append("exit")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, asked_anew: None) -> Any:
    """Stands for a GPU, whose decoder is the CPU's and knows all JPEGs of a batch, or fails."""
    asked: list[int] = []
    streams: list[_Stream] = []
    recorded: list[Any] = []
    real = images._io()

    def decode(data: Any, mode: Any = None, device: Any = "cpu") -> Any:
        words = {} if mode is None else {"mode": mode}
        if not isinstance(data, list):
            return real.decode_jpeg(data, **words)
        asked.append(len(data))
        return [real.decode_jpeg(one, **words) for one in data]

    def stream(device: Any) -> _Stream:
        streams.append(_Stream())
        return streams[-1]

    fake = SimpleNamespace(**{**vars(real), "decode_jpeg": decode})
    monkeypatch.setattr(images, "_io", lambda: fake)
    monkeypatch.setattr(images, "_streams", threading.local())
    monkeypatch.setattr(images, "_moved", lambda made, device: made)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda one: one)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: "default")
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda one, by: recorded.append(by))
    return SimpleNamespace(asked=asked, streams=streams, recorded=recorded)


def test_a_gpu_decodes_a_batch_in_one_call_on_a_stream_of_its_own(
    folder: Path, jpegs: list[bytes], gpu: Any
) -> None:
    decoder = Jpeg((8, 8), device="cuda")
    assert decoder.decoding.text == "the GPU decodes: device='cuda'"
    with Loader(folder, 8, decode=decoder, threads=1) as loader:
        for step, batch in enumerate(loader):
            some = jpegs[8 * step : 8 * step + 8]
            assert torch.equal(batch, torch.stack([alone(one, size=(8, 8)) for one in some]))
    assert gpu.asked == [1, 8, 8, 8]  # first whether it can at all
    assert len(gpu.streams) == 1 and gpu.recorded == ["default"] * 3
    # A batch is complete before anybody else has it.
    assert gpu.streams[0].events == ["enter", "synchronize", "exit"] * 3


def test_what_a_gpu_cannot_decode_the_cpu_does(tmp_path: Path, gpu: Any) -> None:
    values = [drawn(i, (9, 8)) for i in range(5)]
    path = written(tmp_path / "db", [*values[:2], b"no JPEG", *values[2:]])
    words: dict[str, Any] = {"decode": Jpeg(device="cuda"), "keys": True}
    with Loader(path, 6, errors="skip", **words) as loader:
        keys, batch = next(iter(loader))
    assert [int(key) for key in keys] == [0, 1, 3, 4, 5]
    assert torch.equal(batch, torch.stack([alone(one) for one in values]))
    with Loader(path, 6, **words) as loader, pytest.raises(ValueError, match="record 2 is no"):
        next(iter(loader))
    assert gpu.asked[-1] == 6


def test_errors_leave_no_tensor_behind(tmp_path: Path) -> None:
    path = written(tmp_path / "db", [databases.value(1, 3000)] * 3)
    with Loader(path, 3, decode=Jpeg()) as loader:
        batch = loader.dataset.records.read([0, 1, 2])
        with pytest.raises(RecordErrors) as caught:
            Jpeg()(batch)
    assert sorted(caught.value.errors) == [0, 1, 2]
    assert all(error.__traceback__ is None for error in caught.value.errors.values())
