"""Collate: a batch of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio.system.warn import warn

__all__ = ["Collate"]


class Collate:
    """Makes a batch of samples.

    Args:
        function: function from a list of samples to a batch; None: torch's ``default_collate``.
        pins: whether tensors go to page-locked memory.

    Attributes:
        function: function that the caller gave, or torch's own.
    """

    def __init__(self, function: Callable[[list[Any]], Any] | None, *, pins: bool) -> None:
        self.function = default_collate if function is None else function
        self._pins = pins and torch.cuda.is_available()
        if pins and not self._pins:
            warn("pin_memory: there is no GPU, so nothing is pinned")

    def __call__(self, samples: list[Any]) -> Any:
        """Return a batch of samples."""
        return self.pinned(self.function(samples))

    def pinned(self, batch: Any) -> Any:
        """Return a batch whose tensors are in page-locked memory, if that was asked for."""
        return pin_memory(batch) if self._pins else batch
