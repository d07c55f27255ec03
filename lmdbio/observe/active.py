"""The trace and the ledger that this process takes, if any: each opening asks here.

``tracing`` and ``ledger`` are loaded by those who take one, or by ``LMDBIO_TRACE``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Trace(Protocol):
        """A trace, as stages know it (``tracing.Trace``)."""

        @property
        def path(self) -> str:
            """The file that it is written to."""

        def add(self, span: Any) -> None:
            """Note what was done when."""

        def begin_writing(self) -> None:
            """Write down what only C will note, too."""

        def name_rank(self, rank: int) -> None:
            """Note which rank of a job this process is."""

        def close(self) -> None:
            """End it."""

    class Ledger(Protocol):
        """A ledger, as openings know it (``ledger.Ledger``)."""

        def follow(self, owner: Any, facts: Any, counter: Any, engines: Any) -> None:
            """Count what an object reads."""

        def ended(self, number: int) -> None:
            """Sum up what an object has read, by its identity."""


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
    facts: Callable[[Any], Any],
    counter: Any = None,
    engines: Callable[[], Any] | None = None,
) -> None:
    """Count what an object reads, where there is a ledger.

    Args:
        owner: object that has a file open. It is not held.
        facts: function from the owner to its ``ledger.Facts``; called where there is a ledger.
        counter: object whose ``total`` adds what it counted to ``Stats`` of engines; None: nothing
            of it is counted.
        engines: function that returns what its engines counted, also after they were closed
            (``Stats``); goes with ``counter``. It does not hold ``owner``.
    """
    if ledger is not None:
        ledger.follow(owner, facts(owner), counter, engines)


def ended(owner: Any) -> None:
    """Sum up what an object has read, which is closed now."""
    if ledger is not None:
        ledger.ended(id(owner))
