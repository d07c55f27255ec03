"""Say in words why the C core is not here, and stand for its names: loaded where it is not.

    name -> ``portable``: the same in NumPy, of the few that records and orders need
         -> else a class of that name, which modules may name as they load, and nobody may call

Invariant: what needs the core raises ImportError with what works without it, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["EXTENSION", "explain", "report", "stand_in"]

EXTENSION = "lmdbio._core._lmdbio"
#: Systems' names for people.
_SYSTEMS = {"darwin": "macOS", "win32": "Windows", "linux": "Linux"}


def explain(error: ImportError) -> str:
    """Return why the core is not here, as a clause.

    Args:
        error: error of importing it; one with a message says why by itself.

    Raises:
        ImportError: it is there and cannot be loaded; or this is its source folder, which a
            compiler is missing to, and not a system that it is not for.
    """
    if error.name is None:
        return str(error)
    if find_spec(EXTENSION) is not None:
        raise error
    if sys.platform != "linux" or sys.byteorder != "little" or sys.maxsize < 2**32:
        system = _SYSTEMS.get(sys.platform, sys.platform)
        return f"it is for 64-bit little-endian Linux, and this is {system}"
    folder = Path(__file__).resolve().parents[2]
    # Python started in a clone imports the package there, whatever pip has installed elsewhere.
    if (folder / "csrc").is_dir():
        text = (
            f"{folder} is the source folder of lmdbio, without its compiled part: start Python "
            "in another folder, or compile it here: pip install -e . (or make)"
        )
        raise ImportError(text, name=EXTENSION)
    return f"{folder} has lmdbio without it: pip install --no-binary lmdbio lmdbio compiles it"


def report(absence: str) -> None:
    """Warn, once in a program, that py-lmdb reads."""
    from lmdbio.system.warn import caller, warn_of

    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None:  # which has said it
        text = f"lmdbio reads through py-lmdb, at its speed: the C core is not here: {absence}"
        warn_of(caller(), text, UserWarning)


class _Absent(type):
    """The class of classes that stand for what the core has, and their attributes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{cls.__name__}.{name}", (), {"need": staticmethod(cls.need)})

    def __call__(cls, *_args: Any, **_keywords: Any) -> Any:
        cls.need(cls.__name__)

    __iter__ = __call__


def stand_in(name: str, need: Callable[[str], None]) -> Any:
    """Return what stands for a name of the core.

    Args:
        name: name of the core's.
        need: function that refuses what needs it.
    """
    from lmdbio._core import portable

    if name in portable.__all__:
        return getattr(portable, name)
    return _Absent(name, (), {"need": staticmethod(need)})
