"""Decide whether a provenance file still describes the data.

The fast check compares the meta page and cheap hints. Equal meta pages do not prove equal data
(two databases with the same sizes can have the same), so where the hints differ the deep check
hashes every branch and leaf page; its result is remembered per user and file. The
digest, and the steps towards a progress callback, serve every walk over whole trees.

Invariants:
  - what does not provably describe the data is refused, with the field that differs;
  - fast reads nothing of the data but its status and the meta page it is given.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from lmdbio import _core
from lmdbio._core import Database, Engine, Meta
from lmdbio.errors import Error, StaleError, cut_error
from lmdbio.provenance import (
    DIGEST_BYTES,
    Name,
    Provenance,
    name_text,
    pack_database,
    values,
)
from lmdbio.remote import open_data
from lmdbio.system.amounts import refuse_unknown
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.frozen import dataclass
from lmdbio.system.log import log

__all__ = [
    "Check",
    "DEPTH",
    "DeepCheck",
    "Progress",
    "Steps",
    "TreeDigest",
    "check",
    "check_facts",
    "compare_database",
    "compare_digest",
    "is_described",
    "deep_check",
    "join_digests",
    "tree_pages",
]

Check: TypeAlias = Literal["fast", "deep", "always"]
Progress: TypeAlias = Callable[[int, int, str], None]

DEPTH = 16  # requests in flight where whole trees are walked


# --- checking ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeepCheck:
    """Whether a deep check is due, why, and what it costs.

    Attributes:
        due: pages would be read and hashed now.
        reasons: the hints that differ, or the check that was asked for.
        remembered: whether this user's earlier deep check of this very file still counts.
        bytes: number of bytes that a deep check reads.
    """

    due: bool
    reasons: tuple[str, ...]
    remembered: bool
    bytes: int

    @property
    def how(self) -> str:
        """The way in which a check passes: "fast", "deep" or "remembered" (from a deep one)."""
        return "remembered" if self.remembered else "deep" if self.due else "fast"


def deep_check(engine: Engine, provenance: Provenance, check: Check = "fast") -> DeepCheck:
    """Return whether ``check`` would hash pages now. Reads nothing of the data but its status."""
    refuse_unknown("check", check, get_args(Check))
    now = engine.identity()
    if check != "fast":
        reasons: tuple[str, ...] = (f"check={check!r}",)
    else:
        reasons = provenance.facts.hints.differences(now)
    known = bool(reasons) and check != "always" and _remembered(provenance.facts.digest, now)
    cost = sum(tree_pages(s.database) for s in provenance.sections) * provenance.facts.page_size
    return DeepCheck(bool(reasons) and not known, reasons, known, cost)


def check(engine: Engine, meta: Meta, provenance: Provenance, check: Check = "fast") -> DeepCheck:
    """Make sure that ``provenance`` describes the state ``meta`` of the file in ``engine``.

    The meta page's facts must be equal. When only hints differ (another mount, a copy), or
    ``check`` asks for it, every branch and leaf page of the databases described is hashed.

    Args:
        check: "fast"; "deep": hash unless remembered; "always": hash each time.

    Returns:
        The deep check, as it was found to be due or not.

    Raises:
        StaleError: it does not, naming what differs.
        CorruptedError, ShortReadError, OSError: the data could not be walked.
    """
    check_facts(engine, meta, provenance)
    before = engine.identity()
    due = deep_check(engine, provenance, check)
    if due.due:
        _check_digest(engine, meta, provenance)
        after = engine.identity()
        if before == after:
            _remember(provenance.facts.digest, after)
    return due


def _stale(provenance: Provenance, data: str, what: str, now: object, then: object) -> StaleError:
    return StaleError(
        f"{provenance.path}: does not describe this state of {data}: "
        f"{what}: {now} now, {then} when converted"
    )


def check_facts(engine: Engine, meta: Meta, provenance: Provenance) -> None:
    """Compare what the meta page says, and the file's size.

    Raises:
        StaleError: naming the first field that differs.
    """
    facts = provenance.facts
    for what, now, then in (
        ("data format", meta.layout.version, facts.version),
        ("page size", meta.layout.page_size, facts.page_size),
        ("environment flags", meta.layout.env_flags, facts.env_flags),
        ("txnid", meta.txnid, facts.txnid),
        ("last page", meta.last_pgno, facts.last_pgno),
    ):
        if now != then:
            raise _stale(provenance, engine.path, what, now, then)
    compare_database(provenance, engine.path, "free database", meta.free_db, facts.free_db)
    compare_database(provenance, engine.path, "main database", meta.main_db, facts.main_db)
    size = engine.size()
    if size < facts.extents_end:
        raise StaleError(
            f"{cut_error(engine.path, size, facts.extents_end)} ({provenance.path} says where)"
        )


def is_described(data: Path | str, sidecar: Path | str) -> bool:
    """Return whether there is a provenance file, whole and of this very state."""
    try:
        with open_data(data) as engine, Provenance.open(sidecar) as found:
            check(engine, _core.read_meta(engine), found)
            found.check_blocks()
    except (Error, OSError):  # the next reader will say what is wrong with the data
        return False
    return True


def compare_database(
    provenance: Provenance, data: str, label: str, now: Database, then: Database
) -> None:
    """Compare a database's record as it is in the file ``data`` with the one converted.

    Raises:
        StaleError: naming the first field that differs.
    """
    for name in Database.__dataclass_fields__:
        current, recorded = getattr(now, name), getattr(then, name)
        if current != recorded:
            raise _stale(provenance, data, f"{label} {name}", current, recorded)


def compare_digest(provenance: Provenance, data: str, trees: Sequence[bytes]) -> None:
    """Compare the digests of all trees that ``provenance`` describes, in its order.

    Raises:
        StaleError: the pages differ.
    """
    now, then = join_digests(trees), provenance.facts.digest
    if now != then:
        what = "digest of the branch and leaf pages"
        raise _stale(provenance, data, what, now.hex(), then.hex())


def _check_digest(engine: Engine, meta: Meta, provenance: Provenance) -> None:
    trees = []
    for section in provenance.sections:
        db = meta.main_db
        if section.name is not None:
            try:
                db = _core.find_database(engine, meta, section.name)
            except LookupError as e:
                raise StaleError(f"{provenance.path}: describes what is gone: {e}") from e
        label = name_text(section.name)
        compare_database(provenance, engine.path, label, db, section.database)
        digest = TreeDigest()
        for part in values.walk(engine, meta, db):
            if part.chunk is not None:
                digest.add(part.chunk)
        trees.append(digest.finish(section.name, db))
    compare_digest(provenance, engine.path, trees)


# --- what is remembered ------------------------------------------------------------------

# Deep checks passed, one small file each, so that a job hashes a copied data set once.

_REMEMBERED_MAX = 1024


def _memory_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "lmdbio" / "checked"


def _memory_file(digest: bytes, state: FileIdentity) -> Path:
    mark = hashlib.blake2b(digest + state.mark(), digest_size=24).hexdigest()
    return _memory_folder() / mark


def _remembered(digest: bytes, state: FileIdentity) -> bool:
    with contextlib.suppress(OSError, RuntimeError):
        return _memory_file(digest, state).exists()
    return False


def _remember(digest: bytes, state: FileIdentity) -> None:
    try:
        file = _memory_file(digest, state)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = sorted(file.parent.iterdir(), key=lambda other: other.stat().st_mtime)
        for other in old[: max(0, len(old) - _REMEMBERED_MAX + 1)]:
            other.unlink(missing_ok=True)
        file.touch(mode=0o600)
    except (OSError, RuntimeError) as error:  # nothing is lost but time
        log(f"a deep check that passed is made again at the next open, not remembered: {error}")


# --- walking whole trees -----------------------------------------------------------------


class TreeDigest:
    """Hashes a tree's pages level by level, so that how the walk cuts chunks does not matter."""

    def __init__(self) -> None:
        self._levels: dict[int, Any] = {}

    def add(self, chunk: _core.Chunk) -> None:
        if chunk.level not in self._levels:
            self._levels[chunk.level] = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._levels[chunk.level].update(chunk.pages)

    def finish(self, name: Name, db: Database) -> bytes:
        head = struct.pack("<HH", name is not None, len(name or b"")) + (name or b"")
        tree = hashlib.blake2b(head + pack_database(db), digest_size=DIGEST_BYTES)
        for level in sorted(self._levels):
            tree.update(self._levels[level].digest())
        return tree.digest()


def join_digests(trees: Sequence[bytes]) -> bytes:
    """Return the digest of several trees, each one's own given in order."""
    return hashlib.blake2b(b"".join(trees), digest_size=DIGEST_BYTES).digest()


def tree_pages(db: Database) -> int:
    """Return the number of branch and leaf pages of a database, trees of duplicates included."""
    return db.branch_pages + db.leaf_pages


class Steps:
    """Counts towards a progress callback."""

    def __init__(self, progress: Progress | None, total: int, stage: str) -> None:
        self._progress, self.total, self._stage = progress, total, stage
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, max(self.total, self.done), self._stage)
