"""provenance: the file that says where every record of a database lies.

Uses ``_core``, ``remote`` and ``system``.

    paths       where it lies, and the data that it is about
    directory   what its bytes are, drawn in provenance/FORMAT.md; an ``entry`` is one database
    frames      compressed parts, and numbers packed in blocks
    file        ``Provenance``: an open one, whose blocks are read as they are needed;
                ``Section``: one database of it answers index -> extent
    writer      one that is being written, from extents

csrc/provenance.c decodes the columns of its blocks. Whether it still describes the data,
``freshness`` decides; ``convert`` makes it and ``verify`` proves it.

Invariants:
  - every byte of the file lies under a checksum and a bound, and is checked before use;
  - only ``freshness`` and ``leaves`` read the data.

Source: the provenance information of LMDBIO (Pumma et al., ACM TOPC 2019, "provenance
information"), in a form that holds for any insertion history.
"""

from lmdbio.provenance.directory import BLOCKS_AT, DATABASES_MAX, DIGEST_BYTES, MAGIC
from lmdbio.provenance.entry import Entry, Facts, Name, name_bytes, name_text, pack_database
from lmdbio.provenance.file import Provenance, Section, orders_recorded
from lmdbio.provenance.paths import (
    PROVENANCE_DIR,
    Paths,
    as_given,
    data_file,
    data_files,
    find_data,
    find_sidecar,
    in_words,
    sidecar_file,
)

__all__ = [
    "BLOCKS_AT",
    "DATABASES_MAX",
    "DIGEST_BYTES",
    "Entry",
    "Facts",
    "MAGIC",
    "Name",
    "PROVENANCE_DIR",
    "Paths",
    "Provenance",
    "Section",
    "as_given",
    "data_file",
    "data_files",
    "find_data",
    "find_sidecar",
    "in_words",
    "name_bytes",
    "name_text",
    "orders_recorded",
    "pack_database",
    "sidecar_file",
]
