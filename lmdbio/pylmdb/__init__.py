"""pylmdb: py-lmdb itself: where it is, its reader slots, and classes that stand beside its own.

Uses py-lmdb, ``system`` and the standard library alone.
"""
