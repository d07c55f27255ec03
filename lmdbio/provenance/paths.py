"""Name where provenance files lie, and the data that they are about."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import overload
from urllib.parse import unquote, urlsplit

from lmdbio.remote import is_url, redacted, scheme_of, with_suffix
from lmdbio.system.log import tell

__all__ = ["PROVENANCE_DIR", "data_file", "find_data", "find_sidecar", "sidecar_file"]

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"
#: The data file in an environment's folder.
DATA = "data.mdb"


def find_data(path: str | os.PathLike[str], subdir: bool | None = None) -> Path | str:
    """Return the data file of an environment, on this system or elsewhere.

    Args:
        path: as for ``data_file``; or a URL, which is that of the file, or, if it ends in "/", of
            the folder.
        subdir: as for ``data_file``; of a URL nothing is demanded.

    Returns:
        A path; of a URL the URL, as text.

    Raises:
        FileNotFoundError, NotADirectoryError, IsADirectoryError: as ``data_file``.
    """
    if not is_url(path):
        return data_file(path, subdir)
    url = os.fspath(path)
    if scheme_of(url) == "file":
        return data_file(unquote(urlsplit(url).path), subdir)
    return with_suffix(url, DATA) if urlsplit(url).path.endswith("/") else url


def data_file(path: str | os.PathLike[str], subdir: bool | None = None) -> Path:
    """Return the data file of an environment of this system.

    Args:
        path: the environment's folder, or its one file.
        subdir: as in ``lmdb.open``: True demands a folder, False a file, None takes either.

    Raises:
        FileNotFoundError: nothing there, or a folder without ``data.mdb``.
        NotADirectoryError, IsADirectoryError: the other kind than ``subdir`` says.
        ValueError: a URL.
    """
    if is_url(path):
        told = (
            f"{redacted(os.fspath(path))}: a file of this machine is needed: copy it (lmdbio pull)"
        )
        raise ValueError(told)
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
    inside = given / DATA
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

    Raises:
        PermissionError: the data is elsewhere, and nothing says where to write on this machine.
    """
    if provenance is not None:
        given = Path(provenance)
        is_folder = given.is_dir() or os.fsdecode(provenance).endswith(os.sep)
        return given / _shared_name(data) if is_folder else given
    shared = os.environ.get(PROVENANCE_DIR)
    if shared:
        return Path(shared) / _shared_name(data)
    beside = _beside(data)
    if isinstance(beside, str):
        raise PermissionError(
            errno.EACCES,
            f"is not written to: name another place (--output, {PROVENANCE_DIR})",
            redacted(beside),
        )
    return beside


@overload
def find_sidecar(data: Path, provenance: None = None) -> Path: ...
@overload
def find_sidecar(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path | str: ...
def find_sidecar(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path | str:
    """Return where the provenance file of the data file ``data`` is read from.

    Where it is written (``sidecar_file``), unless only one beside the data is there: what came
    with a data set is found, too, when ``$LMDBIO_PROVENANCE_DIR`` collects one's own. Whether
    it exists, opening it says. Either may be a URL.
    """
    if provenance is not None:
        return os.fspath(provenance) if is_url(provenance) else sidecar_file(data, provenance)
    beside = _beside(data)
    if not os.environ.get(PROVENANCE_DIR):
        return beside
    first = sidecar_file(data)
    return beside if not _seen(first) and (isinstance(beside, str) or _seen(beside)) else first


def _beside(data: str | os.PathLike[str]) -> Path | str:
    if is_url(data):
        return with_suffix(os.fspath(data), SUFFIX)
    data = Path(data)
    return data.with_name(data.name + SUFFIX)


def _seen(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder that may not be searched
        tell(f"{path}: is taken for a file that is not there: {error.strerror}")
        return False


def _shared_name(data: str | os.PathLike[str]) -> str:
    # Of a URL without what may change from one day to the next, such as a signature.
    real = redacted(os.fspath(data)).partition("?")[0] if is_url(data) else os.path.realpath(data)
    mark = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
    name = Path(real).name
    if name == DATA:
        name = Path(real).parent.name or name
    return f"{name}-{mark}{SUFFIX}"
