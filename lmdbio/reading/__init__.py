"""reading: from extents to bytes in memory: past the page cache, out of it, or as a stream.

    engines      which engine reads a file, and how
    direct_path  large reads past the page cache, while that is no loss
    blocks       records in order, by blocks that are read ahead
    file_cache   a whole file brought to memory behind random reads
    wait_credit  single gets that wait, which pay for that
    guarded      reads whose file is looked at again before their bytes count
    batch        some records in memory, lent without copying

Uses ``locate``, ``machine``, ``planning``, ``observe`` and ``_core``.
"""
