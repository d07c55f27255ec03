"""The trace and the ledger that this process takes, if any: each opening asks here.

``tracing`` and ``ledger`` are loaded by those who take one, or by ``LMDBIO_TRACE``.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from lmdbio.observe.ledger import Facts, Ledger
    from lmdbio.observe.stats import Stats
    from lmdbio.observe.tracing import Trace

    class Counter(Protocol):
        """The counts of an object, besides those of its engines."""

        def total(self, engines: Stats) -> Stats:
            """Return all counts of this process, its engines having counted these."""


__all__ = ["TRACE", "ended", "follow", "ledger", "touch", "trace"]

#: Environment variable that names a file and turns tracing on.
TRACE = "LMDBIO_TRACE"

trace: Trace | None = None
ledger: Ledger | None = None


def touch() -> None:
    """Something begins that only C will note: it must be written down all the same."""
    taken = trace
    if taken is not None:
        taken.begin_writing()


def follow(
    owner: Any,
    facts: Callable[[Any], Facts],
    counter: Counter | None = None,
    engines: Callable[[], Stats] | None = None,
) -> None:
    """Count what an object reads, where there is a ledger.

    Args:
        owner: has a file open. It is not held.
        facts: returns those of ``owner``; called only where there is a ledger.
        counter: of its stages; None: nothing of it is counted.
        engines: what its engines counted, also after they were closed; goes with ``counter``. It
            does not hold ``owner``.
    """
    if ledger is not None:
        ledger.follow(owner, facts(owner), counter, engines)


def ended(owner: Any) -> None:
    """Sum up what an object has read, which is closed now."""
    if ledger is not None:
        ledger.ended(id(owner))


if os.environ.get(TRACE):
    from lmdbio.observe import tracing  # noqa: F401  (begins one)
