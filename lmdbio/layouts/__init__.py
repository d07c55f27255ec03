"""layouts: which records of a database are samples, as the programs know it that write them.

    layout    a layout, the keys that it looks at, and the selection that it finds
    numbered  samples whose keys are numbers, with or without other keys beside them, and how many
              of them values tell
    aselmdb   rows of ase's databases, some of them deleted
    known     the layouts that are found by themselves, or by name; those of which each record is a
              sample
    wanted    what callers say of all this; keys that are left out, or look like no sample's

Values are never unpickled: keys tell all, beside a few values of text, JSON or a pickled number.

Uses ``provenance``, ``inside`` and ``_core``.
"""

from lmdbio.layouts.known import KNOWN, find_layout
from lmdbio.layouts.layout import Keys, Layout, Selection

__all__ = ["KNOWN", "Keys", "Layout", "Selection", "find_layout"]
