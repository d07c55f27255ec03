"""Choose how to read a file, and open the engine that reads it so.

``machine.choice`` decides, and is pure; here the environment, the calibration and the storage
that it judges by are looked up.
"""

from __future__ import annotations

import os

from lmdbio import _core
from lmdbio.errors import IncompatibleError
from lmdbio.machine import storage, tuned_folder
from lmdbio.machine.choice import choose
from lmdbio.machine.overrides import overrides_from_env
from lmdbio.system.log import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio.machine.calibration import Stored
    from lmdbio.machine.choice import Access, Choice
    from lmdbio.machine.overrides import Overrides

__all__ = ["choose_reading", "find_calibration", "is_on_disk", "open_engine"]


def is_on_disk(engine: _core.Engine) -> bool:
    """Return whether a disk of this machine is under the file, which its page cache keeps."""
    return engine.kind == "pread" and _core.inspect_at(engine.fd).disk


def find_calibration(engine: _core.Engine) -> Stored | None:
    """Return the calibration of the file system of ``engine``'s file; None where there is none.

    For every open: it costs next to nothing where nothing was ever tuned.
    """
    try:
        if not os.path.isdir(tuned_folder.folder()):  # noqa: PTH112
            return None
    except OSError as error:
        log(f"what lmdbio tune may have measured is not looked for: {error}")
        return None
    from lmdbio.machine import calibration  # where there is something to read

    facts = storage.inspect(engine, cached=False, thorough=True)
    found = calibration.load(calibration.identity(facts))
    return found if found.calibration is not None or found.note else None


def choose_reading(
    engine: _core.Engine,
    access: Access,
    keyword: Overrides | None = None,
    *,
    facts: storage.Storage | None = None,
) -> Choice:
    """Choose how to read the file that ``engine`` has open.

    Args:
        engine: any engine of the file; it is asked for the file's descriptor alone.
        access: purpose of the reads.
        keyword: choices that the caller made.
        facts: facts of the storage under the file, where the caller has looked already.

    Raises:
        ValueError: a variable of the environment makes no sense.
    """
    environment = overrides_from_env()
    stored = find_calibration(engine)
    if stored is not None and stored.note:
        from lmdbio.system.warn import warn

        warn(stored.note)
    found = facts or storage.inspect(engine, cached=False)
    if access == "stream" and not found.disk:
        # Only there does the share that is cached decide, and mincore costs milliseconds.
        found = storage.inspect(engine)
    calibration = None if stored is None else stored.calibration
    return choose(access, found, calibration, keyword=keyword, environment=environment)


def open_engine(pages: _core.Engine, choice: Choice) -> _core.Engine:
    """Open the engine that reads records, on the very file that ``pages`` has open.

    By its name it could be another file by now: data sets are replaced by rename. Where nobody
    asked for O_DIRECT by name and the file system refuses it, the page cache serves.

    Raises:
        IncompatibleError: the engine was asked for by name, and this file cannot be read so.
        OSError, MemoryError: the engine cannot be opened.
    """
    try:
        engine = pages.again(choice.engine, choice.depth)
    except IncompatibleError as refusal:
        if choice.demanded:
            raise
        log(f'{refusal}; read through the page cache (engine="pread") instead')
        engine = pages.again("pread", choice.depth)
    if engine.kind == "pread" and choice.access == "batch" and not choice.demanded:
        # Plans ask for what they need, gaps included; what the kernel would add to each read
        # of a batch of images was two fifths of it.
        engine.expect_random()
    return engine
