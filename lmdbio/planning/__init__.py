"""planning: which records, in which order, for which rank, by which reads. Pure.

Knows no file, clock, MPI or chance. Uses the pure calls of ``_core``.
"""
