"""observe: what was read and when: counters, traces, and traces read back.

Uses ``_core`` and ``system``.
"""
