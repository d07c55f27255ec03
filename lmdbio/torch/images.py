"""Decoders of whole batches of images, by torchvision: on the CPU, or JPEGs on a GPU.

values -> uint8 tensors of their bytes -> torchvision decodes, and resizes -> one tensor
a GPU: all JPEGs of a batch in one call, on a stream of the thread's own
what the GPU cannot decode -> the CPU, and from there to the GPU
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import Any

import torch

from lmdbio.errors import MissingExtraError
from lmdbio.machine.choice import Reason
from lmdbio.system.log import WARNING, log
from lmdbio.torch.samples import RecordErrors, add_note
from lmdbio.torch.whole import TensorDecoder, TensorMemory, as_batch

__all__ = ["Image", "Jpeg"]

#: Where in its source torchvision raised an error, which begins with that.
IN_SOURCE = re.compile(r"^\w+, \S+:\d+, ")
#: Names of torchvision's ``ImageReadMode``, and the channels that a tensor has.
MODES = ("RGB", "GRAY", "RGB_ALPHA", "GRAY_ALPHA", "UNCHANGED")
#: Of these a GPU's decoder of JPEGs knows only some.
GPU_MODES = ("RGB", "GRAY", "UNCHANGED")


@cache
def _io() -> ModuleType:
    """Return torchvision's ``io``.

    Raises:
        MissingExtraError: it is not installed.
        Exception: it cannot be imported, with a note.
    """
    try:
        import torchvision.io as found
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torchvision":
            raise
        name = "lmdbio.torch.Image"
        raise MissingExtraError(name, "torchvision", "torchvision", "images") from None
    except Exception as error:
        add_note(error, f"is torchvision one that was built for torch {torch.__version__}?")
        raise
    return found  # type: ignore[no-any-return]


@cache
def _resize() -> Any:
    """Return torchvision's function that resizes an image or several of one size."""
    from torchvision.transforms.v2.functional import resize

    return resize


def _bytes_of(value: memoryview) -> torch.Tensor:
    """Return the bytes of a value as a tensor; a copy, for torch knows no memory that is lent."""
    if not len(value):
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)


class Image(TensorDecoder):
    """Images of any format that torchvision decodes: JPEG, PNG, WebP, GIF; by the CPU.

        Loader(path, 64, shuffle=True, decode=Image((224, 224)))

    A batch is uint8 of shape (n, channels, height, width). It needs torchvision: ``pip install
    'lmdbio[images]'``.

    Args:
        size: height and width that each image is resized to, antialiased, whatever its
            proportions; None: images are as large as they are, and those of a batch that differ
            come as a list of tensors.
        mode: channels of the images: "RGB", "GRAY", "RGB_ALPHA", "GRAY_ALPHA" or "UNCHANGED".

    Raises:
        MissingExtraError: there is no torchvision.
        ValueError: size or mode make no sense.
    """

    _format, _function = "image", "decode_image"

    def __init__(self, size: Sequence[int] | None = None, mode: str = "RGB") -> None:
        self._size = None if size is None else [operator.index(n) for n in size]
        if self._size is not None and (len(self._size) != 2 or min(self._size) < 1):
            raise ValueError(f"size is a height and a width in pixels, not {size!r}")
        if mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        self._mode = mode
        _io()

    def decode(self, batch: Any, memory: TensorMemory) -> torch.Tensor | list[torch.Tensor]:
        """Return the images of a batch.

        Raises:
            RecordErrors: values are no images, or broken ones.
        """
        batch = as_batch(batch, type(self).__name__)
        images: list[torch.Tensor] = []
        failed: dict[int, Exception] = {}
        for row, value in enumerate(batch):
            try:
                images.append(self._sized(self._read(_bytes_of(value))))
            except RuntimeError as error:
                index, reason = int(batch.indices[row]), IN_SOURCE.sub("", str(error))
                failed[row] = ValueError(
                    f"record {index} is no {self._format} that torchvision decodes: {reason}"
                )
        if failed:
            raise RecordErrors(failed)
        return self._gathered(images, memory)

    def _read(self, data: torch.Tensor) -> torch.Tensor:
        """Return one image, on the CPU."""
        decode = getattr(_io(), self._function)
        image: torch.Tensor = decode(data, mode=_io().ImageReadMode[self._mode])
        return image

    def _sized(self, image: torch.Tensor) -> torch.Tensor:
        if self._size is None or list(image.shape[-2:]) == self._size:
            return image
        sized: torch.Tensor = _resize()(image, self._size, antialias=True)
        return sized

    @staticmethod
    def _gathered(
        images: list[torch.Tensor], memory: TensorMemory
    ) -> torch.Tensor | list[torch.Tensor]:
        """Return images as one tensor, if they are of one shape."""
        if not images:
            return memory.empty((0, 0, 0, 0), torch.uint8)
        first = images[0]
        if any(image.shape != first.shape or image.dtype != first.dtype for image in images):
            return [memory.place(image) for image in images]
        gathered = memory.empty((len(images), *first.shape), first.dtype)
        return torch.stack(images, out=gathered)


#: A stream of the GPU for each thread that decodes, by its device.
_streams = threading.local()


def _stream_of(device: torch.device) -> Any:
    streams = vars(_streams)
    if str(device) not in streams:
        streams[str(device)] = torch.cuda.Stream(device)
    return streams[str(device)]


@cache
def _gpu_reason(device: str) -> Reason | None:
    """Return why a device decodes no JPEGs; None: it does. Asked once a process."""
    if not torch.cuda.is_available():
        return Reason("facts", f"the CPU decodes: no GPU, which {device!r} asks for, is there")
    try:
        black = _io().encode_jpeg(torch.zeros((3, 16, 16), dtype=torch.uint8, device="cpu"))
        _io().decode_jpeg([black], device=device)
    except Exception as error:  # a driver, a library or a build fails in many ways
        reported = (str(error).splitlines() or [type(error).__name__])[0]
        return Reason("facts", f"the CPU decodes: {device!r} does not: {reported}")
    return None


class Jpeg(Image):
    """JPEG files, decoded by the CPU, or a whole batch at once by a GPU.

        Loader(path, 256, shuffle=True, decode=Jpeg((224, 224), device="cuda"))

    A GPU decodes and resizes on a stream of its own, beside the training; a thread of the loader
    waits for it. Tensors are complete when the loader yields them, for the device's default
    stream: a program that uses them on another one calls ``record_stream``. The CPU decodes a
    batch with images that the GPU cannot decode, and copies it to the GPU. ``Image`` decodes other
    formats.

    Args:
        size, mode: arguments of ``Image``; a GPU has "RGB", "GRAY" and "UNCHANGED".
        device: "cpu", or a GPU such as "cuda", where the batches are then. If no GPU is usable,
            the CPU decodes, and batches stay there; ``decoding`` gives the reason.

    Raises:
        MissingExtraError: there is no torchvision.
        ValueError: size, mode or device make no sense.
    """

    _format, _function = "JPEG", "decode_jpeg"

    def __init__(
        self,
        size: Sequence[int] | None = None,
        mode: str = "RGB",
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(size, mode)
        self._device = torch.device(device)
        if self._device.type not in ("cpu", "cuda"):
            raise ValueError(f"device is 'cpu' or a GPU, such as 'cuda': not {str(device)!r}")
        if self._device.type == "cuda" and mode not in GPU_MODES:
            raise ValueError(f"a GPU decodes {', '.join(GPU_MODES)}, and not mode {mode!r}")

    @property
    def decoding(self) -> Reason:
        """Whether the CPU or a GPU decodes, and why: it says so as ``text``."""
        if self._device.type == "cpu":
            return Reason("keyword", "the CPU decodes: device='cpu'")
        name = str(self._device)
        return _gpu_reason(name) or Reason("keyword", f"the GPU decodes: device={name!r}")

    def decode(self, batch: Any, memory: TensorMemory) -> torch.Tensor | list[torch.Tensor]:
        """Return the images of a batch.

        Raises:
            RecordErrors: values are no JPEGs, or broken ones.
        """
        if self._device.type == "cpu":
            return super().decode(batch, memory)
        why_not = _gpu_reason(str(self._device))
        if why_not is not None:
            log(why_not.text, WARNING)
            return super().decode(batch, memory)
        return self._decode_there(as_batch(batch, "Jpeg"), memory)

    def _decode_there(self, batch: Any, memory: TensorMemory) -> torch.Tensor | list[torch.Tensor]:
        """Return the images of a batch on the GPU, decoded by it if it can."""
        values = [_bytes_of(value) for value in batch]
        mode = _io().ImageReadMode[self._mode]
        stream = _stream_of(self._device)
        on_stream: AbstractContextManager[Any] = torch.cuda.stream(stream)
        with on_stream:
            try:
                images = _io().decode_jpeg(values, mode=mode, device=self._device)
                made = _there([self._sized(image) for image in images])
            except RuntimeError:  # it says not of which image
                made = _moved(super().decode(batch, memory), self._device)
            stream.synchronize()  # what others see is complete
        for one in made if isinstance(made, list) else [made]:
            one.record_stream(torch.cuda.default_stream(self._device))
        return made


def _there(images: list[torch.Tensor]) -> torch.Tensor | list[torch.Tensor]:
    """Return images of a GPU as one tensor, if they are of one shape."""
    if any(image.shape != images[0].shape for image in images):
        return images
    return torch.stack(images)


def _moved(
    made: torch.Tensor | list[torch.Tensor], device: torch.device
) -> torch.Tensor | list[torch.Tensor]:
    if isinstance(made, list):
        return [one.to(device, non_blocking=True) for one in made]
    return made.to(device, non_blocking=True)
