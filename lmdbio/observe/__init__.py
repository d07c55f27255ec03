"""observe: what was read and when: counters, ledgers, traces, and traces read back.

Uses ``_core``, ``remote`` and ``system``.
"""

import os

from lmdbio.observe.active import TRACE

if os.environ.get(TRACE):
    import lmdbio.observe.tracing  # noqa: F401  (begins one)
