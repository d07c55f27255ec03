"""The command ``lmdbio``, and ``python -m lmdbio``: what happens until all is imported."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    takes_it = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored
    if takes_it:
        signal.signal(signal.SIGINT, _leave)
    try:
        from lmdbio.cli import main as run
    except ImportError as error:
        # Started in a folder of sources: the sentence says all, the way to it nothing.
        if error.name != "lmdbio._core._lmdbio":
            raise
        sys.exit(f"lmdbio: {error}")
    if takes_it:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(_number: int, _frame: object) -> None:
    """End at once: nothing was begun, and an exception may be lost in what is imported."""
    os.write(2, b"lmdbio: interrupted\n")
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
