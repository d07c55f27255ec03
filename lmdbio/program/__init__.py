"""program: runs a Python program with lmdbio in the place of py-lmdb, and reports what it read.

    launch   a script or a module, run as ``python`` runs it
    watch    counts what it and the processes that it forks read, until it ends
    report   of each file: what was read, from where, and what a change would gain. Pure

Uses ``dropin`` and ``observe``; only ``cli`` uses it.
"""
