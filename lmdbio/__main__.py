"""``python -m lmdbio``: the same as ``lmdbio``."""

from __future__ import annotations

import sys

try:
    from lmdbio.cli import main
except ImportError as error:
    # Started in a folder of sources: the sentence says all, the way to it nothing.
    if error.name != "lmdbio._core._lmdbio":
        raise
    sys.exit(f"lmdbio: {error}")

if __name__ == "__main__":
    main()
