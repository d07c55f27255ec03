"""reader: this rank's share of each global batch, read ahead by the roots of its node.

Uses ``reading``, ``locate``, ``share``, ``machine``, ``provenance``, ``placement``, ``planning``,
``observe``, ``cache``, ``layouts`` and ``_core``.

    reader       ``Reader``, and this rank's batches one after another
    options      its arguments, checked, and those that exclude each other
    setup        the steps by which all ranks make one together
    roots        the data set as each root opens it, and sees that all have the same
    phases       one phase or two, and how many roots read in turn
    caching      what each root caches, in which tier
    row_sources  where roots get rows from: caches, windows, or the file
    block_size   iterations of a block, and the slots that hold it
    supply       the rows of a block, from the file
    joint_supply the rows of a block, from all roots
    round_cache  rows that a root has in memory, round by round
    windows      such rounds: windows of a shuffled order, and a shard beside them
    shard_rows   such rounds: a part of the file, in memory and on a disk
    record_rows  such rounds: records that are cached one by one
    rows         rows on their way into a slot; those that no root sends are read
    flow         blocks under way, and when there is room for more
    root_mail    messages between roots: turns, the cursor, failures
    root_thread  the thread that has blocks read, and publishes them
    warm_up      the wait for full caches, and its progress bar
    lent         batches that a rank borrows from slots
"""
