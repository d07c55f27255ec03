"""data_rules: findings about a data set itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lmdbio.doctor.facts import DataFacts, Facts, TunedFacts
from lmdbio.doctor.finding import Finding, Severity, count_text, size_text

__all__ = [
    "judge_file",
    "judge_records",
    "judge_order",
    "judge_provenance",
    "order_text",
    "out_of_order_text",
    "is_half_empty",
    "SMALL_BYTES",
    "WALK_BYTES_FELT",
    "OUT_OF_ORDER",
]

#: Trees above this take a walk long enough to be felt, at each open without a provenance file.
WALK_BYTES_FELT = 16 << 20
#: Values below this are read at random in requests whose time is not that of their bytes.
SMALL_BYTES = 16 << 10
#: Neighbours in the sample by chance lie in order half of the time.
IN_ORDER, OUT_OF_ORDER = 0.95, 0.75
#: Of a file, so much may be free before a copy is worth its time.
FREE_SHARE = 0.3


def judge_file(facts: Facts) -> Iterator[Finding]:
    """Judge whether it is whole, and how much of it is free."""
    data = facts.data
    if data.damage:
        yield Finding("file", "problem", f"It is damaged: {data.damage}.")
    elif data.file_bytes < data.used_bytes:
        lacking = size_text(data.used_bytes - data.file_bytes)
        yield Finding(
            "file",
            "problem",
            f"It ends {lacking} before the last page that it counts: a copy that was cut, unless "
            "those pages are free ones.",
        )
    else:
        yield Finding(
            "file",
            "good",
            f"{count_text(data.entries, 'record')}, {size_text(data.used_bytes)}, whole.",
        )
    if data.holds_named_only:
        names = ", ".join(data.named[:4]) + ", ..." * (len(data.named) > 4)
        yield Finding("file", "note", f"It holds only named databases: {names} (--db NAME).")
    if is_half_empty(data) and data.free_bytes:
        share = data.free_bytes / data.used_bytes
        yield Finding(
            "free pages",
            "note",
            f"{size_text(data.free_bytes)} within the file, {share:.0%} of it, are free: lmdbio "
            "compact makes a copy without them.",
        )


def judge_records(facts: Facts) -> Iterator[Finding]:
    """Judge the sizes of values."""
    sample = facts.sample
    if not sample.records:
        return
    yield Finding("records", "good", f"{sample.kinds}; keys: {sample.keys}.")
    sizes = (
        f"a median of {size_text(sample.median_bytes)}, up to {size_text(sample.largest_bytes)}"
    )
    if sample.median_bytes == sample.largest_bytes:
        sizes = f"all of {size_text(sample.median_bytes)}"
    if sample.median_bytes < SMALL_BYTES:
        yield Finding(
            "sizes",
            "note",
            f"Values are small, {sizes}: at random, a request for each costs more than its bytes; "
            "batches, and orders that keep neighbours together, cost less.",
        )
    else:
        yield Finding("sizes", "good", f"Values are large enough for a disk's bandwidth: {sizes}.")


def order_text(ascending: float, adjacent: float | None) -> str:
    """Say how records lie on disk, and how many right behind the one before (shares)."""
    near = "" if adjacent is None else f", {adjacent:.0%} of records right behind the one before"
    if ascending >= IN_ORDER:
        return f"in the order of their keys{near}"
    if ascending >= OUT_OF_ORDER:
        return f"roughly in the order of their keys{near}"
    return f"in another order than that of their keys{near}"


def out_of_order_text(data: DataFacts, room_bytes: int, tuned: TunedFacts) -> str:
    """Say what to read in key order costs where records lie in another order.

    Args:
        room_bytes: the bytes of a file for which the page cache has room.
    """
    if data.used_bytes <= room_bytes:
        time = ""
        if tuned.stream_rate:
            time = f", {data.used_bytes / tuned.stream_rate:,.1f} s at the rate measured"
        return (
            f"to read in key order, all {size_text(data.used_bytes)} are brought to memory first"
            f"{time}"
        )
    time = ""
    if tuned.random_rate and tuned.random_bytes:
        seconds = data.entries * tuned.random_bytes / tuned.random_rate
        time = f", {seconds:,.0f} s at the rate measured"
    return (
        f"memory has no room for all {size_text(data.used_bytes)}, so to read in key order takes "
        f"a request for each of {count_text(data.entries, 'record')}{time}"
    )


def judge_order(facts: Facts) -> Iterator[Finding]:
    """Judge how far the order of keys is that of the disk, and what that costs."""
    ascending, adjacent = facts.sample.ascending, facts.sample.adjacent
    if ascending is None or facts.storage.in_memory:
        return
    text = f"On disk, records lie {order_text(ascending, adjacent)}"
    if ascending >= OUT_OF_ORDER:
        severity: Severity = "good" if ascending >= IN_ORDER else "note"
        yield Finding("order", severity, f"{text}.")
        return
    room = facts.memory.cached_bytes_max
    yield Finding(
        "order",
        "note" if facts.data.used_bytes <= room else "problem",
        f"{text}: {out_of_order_text(facts.data, room, facts.tuned)}; lmdbio compact makes a copy "
        "in order, and order='insertion' reads it as it was put, where that is known.",
    )


def judge_provenance(facts: Facts) -> Iterator[Finding]:
    """Judge the provenance file."""
    status, reason = facts.provenance.status, facts.provenance.reason
    walk = f"each open walks {size_text(facts.data.tree_bytes)} of the tree"
    if status == "good":
        yield Finding("provenance", "good", "Its provenance file holds: opening reads no tree.")
    elif status == "absent":
        is_felt = facts.data.tree_bytes >= WALK_BYTES_FELT
        yield Finding(
            "provenance",
            "note" if is_felt or not facts.storage.disk else "good",
            f"There is no provenance file: {walk}" + ("" if is_felt else ", which is soon done")
            + ".",
        )  # fmt: skip
    elif status == "unproven":
        yield Finding(
            "provenance",
            "note",
            f"Its provenance file is {reason}: the next open hashes "
            f"{size_text(facts.provenance.deep_bytes)}.",
        )
    else:
        yield Finding(
            "provenance", "problem", f"Its provenance file is {status}: {reason}; {walk}."
        )


def is_half_empty(data: DataFacts) -> bool:
    """Say whether so much of a file is free that a copy is worth its time."""
    return data.used_bytes > 0 and (data.free_bytes or 0) > FREE_SHARE * data.used_bytes
