"""What the store did, as itself counts it: of a modelled store, and of loop devices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Snapshot", "Traffic", "source"]

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one mount, up to a moment.

    Attributes:
        requests: pieces of reads, of at most a stripe each; of a device, what it was asked.
        bytes: delivered.
        seeks: pieces out of order; None where the store does not tell.
        busy_s: of its link, or its device.
    """

    requests: int
    bytes: int
    seeks: int | None
    busy_s: float

    def __sub__(self, other: Traffic) -> Traffic:
        seeks = None if self.seeks is None or other.seeks is None else self.seeks - other.seeks
        return Traffic(
            self.requests - other.requests,
            self.bytes - other.bytes,
            seeks,
            self.busy_s - other.busy_s,
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything up to a moment.

    Attributes:
        mounts: a mount each.
        answers, late_s: of a modelled store: answers, and by how much these came too late, all
            together; that is this machine's doing.
    """

    mounts: tuple[Traffic, ...]
    answers: int = 0
    late_s: float = 0.0

    def __sub__(self, other: Snapshot) -> Snapshot:
        return Snapshot(
            tuple(one - old for one, old in zip(self.mounts, other.mounts, strict=True)),
            self.answers - other.answers,
            self.late_s - other.late_s,
        )

    @property
    def total(self) -> Traffic:
        seeks = [one.seeks for one in self.mounts if one.seeks is not None]
        return Traffic(
            sum(one.requests for one in self.mounts),
            sum(one.bytes for one in self.mounts),
            sum(seeks) if len(seeks) == len(self.mounts) else None,
            sum(one.busy_s for one in self.mounts),
        )


def of_model(counts: Mapping[str, Any]) -> Traffic:
    """A mount of ``benchmarks/pfs``. A request is a piece on one server; pieces of one read go to
    several, and each of them may be out of order there."""
    return Traffic(
        counts["link"]["requests"],
        counts["link"]["bytes"],
        sum(server["seeks"] for server in counts["servers"]),
        counts["link"]["busy_s"],
    )


def of_device(text: str) -> Traffic:
    """A block device's ``stat``. Source: Documentation/block/stat.rst."""
    fields = [int(word) for word in text.split()]
    return Traffic(fields[0], fields[2] * SECTOR_BYTES, None, fields[9] / 1e3)


def model(mount: str, attribute: str) -> Snapshot:
    counts = json.loads(os.getxattr(mount, attribute))
    mounts = tuple(of_model(one) for one in counts["mounts"])
    return Snapshot(mounts, counts["answers"], counts["late_s"])


def devices(names: Sequence[str]) -> Snapshot:
    texts = [Path(f"/sys/block/{name}/stat").read_text(encoding="ascii") for name in names]
    return Snapshot(tuple(of_device(text) for text in texts))


def source(told: Mapping[str, Any]) -> Callable[[], Snapshot]:
    """What takes a snapshot.

    Args:
        told: {"kind": "model", "mount": ..., "attribute": ...}, or {"kind": "loop", "devices":
            ["loop0", ...]}.
    """
    if told["kind"] == "model":
        return partial(model, told["mount"], told["attribute"])
    return partial(devices, told["devices"])
