"""``python -m lmdbio``: the same as ``lmdbio``."""

from __future__ import annotations

from lmdbio.cli import main

if __name__ == "__main__":
    main()
