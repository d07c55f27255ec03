"""records: the values of one or several databases as a sequence.

    records  ``Records``, also of samples of several records each
    samples  sequences of samples, of which whole batches are read, and views of them
    mix      ``Mix``: samples of several sequences, each as its weight says
    zipped   ``Zip``: samples of several sequences that belong together, as tuples
    routes   the ways from where records lie to their bytes, each guarded and counted
    portable_routes  the same through py-lmdb, where the C core is not here
    pending  records under way
    shard    the part of a file that this process caches, even with those of other processes
    shard_batch  batches out of that part, and of the rest
    card     the card of Records, as notebooks show it
    options  the keywords of Records, as type checkers know them
    ahead    indices as callers give them, and batches begun ahead of their use

Uses ``reading``, ``locate``, ``machine``, ``cache``, ``layouts``, ``placement``, ``planning``,
``provenance``, ``observe``, ``inside``, ``remote`` and ``_core``.
"""
