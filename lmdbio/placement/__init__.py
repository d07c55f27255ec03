"""placement: which root caches which records, and where each row of a job comes from. Pure.

Knows no file, clock, MPI or chance. Uses the orders and schedules of ``planning``, and the pure
calls of ``_core``.
"""
