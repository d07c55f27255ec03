"""The values behind "auto" of a Reader, and the requests that an order takes, for ``info``."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Any

from lmdbio._core import Meta
from lmdbio.machine.budget import available_bytes, budget_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, AutoCache, auto_cache, order_hint
from lmdbio.machine.choice import Choice, Reason
from lmdbio.machine.storage import Storage
from lmdbio.planning.mode import Mode
from lmdbio.system.frozen import dataclass

__all__ = ["AutoMode", "advice", "advice_facts"]


@dataclass(frozen=True, slots=True)
class AutoMode:
    """The mode that ``mode="auto"`` picks, and why."""

    mode: str
    reason: Reason


def advice(
    meta: Meta, file_bytes: int, under: Storage, *, has_sidecar: bool, choice: Choice
) -> dict[str, Any]:
    """Return what is chosen for a Reader beside engine and requests, and a hint, as JSON has it.

    Args:
        meta: newest meta page of the file.
        file_bytes: size of the file, bytes.
        under: Storage of the file.
        has_sidecar: a provenance file describes it.
        choice: choice of the reads of a Reader.
    """
    database = meta.main_db
    is_far = not (under.disk or under.in_memory)
    pages = database.leaf_pages + database.overflow_pages
    return {
        "auto_mode": _auto_mode(has_sidecar=has_sidecar),
        "auto_cache": _auto_cache(file_bytes, is_far=is_far),
        "hint": order_hint(
            left_records=database.entries,
            left_bytes=pages * meta.layout.page_size,
            request_bytes=choice.request_bytes_max,
            is_cached=False,
        ),
    }


def advice_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the same for people."""
    mode, cache = found["auto_mode"], found["auto_cache"]
    kept = "nothing" if not cache.nodes else "on several nodes"
    facts = [
        ('  mode="auto"', f"{mode.mode}: {mode.reason.text}"),
        ('  cache="auto"', f"{kept}: {cache.reason.text}"),
    ]
    if found["hint"]:
        facts.append(('  shuffle="global"', found["hint"]))
    return facts


def _auto_mode(*, has_sidecar: bool) -> AutoMode:
    mode = str(Mode.resolve("auto", provenance=has_sidecar))
    if has_sidecar:
        text = "its provenance file says where records lie"
    else:
        mode = f"{Mode.named('dio')}, in blocks"
        text = "no provenance file says where records lie, so the tree is read when opened"
    return AutoMode(mode, Reason("facts", text))


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
