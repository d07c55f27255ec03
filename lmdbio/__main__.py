"""The command ``lmdbio``, and ``python -m lmdbio``: what happens until all is imported."""

from __future__ import annotations

import sys

from lmdbio.system.signals import leaving_at_once

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    try:
        with leaving_at_once():
            from lmdbio.cli import main as run
        run()
    except ImportError as error:
        # Started in a folder of sources: the sentence says all, the way to it nothing.
        if error.name != "lmdbio._core._lmdbio":
            raise
        sys.exit(f"lmdbio: {error}")


if __name__ == "__main__":
    main()
