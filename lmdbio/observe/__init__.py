"""observe: what was read and when: counters, ledgers, traces, and traces read back.

Uses ``_core``, ``remote`` and ``system``.
"""
