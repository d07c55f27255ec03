"""judge: findings from facts, the limit that follows from them, and the next command. Pure.

facts  ->  findings (good, note, problem), a sentence each, by ``rules``
       ->  the limit: the first of what can limit that applies
       ->  the command that changes most
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from lmdbio.doctor.facts import Facts
from lmdbio.doctor.rules import (
    OUT_OF_ORDER,
    RULES,
    SMALL_BYTES,
    WALK_BYTES_FELT,
    Severity,
    is_cached,
    is_half_empty,
)
from lmdbio.system.amounts import size_text

__all__ = ["Diagnosis", "Finding", "diagnose"]

#: Few records are soon read, in whatever order they lie.
RECORDS_FEW = 1000


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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that follows from facts.

    Attributes:
        findings: all findings in the order in which they are told, problems first.
        limit: a sentence: what limits this data set here.
        command: command to be typed next.
        reason: reason for that command.
    """

    findings: tuple[Finding, ...]
    limit: str
    command: str
    reason: str


def diagnose(facts: Facts) -> Diagnosis:
    """Return what follows from facts."""
    found = [Finding(topic, *each) for topic, rule in RULES.items() for each in rule(facts)]
    findings = tuple(sorted(found, key=lambda finding: finding.severity != "problem"))
    command, reason = _next_command(facts)
    return Diagnosis(findings, _limit(facts), command, reason)


def _limit(facts: Facts) -> str:
    """Return the first of what can limit that applies."""
    data, sample, under = facts.data, facts.sample, facts.storage
    if data.damage or data.file_bytes < data.used_bytes:
        return "The file itself: it may lack records."
    if under.in_memory or is_cached(facts):
        return (
            "Memory and processors: the file is in memory, so that the storage has no part, and "
            "decoding is what takes time."
        )
    is_small = 0 < sample.median_bytes < SMALL_BYTES
    measured = ""
    if facts.tuned.random_rate and facts.tuned.random_bytes:
        a_second, of = facts.tuned.random_rate / facts.tuned.random_bytes, facts.tuned.random_bytes
        measured = f" ({a_second:,.0f} requests of {size_text(of)} a second were measured)"
    if not under.disk:
        return (
            f"The way to the storage: {under.file_system or 'it'} answers each request late, "
            f"whatever its size; the more are in flight, the better{measured}."
        )
    if is_small:
        return (
            f"Requests: at random, each value of {size_text(sample.median_bytes)} that is not in "
            f"memory costs the disk one{measured}."
        )
    rate = facts.tuned.stream_rate
    measured = f", {size_text(rate)}/s measured in order" if rate else ""
    return f"The disk's bandwidth{measured}: values are large enough for it."


def _next_command(facts: Facts) -> tuple[str, str]:
    path = shlex.quote(facts.path)
    data, status = facts.data, facts.provenance.status
    if data.damage or data.file_bytes < data.used_bytes:
        return f"lmdbio verify {path}", "it reads all, and says whether records are missing"
    if data.holds_named_only and not facts.name:
        name = shlex.quote(data.named[0])
        return f"lmdbio doctor {path} --db {name}", "the records are in the named databases"
    if status in ("stale", "damaged", "unproven", "unreadable"):
        return f"lmdbio convert {path}", "its provenance file does not hold"
    if status == "absent" and (data.tree_bytes >= WALK_BYTES_FELT or not facts.storage.disk):
        return f"lmdbio convert {path}", "then opening reads no tree"
    if _is_out_of_order(facts):
        copy = shlex.quote(f"{facts.path.rstrip('/')}.tidy")
        return (
            f"lmdbio compact {path} {copy}",
            "a copy in key order, without free pages, and converted",
        )
    if facts.storage.in_memory or is_cached(facts):
        return f"lmdbio bench {path}", "it measures what readers make of a file in memory"
    if not facts.tuned.when:
        return f"lmdbio tune {path}", "it measures how this storage likes to be read"
    if status == "absent":
        return f"lmdbio convert {path}", "then opening reads no tree"
    return f"lmdbio bench {path}", "all is set up: it measures what there is to gain"


def _is_out_of_order(facts: Facts) -> bool:
    """Say whether a copy would gain: few records lie where the one before them ends."""
    data, sample = facts.data, facts.sample
    is_spread = sample.ascending is not None and sample.ascending < OUT_OF_ORDER
    is_felt = is_spread and data.entries > RECORDS_FEW and not is_cached(facts)
    return not facts.storage.in_memory and (is_felt or is_half_empty(data))
