"""Name where provenance files lie, and the data that they are about."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

from lmdbio.system.log import tell

__all__ = ["PROVENANCE_DIR", "data_file", "find_sidecar", "sidecar_file"]

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"


def data_file(path: str | os.PathLike[str], subdir: bool | None = None) -> Path:
    """Return the data file of an environment.

    Args:
        path: the environment's folder, or its one file.
        subdir: as in ``lmdb.open``: True demands a folder, False a file, None takes either.

    Raises:
        FileNotFoundError: nothing there, or a folder without ``data.mdb``.
        NotADirectoryError, IsADirectoryError: the other kind than ``subdir`` says.
    """
    given = Path(path)
    if not given.exists():
        raise FileNotFoundError(errno.ENOENT, "no such LMDB environment", str(given))
    folder = given.is_dir()
    if folder and subdir is False:
        raise IsADirectoryError(errno.EISDIR, "a folder, but subdir=False was asked", str(given))
    if not folder and subdir is True:
        raise NotADirectoryError(
            errno.ENOTDIR, "not a folder, but subdir=True was asked", str(given)
        )
    if not folder:
        return given
    inside = given / "data.mdb"
    if not inside.exists():
        raise FileNotFoundError(
            errno.ENOENT, "this folder is no LMDB environment: it has no data.mdb", str(given)
        )
    return inside


def sidecar_file(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path:
    """Return where the provenance file of the data file ``data`` is written.

    ``provenance`` when given (a file, or a folder to hold it, which is there or ends in "/"), else
    the folder ``$LMDBIO_PROVENANCE_DIR``, else beside the data: ``data.mdb.prov``. In a folder
    that many data sets share, a hash of the data's real path keeps the names apart.
    """
    data = Path(data)
    if provenance is not None:
        given = Path(provenance)
        is_folder = given.is_dir() or os.fsdecode(provenance).endswith(os.sep)
        return given / _shared_name(data) if is_folder else given
    shared = os.environ.get(PROVENANCE_DIR)
    if shared:
        return Path(shared) / _shared_name(data)
    return _beside(data)


def find_sidecar(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path:
    """Return where the provenance file of the data file ``data`` is read from.

    Where it is written (``sidecar_file``), unless only one beside the data is there: what came
    with a data set is found, too, when ``$LMDBIO_PROVENANCE_DIR`` collects one's own. Whether
    it exists, opening it says.
    """
    first = sidecar_file(data, provenance)
    beside = _beside(Path(data))
    if provenance is None and not _seen(first) and _seen(beside):
        return beside
    return first


def _beside(data: Path) -> Path:
    return data.with_name(data.name + SUFFIX)


def _seen(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder that may not be searched
        tell(f"{path}: is taken for a file that is not there: {error.strerror}")
        return False


def _shared_name(data: Path) -> str:
    real = os.path.realpath(data)
    mark = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
    name = Path(real).name
    if name == "data.mdb":
        name = Path(real).parent.name or name
    return f"{name}-{mark}{SUFFIX}"
