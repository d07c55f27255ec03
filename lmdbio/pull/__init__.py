"""pull: a copy of a data file that lies elsewhere, which goes on where it was broken off.

Uses ``convert``, ``provenance``, ``remote``, ``system`` and ``_core``.

    copying   ``pull``: pieces, many in flight -> a part file and a note of what it has -> verified
              -> the file under its name
"""

from lmdbio.pull.copying import PullReport, pull

__all__ = ["PullReport", "pull"]
