"""provenance: the file that says where every record of a database lies.

Uses ``_core``, ``remote`` and ``system``.

    paths       where it lies, and the data that it is about
    layout      what its bytes are, drawn in provenance/FORMAT.md; ``pack`` and ``parse`` them
    file        ``Provenance``: an open one, whose blocks are read as they are needed
    section     ``Section``: one database of it answers index -> extent
    writer      one that is being written, from extents

csrc/provenance.c decodes the columns of its blocks. Whether it still describes the data,
``freshness`` decides; ``convert`` makes it and ``verify`` proves it.

Invariants:
  - every byte of the file lies under a checksum and a bound, and is checked before use;
  - only ``freshness`` and ``leaves`` read the data.

Source: the provenance information of LMDBIO (Pumma et al., ACM TOPC 2019, "provenance
information"), in a form that holds for any insertion history.
"""

from lmdbio.provenance.file import Provenance, orders_told
from lmdbio.provenance.layout import (
    ALL_KEY_RUNS_MAX,
    BLOCKS_AT,
    DATABASES_MAX,
    DIGEST_BYTES,
    DIRECTORY_BYTES_MAX,
    MAGIC,
    NUMBERS_MAX,
    Entry,
    Facts,
    Name,
    extents_crc,
    name_bytes,
    name_text,
)
from lmdbio.provenance.pack import (
    compress,
    pack_database,
    pack_directory,
    pack_entry,
    pack_numbers,
    pack_preamble,
    zigzag,
)
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
from lmdbio.provenance.section import Section

__all__ = [
    "ALL_KEY_RUNS_MAX",
    "BLOCKS_AT",
    "DATABASES_MAX",
    "DIGEST_BYTES",
    "DIRECTORY_BYTES_MAX",
    "Entry",
    "Facts",
    "MAGIC",
    "NUMBERS_MAX",
    "Name",
    "PROVENANCE_DIR",
    "Provenance",
    "Section",
    "compress",
    "Paths",
    "as_given",
    "in_words",
    "data_file",
    "data_files",
    "extents_crc",
    "find_data",
    "find_sidecar",
    "name_bytes",
    "name_text",
    "orders_told",
    "pack_database",
    "pack_directory",
    "pack_entry",
    "pack_numbers",
    "pack_preamble",
    "sidecar_file",
    "zigzag",
]
