"""Whether ``lmdbio tune`` has measured anything here.

Each opening asks. ``calibration`` is loaded where there is something to read.
"""

from __future__ import annotations

import os

from lmdbio.machine.tuned_folder import folder
from lmdbio.system.log import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio import _core
    from lmdbio.machine.calibration import Stored

__all__ = ["find"]


def find(engine: _core.Engine) -> Stored | None:
    """Return the calibration of the file system of ``engine``'s file; None where there is none.

    For every open: it costs next to nothing where nothing was ever tuned.
    """
    try:
        if not os.path.isdir(folder()):  # noqa: PTH112
            return None
    except OSError as error:
        log(f"what lmdbio tune may have measured is not looked for: {error}")
        return None
    from lmdbio.machine import calibration

    return calibration.load_for(engine)
