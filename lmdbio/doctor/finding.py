"""finding: a finding, and the words that all of them are told in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Finding", "Severity", "count_text", "size_text"]

Severity: TypeAlias = Literal["good", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        topic: subject, such as "storage".
        severity: "good", "note" or "problem".
        text: a sentence.
    """

    topic: str
    severity: Severity
    text: str


def size_text(count: float) -> str:
    """Return bytes in a unit that reads well."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def count_text(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
