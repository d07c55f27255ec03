"""known: what this process found out when it last opened a data file.

    file system, and what is asked for  -->  how to read, for a second
    path  -->  its newest state, as long as both meta pages are what they were, byte for byte

A program that opens a file for each record pays for neither again. All that is kept are values, of
the files opened last: no descriptor, no lock, nothing that a child after fork could not use. The
first is a matter of speed alone, as all choices are; the second is compared with the file.
"""

from __future__ import annotations

import os
import time

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.machine import storage, tuned_folder
from lmdbio.machine.budget import ENVIRONMENT, budget_bytes
from lmdbio.machine.choice import READAHEAD_BYTES_LARGE, Choice
from lmdbio.machine.overrides import VARIABLES, Overrides
from lmdbio.reading.engines import choose_reading
from lmdbio.system.frozen import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Reading", "choose_known", "forget", "newest_state"]

#: How old a choice may be. As old as what it rests on may be (``machine.storage``).
RECENT_SECONDS = 1.0
#: Choices, and files, that are remembered; then all are forgotten.
CHOICES_MAX, FILES_MAX = 16, 256
#: Meta pages of a file that are remembered, bytes: with pages above 8 KiB they are not.
META_BYTES_MAX = 16 << 10
#: Variables of the environment that a choice depends on.
_ASKED = tuple(name.encode() for name in (*VARIABLES.values(), ENVIRONMENT, *tuned_folder.FOLDERS))
#: ``os.environ`` and ``os.environb`` are views of this. The latter does as well, at its pace:
#: ``os.environ.get`` takes most of a microsecond, for it encodes, decodes and raises.
_environ: Mapping[bytes, bytes] = getattr(os.environ, "_data", os.environb)


@dataclass(frozen=True, slots=True)
class Reading:
    """How an environment reads its file.

    Attributes:
        choice: Choice of the engine.
        readahead_bytes: distance that the kernel reads ahead, bytes; 0: unknown; None: the file
            system is not on a disk of this machine.
        advised: whether that distance is small, so that reads ahead are announced.
        dense: readers ahead should bring whole stretches of the file, in order.
        budget_bytes: memory budget of this process, as it was.
    """

    choice: Choice
    readahead_bytes: int | None
    advised: bool
    dense: bool
    budget_bytes: int


_readings: dict[tuple[object, ...], tuple[float, Reading]] = {}
_states: dict[str, tuple[bytes, _core.Meta]] = {}


def choose_known(engine: _core.Engine, overrides: Overrides) -> Reading:
    """Choose how an environment reads the file that ``engine`` has open.

    All files of a file system are read alike: no fact about one of them decides ("single" in
    ``machine.choice``). A second also passes before it warns again of a damaged calibration.

    Raises:
        ValueError: a variable of the environment makes no sense.
    """
    device = engine.device
    question = device, overrides, tuned_folder.changes(), tuple(map(_environ.get, _ASKED))
    found, now = _readings.get(question), time.monotonic()
    if found is not None and now - found[0] < RECENT_SECONDS:
        return found[1]
    reading = _choose(engine, overrides)
    if device:
        if len(_readings) >= CHOICES_MAX:
            _readings.clear()
        _readings[question] = now, reading
    return reading


def _choose(engine: _core.Engine, overrides: Overrides) -> Reading:
    facts = storage.inspect(engine, cached=False)
    readahead_bytes = facts.readahead_bytes or 0
    advised = readahead_bytes < READAHEAD_BYTES_LARGE
    return Reading(
        choose_reading(engine, "single", overrides, facts=facts),
        readahead_bytes if facts.disk else None,
        advised,
        # A disk of this machine is passed by, or does not mind the order.
        advised and not facts.disk,
        budget_bytes(None, recent=True),
    )


def forget() -> None:
    """Know nothing any more, as tests do that change what is found out."""
    _readings.clear()
    _states.clear()


def newest_state(engine: _core.Engine) -> tuple[bytes | None, _core.Meta]:
    """Return the newest state of the file that ``engine`` has open.

    Returns:
        The bytes of both meta pages (None: a commit came between), and what they say.

    Raises:
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: no readable LMDB file.
        OSError: it cannot be read.
    """
    known = _states.get(engine.path)
    if known is not None:
        try:
            if _core.meta_bytes(engine, known[1].layout) == known[0]:
                return known
        except (OSError, Error):  # such as a file that is shorter now, which read_meta reports
            pass
    meta = _core.read_meta(engine)
    newest, is_there, raw = _core.probe_whole(engine, meta)
    if newest != meta.txnid or not is_there:
        return None, meta
    if len(raw) <= META_BYTES_MAX:
        if len(_states) >= FILES_MAX:
            _states.clear()
        _states[engine.path] = raw, meta
    return raw, meta
