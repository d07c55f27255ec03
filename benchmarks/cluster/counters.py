"""The modelled store's own counters of what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the store did from one snapshot to the next: the bytes that each mount got and
    the time of its link, requests (pieces of reads, of at most a stripe each) and how many of them
    were out of order on their server, and how late an answer came, which is this machine's doing.
    """
    links = [
        {name: new["link"][name] - old["link"][name] for name in ("bytes", "busy_s")}
        for old, new in zip(before["mounts"], after["mounts"], strict=True)
    ]
    answers = after["answers"] - before["answers"]
    return {
        "delivered": [link["bytes"] for link in links],
        "requests": served(after, "requests") - served(before, "requests"),
        "seeks": served(after, "seeks") - served(before, "seeks"),
        "link_busy_s": [link["busy_s"] for link in links],
        "late_ms": 1e3 * (after["late_s"] - before["late_s"]) / max(1, answers),
    }


def served(counts: Mapping[str, Any], name: str) -> int:
    """Return a count of all servers."""
    return sum(server[name] for mount in counts["mounts"] for server in mount["servers"])
