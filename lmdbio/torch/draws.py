"""Draws: random numbers of the sample that a thread makes, the same whoever makes it.

    seed, epoch, index of a sample -> its own generators -> random, numpy.random, torch

A process has one generator of each of these modules. Threads that draw from it in turns make other
samples in each run, and a transform that seeds it (to crop an image and its mask alike) is robbed
of what it seeded. So while a thread makes a sample, these modules' own functions draw from
generators of that sample's: seeded from the loader's seed, the epoch's number and the sample's
index, so that neither threads nor workers, ranks or batches change what it draws. Outside of
transforms they are what they were.

The functions of ``random`` and ``numpy.random`` are replaced where these modules have them, once,
when the first sample is made; those of torch are met by a mode of this thread alone. Functions
that were imported by name before (``from random import random``) draw as ever; ``sample_info`` has
generators for all.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from lmdbio.planning.order import GOLDEN, mix_bits

__all__ = [
    "Indexed",
    "Making",
    "SampleInfo",
    "Source",
    "DrawMonitor",
    "sample_info",
]

#: While a transform has drawn nothing for so many samples, torch's functions are not looked at any
#: more: that costs microseconds a call. A draw by any of the modules begins it anew.
MONITORED_SAMPLES = 256


class _Thread(threading.local):
    """The state of one thread.

    Attributes:
        making: samples that it makes; None: none.
    """

    making: Making | None = None


_thread = _Thread()
_installing = threading.Lock()
_is_installed = False


class Source(NamedTuple):
    """Seed and epoch, which the draws of an epoch's samples follow from.

    Attributes:
        seed: seed of the loader, any integer.
        epoch: number of the epoch.
    """

    seed: int
    epoch: int


class Indexed(Protocol):
    """Some samples that have indices."""

    @property
    def indices(self) -> Any:
        """The index of each sample, in their order."""
        ...

    def __len__(self) -> int: ...


class Making:
    """The samples of a batch that a thread makes, one after another.

    While it is entered, that thread draws from the generators of these samples.

    Args:
        source: Source of their draws; None: they draw from the process's generators.
        batch: the batch, which knows its samples' indices.
        monitor: DrawMonitor of their transform.

    Attributes:
        made: samples made so far; the length is the place of the one that is being made.
        left_out: number of samples before it that were left out.
        has_drawn: whether a generator was asked for.
        outer: Making that the thread was in before, in whose transform this is; None: none.
        mode: mode of torch's functions; None: they are not looked at.
    """

    left_out = 0
    has_drawn = False
    outer: Making | None = None
    mode: TorchFunctionMode | None = None
    _index: int | None = -1  # of the sample that the generators are seeded for
    _generators: dict[type, Any] | None = None

    def __init__(self, source: Source | None, batch: Indexed, monitor: DrawMonitor) -> None:
        self._draws, self._monitor = source is not None, monitor
        self.source, self.batch = source or Source(0, 0), batch
        self.made: list[Any] = []

    def __enter__(self) -> Making:
        if not self._draws:
            return self
        if not _is_installed:
            _install()
        self.outer, _thread.making = _thread.making, self
        monitor = self._monitor
        if monitor.source != self.source:  # transforms may draw from an epoch on
            monitor.left, monitor.source = MONITORED_SAMPLES, self.source
        if monitor.left > 0:
            self.mode = _TorchDraws()
            self.mode.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._draws:
            return
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
        _thread.making, self.outer = self.outer, None
        if self.has_drawn:
            self._monitor.left = MONITORED_SAMPLES
        elif self._monitor.left > 0:
            self._monitor.left -= len(self.made)

    @property
    def index(self) -> int | None:
        """The index of the sample that is being made; None: the batch is put together."""
        place = len(self.made) + self.left_out
        return int(self.batch.indices[place]) if place < len(self.batch) else None

    def generator(self, kind: type) -> Any:
        """Return the sample's generator of a kind, a key of ``_KINDS``."""
        index, self.has_drawn = self.index, True
        generators = self._generators
        if generators is None or index != self._index:
            self._index = index
            generators = self._generators = {}
        if kind not in generators:
            generators[kind] = _KINDS[kind](self._seed(index))
        return generators[kind]

    def _seed(self, index: int | None) -> int:
        """Return a seed of 64 bits."""
        if index is None:  # a batch's begins as its first sample, and goes another way
            index = -1 - int(self.batch.indices[0]) if len(self.batch) else -1
        key = 0
        for part in (*self.source, index):
            key = mix_bits((key ^ part) + GOLDEN)
        return key


_KINDS: dict[type, Callable[[int], Any]] = {
    random.Random: random.Random,
    np.random.Generator: np.random.default_rng,
    np.random.RandomState: lambda seed: np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32]),
    torch.Generator: lambda seed: torch.Generator().manual_seed(seed),
}


class SampleInfo:
    """The sample that a transform is making, as ``get_worker_info`` describes a worker.

        def transform(value):
            rng = lmdbio.torch.sample_info().numpy
            return crop(decode(value), rng.integers(32, size=2))

    Its generators are seeded from ``seed``, ``epoch`` and ``index``. So a sample is augmented
    alike in each run, whatever the number of threads, workers and ranks, and differently in each
    epoch.

    Attributes:
        seed: seed of the loader.
        epoch: number of the epoch.
        index: index of the sample; None: ``collate_fn`` is making a batch.
    """

    __slots__ = ("_making", "epoch", "index", "seed")

    def __init__(self, making: Making) -> None:
        self._making = making
        self.seed, self.epoch, self.index = *making.source, making.index

    def __repr__(self) -> str:
        return f"SampleInfo(seed={self.seed}, epoch={self.epoch}, index={self.index})"

    @property
    def numpy(self) -> np.random.Generator:
        """The sample's ``numpy.random.Generator``."""
        return self._making.generator(np.random.Generator)  # type: ignore[no-any-return]

    @property
    def torch(self) -> torch.Generator:
        """The sample's ``torch.Generator``, on the CPU."""
        return self._making.generator(torch.Generator)

    @property
    def random(self) -> random.Random:
        """The sample's ``random.Random``."""
        return self._making.generator(random.Random)  # type: ignore[no-any-return]


def sample_info() -> SampleInfo | None:
    """Return the sample that this thread is making.

    Returns:
        None outside of a transform or ``collate_fn`` of a loader of ``lmdbio.torch``, and in a
        ``Dataset`` whose indices come from a sampler other than ``BatchSampler``, which gives
        neither seed nor epoch.
    """
    making = _thread.making
    return None if making is None else SampleInfo(making)


class DrawMonitor:
    """Whether a transform's calls of torch's functions are looked at.

    Attributes:
        left: number of samples until they are not, unless one draws, or another epoch begins.
        source: epoch of the last batch.
    """

    __slots__ = ("left", "source")

    def __init__(self) -> None:
        self.left, self.source = MONITORED_SAMPLES, Source(0, -1)


def _install() -> None:
    """Replace the functions that draw from a process's one generator, unless that was done."""
    global _is_installed
    if _is_installed:
        return
    with _installing:
        if _is_installed:
            return
        hidden = random.random.__self__  # type: ignore[attr-defined]
        _redirect(random, hidden, random.Random)
        _redirect(np.random, getattr(np.random.rand, "__self__", None), np.random.RandomState)
        for name in ("seed", "get_state", "set_state"):
            _replace(np.random, name, np.random.RandomState, name)
        for name in ("sample", "ranf"):
            _replace(np.random, name, np.random.RandomState, "random_sample")
        for module in (torch, torch.random):
            for name, function in _OF_TORCH.items():
                _replace(module, name, torch.Generator, function)
        _is_installed = True


#: Functions of ``torch.random`` for the sample's generator; they take what torch's take.
_OF_TORCH: dict[str, Callable[..., Any]] = {
    "manual_seed": lambda generator, seed: generator.manual_seed(int(seed)),
    "seed": lambda generator: generator.seed(),
    "initial_seed": lambda generator: generator.initial_seed(),
    "get_rng_state": lambda generator: generator.get_state(),
    "set_rng_state": lambda generator, new_state: generator.set_state(new_state) and None,
}


def _redirect(module: Any, hidden: object, kind: type) -> None:
    """Replace those functions of a module that are methods of its hidden generator."""
    for name, function in list(vars(module).items()):
        if getattr(function, "__self__", None) is hidden and not name.startswith("_"):
            _replace(module, name, kind, name)


def _replace(module: Any, name: str, kind: type, method: str | Callable[..., Any]) -> None:
    """Have a function of a module use the sample's generator, where there is one.

    Args:
        method: name of the generator's method that does the same, or a function of the generator.
    """
    function = getattr(module, name)

    @wraps(function)
    def draw(*arguments: Any, **words: Any) -> Any:
        making = _thread.making
        if making is None:
            return function(*arguments, **words)
        generator = making.generator(kind)
        if callable(method):
            return method(generator, *arguments, **words)
        return getattr(generator, method)(*arguments, **words)

    draw.__module__, draw.__qualname__ = module.__name__, name  # by which it is pickled
    setattr(module, name, draw)


_FACTORIES = frozenset((torch.rand, torch.randn, torch.randint, torch.randperm))
_OF_TENSORS = frozenset(
    getattr(owner, name)
    for owner, names in (
        (
            torch,
            "rand_like randn_like randint_like bernoulli binomial multinomial normal poisson "
            "_standard_gamma _sample_dirichlet",
        ),
        (
            torch.Tensor,
            "bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial "
            "normal_ random_ uniform_",
        ),
    )
    for name in names.split()
)


class _TorchDraws(TorchFunctionMode):
    """Gives torch's functions that draw the sample's generator, on the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), words: Any = None
    ) -> Any:
        words = {} if words is None else words
        draws = function in _FACTORIES or function in _OF_TENSORS
        if draws and not _has_generator(arguments, words) and _on_cpu(function, arguments, words):
            making = _thread.making
            generator = None if making is None else making.generator(torch.Generator)
            words = {**words, "generator": generator}
        return function(*arguments, **words)


def _has_generator(arguments: Any, words: Any) -> bool:
    """Return whether a caller gives a generator of its own."""
    return words.get("generator") is not None or any(
        isinstance(one, torch.Generator) for one in arguments
    )


def _on_cpu(function: Any, arguments: Any, words: Any) -> bool:
    """Return whether a function draws on the CPU."""
    device = words.get("device")
    if device is None and function in _OF_TENSORS:
        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        device = tensors[0].device if tensors else None
    if device is None:
        device = torch.get_default_device()
    return bool(torch.device(device).type == "cpu")
