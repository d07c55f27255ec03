"""convert: makes files of a database: provenance files, which it proves, and copies.

Uses ``locate``, ``planning``, ``provenance``, ``remote`` and ``_core``.

    convert        one walk over a database becomes its provenance file
    database_walk  the databases of one state, walked once into a draft; clues how they were made
    put_order      the order in which records were put, as their writer or caller gives it
    verify         proves a database, and its provenance file, by reading all of both
    on_close       py-lmdb's environment, which leaves a provenance file when it is closed
    recording      its transactions, which record the keys that they put and delete
    compacting     a copy in order and without free pages, whole and converted
    copying        from one state of a source to a draft that holds the same
    copier         the process in which LMDB copies
    census         what an environment holds
    comparison     that a copy holds what its source holds
    pulling        from a URL to a file, verified; continues where it was broken off

    source -> LMDB's compacting copy, in a process of its own -> pipe -> draft
           -> every page checked, every record compared -> published -> converted

Invariants of copies:
  - the source is never written to, and no lock file is made for it;
  - the target appears whole, under a name that was free, or not at all: after all databases, keys
    and values in it were found to be the source's, byte for byte (values unless told not to);
  - it holds one state: a reader slot protects that where the source has a lock file, elsewhere
    too many commits meanwhile are an error.
"""
