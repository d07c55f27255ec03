"""records: the values of one or several databases as a sequence.

    records  ``Records``
    columns  samples of several records each
    samples  sequences of samples, of which whole batches are read, and views of them
    mix      ``Mix``: samples of several sequences, each as its weight says
    routes   the ways from where records lie to their bytes, each guarded and counted
    pending  records under way
    kept     batches of which this process keeps a part
    keep     begins that: the part, even with those of other processes
    kept_grains  that part of the file, grain by grain
    kept_slots   which of its grains are in memory and on a disk, and where records lie there
    kept_loads   its grains on their way there
    kept_disk    its grains on a disk
    card     the card of Records, as notebooks show it
    ahead    indices as callers give them, and batches begun ahead of their use

Uses ``reading``, ``locate``, ``machine``, ``cache``, ``layouts``, ``planning``, ``provenance``,
``observe``, ``batch``, ``inside``, ``remote`` and ``_core``.
"""

import lmdbio.records.columns  # noqa: F401  (whoever opens ``Records`` may find such samples)
