"""copy: copies of environments: in order and without free pages, or of what lies elsewhere.

Uses ``convert``, ``locate``, ``planning``, ``provenance``, ``remote`` and ``_core``.

    census      what an environment holds
    copier      the process in which LMDB copies
    comparison  that a copy holds what its source holds
    copying     from one state of a source to a draft that holds the same
    compacting  from a source to a target that is whole and converted
    pulling     from a URL to a file: pieces, many in flight -> a part and a note of what it has
                -> verified -> the file under its name; goes on where it was broken off

    source -> LMDB's compacting copy, in a process of its own -> pipe -> draft
           -> every page checked, every record compared -> published -> converted

Databases with duplicates of one size (dupfixed), of which LMDB's copy dies when one key has many,
are put record by record, into a new file.

Random insertions, updates and deletions scatter records over a file and leave free pages behind;
a copy in the order of the trees is smaller, and a few large reads fetch many neighbours.

py-lmdb copies, which keeps every kind of database and both data formats. It dies by a signal of
damage that it maps, and a call into it cannot be ended: hence the process of its own, whose pipe
tells how far it is, and ends it when nobody reads on.

Invariants:
  - the source is never written to, and no lock file is made for it;
  - the target appears whole, under a name that was free, or not at all: after all databases, keys
    and values in it were found to be the source's, byte for byte (values unless told not to);
  - it holds one state: a reader slot protects that where the source has a lock file, elsewhere
    too many commits meanwhile are an error.
"""

from lmdbio.copy.census import Sizes
from lmdbio.copy.compacting import CompactReport, compact
from lmdbio.copy.pulling import PullReport, pull

__all__ = ["CompactReport", "PullReport", "Sizes", "compact", "pull"]
