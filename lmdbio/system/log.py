"""log: informs the logger "lmdbio" of each step that went another way than it might, and why.

    logging.basicConfig(level=logging.INFO)    and a program hears of all of them

INFO: lmdbio reads on, by another way. WARNING: that costs something that the program asked for. A
text says the file and the reason, and is logged once in a process. A handler may do anything,
calls of lmdbio included, so nobody logs anything with a lock in hand.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger

__all__ = ["INFO", "WARNING", "log"]

INFO, WARNING = 20, 30  # as of ``logging``
#: Texts that are remembered; then all are forgotten, and may be logged again.
LOGGED_MAX = 4096

_logger: Logger | None = None
_logged: set[str] = set()


def _find() -> Logger | None:
    """Return the logger; None: the program has not loaded ``logging``, and so nobody listens."""
    global _logger
    logging = sys.modules.get("logging")
    if logging is None or not hasattr(logging, "NullHandler"):  # another thread is loading it
        return None
    logger: Logger = logging.getLogger("lmdbio")
    logger.addHandler(logging.NullHandler())
    _logger = logger
    return logger


def log(text: str, level: int = INFO) -> None:
    """Give a text to the logger, unless it has been logged, or nobody listens.

    Args:
        text: the file, the reason, and how lmdbio goes on.
        level: ``INFO`` or ``WARNING``.
    """
    logger = _logger or _find()
    if logger is None or not logger.isEnabledFor(level) or text in _logged:
        return
    if len(_logged) >= LOGGED_MAX:
        _logged.clear()
    _logged.add(text)
    logger.log(level, "%s", text)
