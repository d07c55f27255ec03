"""Two small networks, in NumPy and in PyTorch, that ranks train together.

All parameters lie in one vector and all that ranks have to add up in another, so that an
iteration needs one Allreduce. Everything begins from one seed and is 32-bit arithmetic in one
order: the same bytes in the same order give the same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FRAMEWORKS", "Model"]

F32 = npt.NDArray[np.float32]
Shape = tuple[int, ...]
#: Weights, images, labels -> summed loss, right answers, slopes of the loss by each weight.
Learn = Callable[[Sequence[F32], F32, npt.NDArray[np.int32]], tuple[float, int, Sequence[F32]]]

RATE, MOMENTUM = 0.01, 0.9


class Model:
    """Parameters, and one step of stochastic gradient descent with momentum.

    Attributes:
        weights: all parameters, float32, shape (parameters,).
        sums: of the records of one iteration: slopes, loss, right answers; float32, shape
            (parameters + 2,). Ranks add theirs up.

    Args:
        framework: "numpy": a perceptron with one hidden layer; "torch": a convolutional net.
        image_shape: channels, height, width.
        classes: of the labels, 0 .. classes - 1.
        hidden: units of the hidden layer, half as many filters: how much there is to compute.
        seed: of the first weights.
    """

    def __init__(
        self, framework: str, image_shape: Shape, *, classes: int, hidden: int, seed: int
    ) -> None:
        make, outline = FRAMEWORKS[framework]
        shapes = outline(image_shape, classes, hidden)
        self._learn = make()
        self._classes = classes
        size = sum(int(np.prod(shape)) for shape in shapes)
        self.weights, self._velocity = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.sums = np.zeros(size + 2, np.float32)
        self._parts, self._slopes = _parts(self.weights, shapes), _parts(self.sums, shapes)
        rng = np.random.default_rng(seed)
        for part in self._parts:
            if part.ndim > 1:  # He's rule; biases begin at 0
                inputs = part.size // part.shape[0]
                part[:] = rng.normal(0, np.sqrt(2 / inputs), part.shape)

    def learn(self, images: F32, labels: npt.NDArray[np.int32]) -> None:
        """Sets ``sums`` for a share of a batch, which may be empty."""
        self.sums[:] = 0
        if not len(labels):
            return
        if labels.min() < 0 or labels.max() >= self._classes:
            raise ValueError(
                f"labels reach from {labels.min()} to {labels.max()}, "
                f"there are classes 0 to {self._classes - 1} (--classes)"
            )
        loss, right, slopes = self._learn(self._parts, images, labels)
        for mine, slope in zip(self._slopes, slopes, strict=True):
            mine[:] = slope
        self.sums[-2:] = loss, right

    def step(self, count: int) -> tuple[float, float]:
        """Moves the weights by the ``sums`` of ``count`` records; their mean loss, accuracy."""
        self._velocity *= MOMENTUM
        self._velocity -= np.float32(RATE / count) * self.sums[:-2]
        self.weights += self._velocity
        return float(self.sums[-2]) / count, float(self.sums[-1]) / count


def _parts(vector: F32, shapes: Sequence[Shape]) -> list[F32]:
    """Views of consecutive parts of a vector."""
    parts, start = [], 0
    for shape in shapes:
        end = start + int(np.prod(shape))
        parts.append(vector[start:end].reshape(shape))
        start = end
    return parts


# --- NumPy: a perceptron with one hidden layer ---------------------------------------------


def perceptron(image_shape: Shape, classes: int, hidden: int) -> list[Shape]:
    """The shapes of its parameters."""
    return [(hidden, int(np.prod(image_shape))), (hidden,), (classes, hidden), (classes,)]


def with_numpy() -> Learn:
    return learn_with_numpy


def learn_with_numpy(
    weights: Sequence[F32], images: F32, labels: npt.NDArray[np.int32]
) -> tuple[float, int, Sequence[F32]]:
    """Forward, softmax, backward."""
    into, into_bias, out, out_bias = weights
    x = images.reshape(len(images), -1)
    hidden = np.maximum(x @ into.T + into_bias, 0)
    scores = hidden @ out.T + out_bias
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(np.maximum(chances[rows, labels], np.float32(1e-30))).sum()
    right = int((chances.argmax(axis=1) == labels).sum())
    chances[rows, labels] -= 1  # now the slope of the loss by the scores
    back = (chances @ out) * (hidden > 0)
    return float(loss), right, (back.T @ x, back.sum(0), chances.T @ hidden, chances.sum(0))


# --- PyTorch: two convolutions and a linear layer ------------------------------------------


def convolutions(image_shape: Shape, classes: int, hidden: int) -> list[Shape]:
    """The shapes of its parameters."""
    channels, height, width = image_shape
    first, second = max(hidden // 4, 1), max(hidden // 2, 1)
    flat = second * (height // 4) * (width // 4)
    return [(first, channels, 5, 5), (first,), (second, first, 5, 5), (second,),
            (classes, flat), (classes,)]  # fmt: skip


def with_torch() -> Learn:
    try:
        import torch
    except ImportError as error:
        raise ValueError(f"--framework torch needs PyTorch ({error})") from error
    functional = torch.nn.functional
    torch.set_num_threads(1)  # one order of adding up

    def layer(x: Any, kernel: Any, bias: Any) -> Any:
        return functional.max_pool2d(functional.conv2d(x, kernel, bias, padding=2).relu(), 2)

    def learn(
        weights: Sequence[F32], images: F32, labels: npt.NDArray[np.int32]
    ) -> tuple[float, int, Sequence[F32]]:
        parts = [torch.from_numpy(part).requires_grad_() for part in weights]  # the same memory
        wanted = torch.from_numpy(labels.astype(np.int64))
        x = layer(layer(torch.from_numpy(images), *parts[:2]), *parts[2:4])
        scores = functional.linear(x.flatten(1), *parts[4:])
        loss = functional.cross_entropy(scores, wanted, reduction="sum")
        slopes = torch.autograd.grad(loss, parts)
        right = int((scores.argmax(1) == wanted).sum())
        return float(loss.detach()), right, [slope.numpy() for slope in slopes]

    return learn


FRAMEWORKS: dict[str, tuple[Callable[[], Learn], Callable[[Shape, int, int], list[Shape]]]] = {
    "numpy": (with_numpy, perceptron),
    "torch": (with_torch, convolutions),
}
