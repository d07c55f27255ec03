"""randomness: how much chance an order of an epoch has, and what chance makes of many. Pure.

    shuffle, count -> randomness    share of the chance of a whole permutation, 0 to 1
                   -> meeting       share of all pairs of records that can come to one batch
    samples, groups -> epochs_without_repeat   for how long no group has to meet the same way
    runs           -> confidence_ranks    ranks between which their median lies

Source: Zhu et al., DeepIO, section III-C: equations 1 to 5, with the two arguments of equation 1
exchanged, which gives the values that the paper prints; Lee et al., Asynchronous I/O Strategy for
Large-Scale Deep Learning Applications, equation 1; the HDMLP thesis, equation 5.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio.planning.shuffle import Shuffle

__all__ = [
    "confidence_ranks",
    "epochs_without_repeat",
    "meeting",
    "randomness",
]

#: Places that are summed up at a time.
PART = 1 << 20


def randomness(shuffle: Shuffle, count: int) -> float:
    """Return the randomisation level of an order: 1 for a whole permutation, 0 for none.

    Each place is weighed by the chance of a record in a whole permutation; what counts is the
    logarithm of how many records could come there, after those that came before.

    Args:
        shuffle: shuffle of the epoch.
        count: records, at least 1.
    """
    if shuffle.given_order(count) is not None:
        return 0.0
    found = whole = 0.0
    for begin in range(0, count, PART):
        places = np.arange(begin, min(begin + PART, count), dtype=np.int64)
        left = (count - places).astype(np.float64)
        found += float((np.log2(_choices(shuffle, count, places)) / left).sum())
        whole += float((np.log2(left) / left).sum())
    return found / whole if whole else 1.0


def _choices(
    shuffle: Shuffle, count: int, places: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """How many records could come to each place."""
    if shuffle.held:
        is_held, numbers = shuffle.apart(places, count)
        streamed = _choices(shuffle.streamed, count - shuffle.held, numbers)
        return np.where(is_held, shuffle.held - numbers, streamed)
    window = max(1, shuffle.window_records(count))
    if not shuffle.inner and shuffle.chunk > 1:
        choices = np.ceil((count - places) / window)
    else:
        begin = places // window * window
        windows_left = np.maximum(1.0, (count - begin) / window)  # the last one may be shorter
        choices = windows_left * (np.minimum(begin + window, count) - places)
    return np.asarray(choices, np.float64)


def meeting(shuffle: Shuffle, count: int) -> float:
    """Return the share of all pairs of records that one epoch can bring to the same batch.

    Records of one window can; batches that span two windows are left out. Where windows
    have more than one chunk, each epoch has others: in the end all pairs can meet. Records of
    two ``groups`` never do. Records that are held (``mixed``) meet all others.

    Args:
        shuffle: shuffle of the epoch.
        count: records.
    """
    if count < 2:
        return 1.0
    if shuffle.order is not None or not (shuffle.inner or shuffle.chunk == 1):
        return 0.0
    streamed = count - shuffle.held
    apart = streamed - shuffle.streamed.window_records(streamed) if streamed else 0
    return 1 - streamed * apart / (count * (count - 1))


def epochs_without_repeat(samples: int, groups: int) -> int:
    """Return for how many epochs S < N/G holds: the largest such S.

    G groups of N samples can be dealt out in N/G epochs without any of them being shuffled the
    same way twice.
    """
    if groups < 1:
        raise ValueError(f"there must be at least 1 group, not {groups}")
    return max(0, -(-samples // groups) - 1)


def confidence_ranks(runs: int) -> tuple[int, int] | None:
    """Return the ranks j and k of the runs between which their median lies, with 95 % of chance.

    The narrowest pair that is as far from both ends; ranks count from 1, the least run. Nothing is
    assumed of the runs' distribution.

    Args:
        runs: number of runs.

    Returns:
        None: there are too few runs to be so sure.

    Source: the HDMLP thesis, equation 5.1.
    """
    most = 2**runs // 40  # ways to miss on one side: of all, half of one in 20
    found, below, ways = None, 0, 1
    for low in range(1, (runs + 1) // 2 + 1):
        below += ways
        if below > most:
            break
        found = low, runs + 1 - low
        ways = ways * (runs + 1 - low) // low
    return found
