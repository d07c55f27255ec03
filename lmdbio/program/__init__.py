"""program: runs a Python program with lmdbio in the place of py-lmdb, and reports what it read.

    launch   a script or a module, run as ``python`` runs it
    watch    counts what it and the processes that it forks read, until it ends, and what a change
             would gain with each file

Uses ``dropin`` and ``observe``; only ``cli`` uses it.
"""
