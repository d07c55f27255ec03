"""The choices for each use of a file, and their reasons, for ``info`` and ``tune``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lmdbio.cli.file_facts import FileFacts
from lmdbio.cli.output import Lines, plural, print_columns, size
from lmdbio.machine.budget import available_bytes, budget_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, AutoCache, auto_cache, order_hint
from lmdbio.machine.calibration import Staggering, Stored
from lmdbio.machine.choice import ACCESSES, Choice, Reason, choose
from lmdbio.machine.measured import choose_tokens
from lmdbio.machine.overrides import overrides_from_env
from lmdbio.machine.storage import Storage
from lmdbio.planning.mode import Mode
from lmdbio.system.frozen import dataclass

#: The uses of a file, and the choices that concern each.
USERS = {"stream": "Reader", "batch": "Records", "single": "lmdbio.open"}
LABELS = {
    "engine": "engine",
    "depth": "depth",
    "request_bytes_max": "request",
    "gap_bytes_max": "gap",
}
CHOSEN = {
    "stream": tuple(LABELS),
    "batch": tuple(LABELS),
    "single": ("engine", "depth"),
}


def choices(under: Storage, tuned: Stored) -> dict[str, Choice]:
    """How the file would be read, for each use."""
    environment, measured = overrides_from_env(), tuned.calibration
    return {use: choose(use, under, measured, environment=environment) for use in ACCESSES}


@dataclass(frozen=True, slots=True)
class TurnChoice:
    """Tokens of Readers of a job like one that was measured.

    Attributes:
        nodes, roots, assignment: shape of the job: nodes, roots, and the assignment of records.
        stag, auto: tokens in these modes; 0: no turns.
        reason: reason for these numbers.
    """

    nodes: int
    roots: int
    assignment: str
    stag: int
    auto: int
    reason: Reason

    def __str__(self) -> str:
        stag, auto = (f"{n} token{'s' * (n > 1)}" if n else "none" for n in (self.stag, self.auto))
        return f"{self.roots} roots, {self.assignment}: stag {stag}, auto {auto}"


def turn_choices(measured: Sequence[Staggering]) -> list[TurnChoice]:
    """Return what follows from each measured job."""
    found = []
    for job in measured:
        stag, auto = (
            choose_tokens(
                [job],
                nodes=job.nodes,
                roots=job.roots,
                assignment=job.assignment,
                may_be_none=may_be_none,
            )
            for may_be_none in (False, True)
        )
        if stag is not None and auto is not None:
            found.append(
                TurnChoice(job.nodes, job.roots, job.assignment, stag[0], auto[0], stag[1])
            )
    return found


def storage_facts(under: Storage) -> Lines:
    """Return the known facts, for people."""
    if under.remote:
        return [("  storage", f"{under.file_system}, elsewhere: {under.source}")]
    kind = under.file_system or "unknown"
    parts = [f"{kind} on {under.source}" if under.source else kind]
    parts.append("a disk of this machine" if under.disk else "no disk of this machine")
    if under.rotational is not None:
        parts.append("rotational" if under.rotational else "not rotational")
    if under.block_bytes:
        parts.append(f"blocks of {size(under.block_bytes)}")
    facts = [("  storage", ", ".join(parts))]
    if under.stripes is not None:
        count, each = under.stripes.count, under.stripes.bytes
        facts.append(("  stripes", f"{size(each)} on each of {plural(count, 'server')}"))
    ahead = under.readahead_bytes
    facts.append(("  readahead", "unknown" if ahead is None else f"{size(ahead)}, by the kernel"))
    if under.direct is None:
        direct = "unknown"
    elif under.direct:
        direct = f"yes, in multiples of {under.direct_alignment} bytes"
    else:
        direct = "no"
    facts.append(("  O_DIRECT", direct))
    share = under.cached_share
    cached = "unknown" if share is None else f"{size(under.cached_bytes or 0)}, {share:.0%}"
    facts.append(("  page cache", cached))
    return facts


def tuned_text(tuned: Stored) -> str:
    if tuned.calibration is None:
        return tuned.note or "no (lmdbio tune measures)"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(tuned.calibration.measured))
    return f"{when}, {tuned.file}"


def chosen(choice: Choice, name: str) -> str:
    """A choice, for people."""
    value = getattr(choice, name)
    if name == "engine":
        more = (", past cache" * choice.may_bypass_cache, ", mapped" * choice.maps_cached)
        return str(value) + "".join(more)
    return str(value) if name == "depth" else size(value)


def print_choices(found: dict[str, Choice]) -> None:
    """Every choice, where it comes from, and why."""
    rows = [("read by", "choice", "", "from", "because")]
    for use, choice in found.items():
        for name in CHOSEN[use]:
            reason = choice.reasons[name]
            row = (LABELS[name], chosen(choice, name), reason.origin, reason.text)
            rows.append((USERS[use] if name == "engine" else "", *row))
    print_columns(rows)


# --- "auto" of a Reader -------------------------------------------------------------------


def advice(facts: FileFacts, under: Storage, choice: Choice) -> dict[str, Any]:
    """Return what is chosen for a Reader beside engine and requests, and a hint, as JSON has it.

    Args:
        facts: facts of the file.
        under: Storage of the file.
        choice: choice of the reads of a Reader.
    """
    database = facts.meta.main_db
    pages = database.leaf_pages + database.overflow_pages
    return {
        "auto_mode": _auto_mode(has_sidecar=facts.sidecar["status"] == "good"),
        "auto_cache": _auto_cache(facts.file_bytes, is_far=not (under.disk or under.in_memory)),
        "hint": order_hint(
            left_records=database.entries,
            left_bytes=pages * facts.meta.layout.page_size,
            request_bytes=choice.request_bytes_max,
            is_cached=False,
        ),
    }


def advice_facts(found: dict[str, Any]) -> Lines:
    """Return the same for people."""
    mode, cache = found["auto_mode"], found["auto_cache"]
    where = "nothing" if not cache.nodes else "on several nodes"
    facts = [
        ('  mode="auto"', f"{mode['mode']}: {mode['reason'].text}"),
        ('  cache="auto"', f"{where}: {cache.reason.text}"),
    ]
    if found["hint"]:
        facts.append(('  shuffle="global"', found["hint"]))
    return facts


def _auto_mode(*, has_sidecar: bool) -> dict[str, Any]:
    """Return the mode that ``mode="auto"`` picks, and why."""
    mode = str(Mode.resolve("auto", provenance=has_sidecar))
    if has_sidecar:
        text = "its provenance file says where records lie"
    else:
        mode = f"{Mode.named('dio')}, in blocks"
        text = "no provenance file says where records lie, so the tree is read when opened"
    return {"mode": mode, "reason": Reason("facts", text)}


def _auto_cache(file_bytes: int, *, is_far: bool) -> AutoCache:
    """Return what it comes to on nodes like this machine."""
    folder, free = os.environ.get(FOLDER_VARIABLE), 0
    if folder:
        with suppress(OSError):  # a Reader names it
            free = shutil.disk_usage(folder).free // 2
    return auto_cache(
        file_bytes,
        is_far=is_far,
        available_bytes=available_bytes(),
        beside_bytes=budget_bytes(None),
        disk_bytes=free,
    )
