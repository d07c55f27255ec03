"""Choose how many roots of a job may read at a time, by what jobs measured. Pure.

Without a measurement ``reader.tokens`` takes the usual number.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmdbio.machine.calibration import Staggering, TokenSample
from lmdbio.machine.choice import ENOUGH, Reason, rate_text

__all__ = ["choose_tokens"]

#: A job of up to so many times as many roots, or as few, was measured: that counts for this one.
ROOTS_FACTOR = 1.5


def choose_tokens(
    measured: Sequence[Staggering],
    *,
    nodes: int,
    roots: int,
    assignment: str,
    may_be_none: bool,
) -> tuple[int, Reason] | None:
    """Choose how many roots may read at a time: the fewest that are fast enough.

    Args:
        measured: measurements of jobs, on the file system that is read.
        nodes, roots: number of this job's nodes, and of its roots.
        assignment: assignment of its Reader.
        may_be_none: whether turns were not asked for by name: there are none where these gain
            nothing. Else there are none only where they cost something.

    Returns:
        The tokens, 0 for no turns, and why; None where no job of about as many roots, and with
        this assignment, was measured.
    """
    near = [
        one
        for one in measured
        if one.assignment == assignment
        and max(one.roots, roots) <= ROOTS_FACTOR * min(one.roots, roots)
    ]
    if not near:
        return None
    # The nearest, and of equals the newest.
    job = min(
        near, key=lambda one: (abs(one.roots - roots), abs(one.nodes - nodes), -one.measured)
    )
    best = max(job.samples, key=lambda sample: sample.rate)
    enough = [sample for sample in job.samples if sample.rate >= ENOUGH * best.rate]
    # Without turns as many read as there are roots; but it saves the waiting.
    most = -1 if may_be_none else job.roots
    taken = min(enough, key=lambda sample: sample.tokens or most)
    told = [f"{rate_text(taken)} {_turns(taken, job)}"]
    if best is not taken:
        told.append(f"{rate_text(best)} at best, {_turns(best, job)}")
    none = next((sample for sample in job.samples if not sample.tokens), taken)
    if none not in (taken, best):
        told.append(f"{rate_text(none)} {_turns(none, job)}")
    return taken.tokens, Reason("tune", f"measured {'; '.join(told)}")


def _turns(sample: TokenSample, job: Staggering) -> str:
    if not sample.tokens:
        return "without turns"
    return f"with {sample.tokens} of {job.roots} roots at a time"
