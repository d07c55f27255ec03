"""Measures readers of LMDB data sets against one another, on real input.

    datasets     writes the data sets, and the digests every value is compared with
    measure      machine, page cache, counters: what a run really cost
    contestants  one reader each, run in a process of its own
    report       one table, one JSON file, one picture
    demo         the order of events

Nothing here is imported by the rest of the package; ``lmdbio demo`` loads it on demand.
"""
