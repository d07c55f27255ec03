"""A training's step, alone and beside a loader.

On a GPU: a residual network of ResNet-18's shape in bf16, with its transfer. Without one: a narrow
network on a few samples of each batch, in one thread, repeated until it takes ``CPU_SECONDS``.
Each step waits for its end, as a loop does that reads its loss, so that a loop's time is either
waiting for a batch or the step.
"""

from __future__ import annotations

import time

import torch
from torch import nn

from benchmarks.training.workloads import Workload

__all__ = ["Step", "has_gpu"]

#: Of a step without a GPU: about what two cores take to decode a batch, so that both show.
CPU_SECONDS = 0.05
CPU_SAMPLES, CPU_WIDTH, GPU_WIDTH = 8, 8, 64
WARMUPS, ALONE_SECONDS = 3, 0.7


def has_gpu() -> bool:
    return bool(torch.cuda.is_available())


class Block(nn.Module):
    """Two convolutions beside a shortcut.

    Args:
        width, out: channels before and after.
        stride: of the first convolution.
    """

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Conv2d(width, out, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def network(width: int, stages: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 4, 3), nn.ReLU()]
    for stage in range(stages):
        before = width << max(0, stage - 1)
        layers += [Block(before, width << stage, 1 + (stage > 0))]
        layers += [Block(width << stage, width << stage, 1)]
    last = width << stages - 1
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))


class Step:
    """One network that is trained.

    Args:
        made: what batches are like.
        repeats: how often a batch is trained with.
    """

    def __init__(self, made: Workload, repeats: int) -> None:
        self._made, self._repeats = made, repeats
        self._gpu = has_gpu()
        self._device = torch.device("cuda" if self._gpu else "cpu")
        if not self._gpu:
            torch.set_num_threads(1)
        net = network(GPU_WIDTH, 4) if self._gpu else network(CPU_WIDTH, 3)
        # On a GPU alone: CPUs gain little, and oneDNN has crashed in going backward.
        self._format = torch.channels_last if self._gpu else torch.contiguous_format
        self._net = net.to(self._device, memory_format=self._format)
        self._sgd = torch.optim.SGD(self._net.parameters(), 1e-3)

    def __call__(self, images: torch.Tensor) -> None:
        images = images if self._gpu else images[:CPU_SAMPLES]
        images = images.to(self._device, non_blocking=True)
        if self._made.shape[-1] == 3:
            images = images.permute(0, 3, 1, 2)
        for _ in range(self._repeats):
            self._train(images)
        if self._gpu:
            torch.cuda.synchronize()

    def _train(self, images: torch.Tensor) -> None:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._gpu):
            floats = images.contiguous(memory_format=self._format).float().div_(255)
            labels = torch.zeros(len(images), dtype=torch.int64, device=self._device)
            loss = nn.functional.cross_entropy(self._net(floats), labels)
        self._sgd.zero_grad(set_to_none=True)
        loss.backward()
        self._sgd.step()

    def alone(self) -> float:
        """Return the seconds of a step when nothing is loaded."""
        batch = torch.zeros((self._made.batch, *self._made.shape), dtype=torch.uint8)
        batch = batch.pin_memory() if self._gpu else batch
        for _ in range(WARMUPS):
            self(batch)
        steps, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < ALONE_SECONDS or not steps:
            self(batch)
            steps += 1
        return passed / steps

    @classmethod
    def repeats(cls, made: Workload) -> int:
        """Return how often a batch is trained with: once on a GPU, else what takes long enough."""
        return 1 if has_gpu() else max(1, round(CPU_SECONDS / cls(made, 1).alone()))
