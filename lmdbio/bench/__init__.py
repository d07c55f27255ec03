"""bench: measures readers of LMDB data sets against one another, on real input.

Uses what is public, as users do; for what it shows and writes ``convert``, ``locate``, ``share``,
``planning``, ``machine``, ``inside``, ``page`` and ``provenance``.

    measure      machine, page cache, counters: what a run really cost
    readers      the loops in which data sets are read
    processes    starts each run in a process, or ranks, of its own
    bars         progress bars

The demonstration (``lmdbio demo``), from writing the data to a picture:

    datasets     writes the data sets, and hashes what is in them
    demo         the legs, and the order of events

Microbenchmarks of one data set (``lmdbio bench``), comparable with IOR and fio:

    layout       plain reads as IOR lays them out; commands of fio and ior. Pure
    trials       which records, read by whom, in which order. Pure
    plain        the plain reader
    runner       one run
    workplace    where runs are started
    findings     what came of it, and the statistics. Pure
    tables       findings as one table, for a terminal and a page
    page         findings as one HTML page. Pure
    micro        the order of events

Nothing here is imported by the rest of the package; the commands load it on demand.
"""
