"""placement: which root caches which records, and where each row of a job comes from. Pure.

Knows no file, clock, MPI or chance. Uses the orders and schedules of ``planning``, and the pure
calls of ``_core``.

    base         placements, as values that others ask
    cache        the tiers in which a root caches its share, as a value
    homes        owners of the parts of a file, grain by grain
    owners       owners of single records
    sources      the root that brings each row of a block
    forecast     what a job reads from where, before it runs
    policy       the papers' loaders, as values
"""
