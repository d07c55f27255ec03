"""dropin: py-lmdb's Environment, Transaction and Cursor, reading by explicit reads.

Uses ``reading``, ``locate``, ``convert``, ``pylmdb`` and ``_core``.
"""
