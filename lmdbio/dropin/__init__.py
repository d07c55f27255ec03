"""dropin: py-lmdb's Environment, Transaction and Cursor, reading by explicit reads.

    environment  ``lmdbio.open``, and what one environment does
    data_file    the open file that all of its transactions share, and its snapshots
    lock_file    how it comes by reader slots
    known        what is remembered of files that were opened a moment ago
    open_snapshot  its state, and what transactions on one state have in common
    database     handles of named databases
    transaction  a snapshot, and gets in it
    cursor       py-lmdb's Cursor: a ``position`` that moves, and hands out an ``iterator`` of
                 records, which are read ahead in blocks
    card         an environment on a small card, as notebooks display it
    unwritten    writable environments that a program only reads, and the warning of them
    launch       a program run as ``python`` runs it, where ``import lmdb`` gives lmdbio
    monitor      what such a program reads, its forks too, and what a change would gain

Uses ``reading``, ``locate``, ``convert``, ``machine``, ``provenance``, ``observe``,
``inside``, ``remote`` and ``_core``.
"""
