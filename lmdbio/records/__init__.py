"""records: the values of one or several databases as a sequence.

    records  ``Records``: one file
    joined   ``JoinedRecords``: several files
    routes   the ways from where records lie to their bytes, each guarded and counted
    pending  records under way
    kept     batches of which this process keeps a part
    kept_grains  that part of the file, grain by grain
    kept_slots   which of its grains are in memory and on a disk, and where records lie there
    kept_loads   its grains on their way there
    kept_disk    its grains on a disk
    shown    Records on a card, as notebooks show them
    ahead    indices as callers give them, and batches begun ahead of their use

Uses ``reading``, ``locate``, ``machine``, ``cache``, ``planning``, ``observe``, ``batch``,
``inside`` and ``_core``.
"""
