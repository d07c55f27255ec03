"""loading: closed forms of how long an epoch's reading takes, and what of it is seen. Pure.

``double_buffer`` is of groups that are read beside computing (asynchronous I/O, III-B),
``buffer_bytes`` the memory for that,
``backend_rate`` what a file system must give for that to stay hidden (DeepIO, IV-D), ``Loading``
an epoch of one job with caches or without (locality-aware loading, equations 1 to 8).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Loading", "Makespan", "backend_rate", "buffer_bytes", "double_buffer"]


@dataclass(frozen=True, slots=True)
class Makespan:
    """How long groups take that are read and then computed with.

    Attributes:
        seconds: time from the first read to the end of the last computing, seconds.
        exposed_seconds: part of ``seconds`` without computing.
    """

    seconds: float
    exposed_seconds: float


def double_buffer(groups: int, read: float, compute: float, *, buffers: int = 2) -> Makespan:
    """Return how long groups take, the next one being read while one is computed with.

    Both buffers are empty at first. With one buffer nothing is hidden.

    Args:
        groups: number of groups; 0 take no time.
        read, compute: seconds of each.
        buffers: 1 or 2.

    Raises:
        ValueError: another number of buffers.
    """
    if buffers not in (1, 2):
        raise ValueError(f"there are 1 or 2 buffers, not {buffers}")
    if not groups:
        return Makespan(0.0, 0.0)
    if buffers == 1:
        seconds = groups * (read + compute)
    else:
        seconds = read + (groups - 1) * max(read, compute) + compute
    return Makespan(seconds, seconds - groups * compute)


def buffer_bytes(group: int, *, processes: int = 1, buffers: int = 2) -> int:
    """Return what the buffers of a node take whose processes read groups beside computing.

    Args:
        group: bytes, or another measure, of what a process reads at once.
        processes: number of processes of the node that read.
        buffers: number of buffers of each: 2, where one is read while the other one is used.
    """
    return group * processes * buffers


def backend_rate(nodes: int, batch: int, sample_bytes: int, seconds: float) -> float:
    """Return what the file system must give for its reads to stay hidden, bytes per second.

    Args:
        nodes: number of nodes, with ``batch`` samples of ``sample_bytes`` each in an iteration.
        seconds: duration of an iteration, seconds.
    """
    return nodes * batch * sample_bytes / seconds


@dataclass(frozen=True, slots=True)
class Loading:
    """An epoch of a job whose learners each train, and read samples from what they share.

    Attributes:
        samples: number of samples of the data set (D).
        learners: number of learners (p).
        training_rate: samples per second that a learner trains with (V).
        file_rate: samples per second of the file system, for all (R).
        preprocessing_rate: samples per second that a learner makes ready (U).
        cached: share of the samples that all caches have together (alpha).
        cache_rate: samples per second between learners, where each reads what it needs (R_c).
        balance_rate: the same, where only surpluses are moved (R_b).
        moved: share of the samples that are (beta).
    """

    samples: int
    learners: int
    training_rate: float
    file_rate: float
    preprocessing_rate: float
    cached: float = 0.0
    cache_rate: float = float("inf")
    balance_rate: float = float("inf")
    moved: float = 0.0

    @property
    def training_seconds(self) -> float:
        """Equation 1."""
        return self.samples / (self.learners * self.training_rate)

    @property
    def read_seconds(self) -> float:
        """Of samples that all come from the file system: equation 2."""
        return self.samples / self.file_rate

    @property
    def preprocessing_seconds(self) -> float:
        """Equation 3."""
        return self.samples / (self.learners * self.preprocessing_rate)

    @property
    def loading_seconds(self) -> float:
        """Reading, then preprocessing: equation 4."""
        return self.read_seconds + self.preprocessing_seconds

    @property
    def learners_max(self) -> float:
        """Up to so many learners training takes longer than reading: equation 5."""
        return self.file_rate / self.training_rate

    @property
    def epoch_seconds(self) -> float:
        """The longer one of training and reading: equation 6."""
        return max(self.training_seconds, self.read_seconds)

    @property
    def distributed_cache_seconds(self) -> float:
        """Reading where all but a learner's own part of the caches is remote: equation 7."""
        remote = (self.learners - 1) / self.learners
        return self._uncached_seconds + self.cached * self.samples / self.cache_rate * remote

    @property
    def local_seconds(self) -> float:
        """Reading where learners take what they hold, and only surpluses move: equation 8."""
        return self._uncached_seconds + self.cached * self.samples / self.balance_rate * self.moved

    @property
    def _uncached_seconds(self) -> float:
        return (1 - self.cached) * self.samples / self.file_rate
