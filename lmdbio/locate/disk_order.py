"""disk_order: how far the order of keys is that of the disk, by a few reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lmdbio.locate.glance import Glance

__all__ = ["DiskOrder", "look_at_order"]

#: Places of the file that are looked at, and records from each on.
PLACES, RUN = 32, 16
#: A record lies right behind another one where pages of the tree at most lie between them.
NEAR_BYTES = 8192


class DiskOrder(NamedTuple):
    """How far the order of keys is that of the disk.

    Attributes:
        ascending: share of neighbours, of the places looked at, that lie in the order of their
            keys; by chance half of them do. None: there were too few.
        adjacent: share of records that lie right behind the one before them. None: there were
            none.
    """

    ascending: float | None
    adjacent: float | None


def look_at_order(glance: Glance, keys: Iterable[bytes] | None = None) -> DiskOrder:
    """Look over the file, and from one record to the next.

    Args:
        glance: the database that is looked at.
        keys: keys of records spread over it, in order; None: it finds some.

    Raises:
        OSError, Error: it cannot be read, or has moved on.
    """
    firsts: list[int] = []
    near = steps = 0
    if keys is None:
        fractions = ((number + 0.5) / PLACES for number in range(PLACES))
        keys = (seen.key for seen in glance.spread(fractions))
    spread = list(keys)
    for key in spread[:: max(1, len(spread) // PLACES)]:
        run = glance.extents(key, RUN)
        offsets = run["offset"].astype(np.int64)
        if not len(offsets):
            continue
        firsts.append(int(offsets[0]))
        gaps = np.diff(offsets) - run["length"][:-1].astype(np.int64)
        # Within a leaf, nodes lie from its end to its beginning.
        near += int((np.abs(gaps) <= NEAR_BYTES).sum())
        steps += len(gaps)
    adjacent = near / steps if steps else None
    if len(firsts) < 3:
        return DiskOrder(None, adjacent)
    ascending = np.diff(np.array(firsts) // NEAR_BYTES) >= 0
    return DiskOrder(float(ascending.mean()), adjacent)
