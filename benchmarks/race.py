"""Contestants by turns, and the verdict on the ratio of their rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks import report

__all__ = ["by_turns", "judged"]


def by_turns(rounds: int, *contestants: Callable[[int], float]) -> list[list[float]]:
    """Return the rates of each contestant: each round calls all with its number, and the order
    changes from round to round, so that what drifts meets all alike."""
    rates: list[list[float]] = [[] for _ in contestants]
    for number in range(rounds):
        turns = list(zip(rates, contestants, strict=True))
        for found, contestant in turns if number % 2 else reversed(turns):
            found.append(contestant(number))
    return rates


def judged(words: str, where: str, rates: Sequence[list[float]], *, least: float | None, unit: str,
           scale: float = 1.0) -> report.Verdict:  # fmt: skip
    """Judge the median ratio of the first contestant's rate to the second's of the same round.

    Without ``least`` it is reported alone."""
    ratios = [ours / theirs for ours, theirs in zip(*rates, strict=True)]
    return report.judged(
        words,
        where,
        median(ratios),
        least=least,
        ends=(min(ratios), max(ratios)),
        measured=f"{median(rates[0]) / scale:,.0f} {unit}",
        against=f"{median(rates[1]) / scale:,.1f} {unit}",
    )
