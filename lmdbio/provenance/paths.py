"""Name where provenance files lie, and the data that they are about."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload
from urllib.parse import unquote, urlsplit

from lmdbio.remote import absolute as from_root, is_url, label
from lmdbio.remote.url import lasting, redacted, scheme_of, with_suffix
from lmdbio.system.log import log

__all__ = [
    "PROVENANCE_DIR",
    "Paths",
    "as_given",
    "data_file",
    "data_files",
    "find_data",
    "find_sidecar",
    "in_words",
    "sidecar_file",
]

#: One environment, a folder or a pattern of several, or a list of such.
Paths = str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]]

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"
#: Names of single-file environments that a folder of several is searched for.
SUFFIXES = (".lmdb", ".aselmdb")
#: The data file in an environment's folder; LMDB's lock file there, and how others' names end.
DATA, LOCK, LOCK_SUFFIX = "data.mdb", "lock.mdb", "-lock"
#: A file that a folder of others' has, and what that is.
_OTHERS = {
    "CURRENT": ": it is a LevelDB or RocksDB database",
    "mdbx.dat": ": it is a libmdbx database, whose format is another one",
    "dataset_info.json": ": it is a data set of Hugging Face's datasets",
    "zarr.json": ": it is a Zarr store",
    ".zgroup": ": it is a Zarr store",
    ".zarray": ": it is a Zarr store",
}


def find_data(path: str | os.PathLike[str], subdir: bool | None = None) -> Path | str:
    """Return the data file of an environment, on this system or elsewhere.

    Args:
        path: argument of ``data_file``; or a URL, which is that of the file, or, if it ends in
            "/", of the folder.
        subdir: argument of ``data_file``; of a URL nothing is demanded.

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
        subdir: argument of ``lmdb.open``: True demands a folder, False a file, None takes either.

    Raises:
        FileNotFoundError: nothing there, or a folder without ``data.mdb``.
        NotADirectoryError, IsADirectoryError: the other kind than ``subdir`` says.
        ValueError: a URL.
    """
    if is_url(path):
        text = (
            f"{redacted(os.fspath(path))}: a file of this machine is needed: copy it (lmdbio pull)"
        )
        raise ValueError(text)
    given = _named(path)
    if not given.exists():
        if glob.has_magic(os.fspath(path)) and _matching(path):
            raise FileNotFoundError(
                errno.ENOENT, "a pattern of several, of which this needs one", str(given)
            )
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
        several = len(_inside(given))
        has = (
            f"holds {several:,}, of which one is needed here" if several else "holds none that are"
        )
        other = next((what for name, what in _OTHERS.items() if (given / name).exists()), "")
        raise FileNotFoundError(
            errno.ENOENT,
            f"this folder is no LMDB environment: it has no data.mdb, and {has}{other}",
            str(given),
        )
    return inside


def _named(path: str | os.PathLike[str]) -> Path:
    """Return a path that somebody has named: an empty one would be the current folder.

    Raises:
        FileNotFoundError: it is empty.
    """
    if not os.fspath(path):
        raise FileNotFoundError(errno.ENOENT, "an empty path (an unset variable?)", "")
    return Path(path)


def data_files(source: Paths, subdir: bool | None = None) -> list[str]:
    """Return the data files of one environment, or of several, as text.

    Args:
        source: an environment, or its URL; a folder of several (``*.lmdb``, ``*.aselmdb``, and
            ``data.mdb`` at any depth); a pattern such as ``"shards/*.lmdb"`` or ``"**/data.mdb"``;
            or a list of such. A folder's and a pattern's are sorted by name, numbers in them by
            their value; provenance files, lock files and what is hidden are left out.
        subdir: argument of ``lmdb.open``, for each.

    Raises:
        ValueError: an empty list, or one of URLs and paths.
        TypeError: ``source`` is none of these.
        OSError: as ``data_file``; or a folder or a pattern has none.
    """
    given = as_given(source)
    if isinstance(given, str):
        return [os.fspath(file) for file in _expanded(given, subdir)]
    if not given:
        raise ValueError("an empty list of paths: there is nothing to read")
    if 0 < sum(map(is_url, given)) < len(given):
        raise ValueError(
            f"{redacted(next(filter(is_url, given)))}: URLs and paths are not read as one: copy "
            "those that are elsewhere (lmdbio pull)"
        )
    return [os.fspath(file) for path in given for file in _expanded(path, subdir)]


def _expanded(path: str | os.PathLike[str], subdir: bool | None) -> Sequence[Path | str]:
    if is_url(path):
        return [find_data(path, subdir)]
    given = _named(path)
    if given.is_dir() and not (given / "data.mdb").exists() and subdir is not True:
        found = _inside(given)
        if found:
            return found
    elif not given.exists() and glob.has_magic(os.fspath(path)):
        found = _matching(path)
        if not found:
            text = "nothing has such a name (but provenance and lock files are left out)"
            raise FileNotFoundError(errno.ENOENT, text, str(given))
        return [data_file(one, subdir) for one in found]
    return [data_file(path, subdir)]


def _matching(pattern: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of a pattern, sorted, without what lies beside data."""
    names = glob.iglob(os.fspath(pattern), recursive=True)  # noqa: PTH207, from any root
    return sorted((one for one in map(Path, names) if not lies_beside(one)), key=_natural)


def lies_beside(path: Path | str) -> bool:
    """Return whether a path is by its name a provenance file, or a lock file of LMDB's."""
    path = Path(path)
    if path.is_dir():
        return False
    if path.name == LOCK or path.suffix == SUFFIX:
        return True
    data = path.name.removesuffix(LOCK_SUFFIX)
    return data not in ("", path.name) and path.with_name(data).is_file()


def _is_hidden(name: str) -> bool:
    """Return whether a name is of what macOS, editors and file systems leave beside data."""
    return name.startswith(".")


def _inside(folder: Path) -> list[Path]:
    """Return the data files below a folder that is no environment itself, sorted.

    Links lead to data as folders do, and to a folder that was seen once. Hidden ones are left out.

    Raises:
        FileNotFoundError: the link of one leads nowhere.
    """
    named = [one for suffix in SUFFIXES for one in folder.glob(f"*{suffix}")]
    found = [one for one in named if not (_is_hidden(one.name) or one.is_dir())]
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        found += [Path(place) / DATA] if DATA in files else []
    for one in found:
        if not one.exists():
            raise FileNotFoundError(errno.ENOENT, "a link to a file that is not there", str(one))
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return what to sort paths by: shard 2 comes before shard 10."""
    parts = re.split(r"(\d+)", os.fspath(path))  # text and digits by turns
    return [(int(part) if at % 2 else -1, part) for at, part in enumerate(parts)]


def as_given(source: Paths, *, absolute: bool = False) -> str | tuple[str, ...]:
    """Return the same source as text, or as several texts.

    Args:
        absolute: whether paths are to begin at the root folder.

    Raises:
        TypeError: it is no path, and no list of such.
    """
    if isinstance(source, (str, bytes, os.PathLike)):
        text = os.fsdecode(source)
        if not absolute:
            return text
        return from_root(text if is_url(text) else _named(text))
    known = "a data set is a path or a list of paths"
    if not isinstance(source, Sequence) or isinstance(source, bytearray):
        raise TypeError(f"{known}, not {type(source).__name__}")
    paths: Sequence[Any] = source
    for path in paths:
        if not isinstance(path, (str, bytes, os.PathLike)):
            raise TypeError(f"{known}, not of {type(path).__name__}")
    return tuple(str(as_given(path, absolute=absolute)) for path in paths)


def in_words(paths: Sequence[str | os.PathLike[str]]) -> str:
    """Return a short text for some paths, for people."""
    first, more = label(paths[0]), len(paths) - 1
    return f"{first} and {more} more" if more else first


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
        given = _named(provenance)
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
    return beside if not _exists(first) and (isinstance(beside, str) or _exists(beside)) else first


def _beside(data: str | os.PathLike[str]) -> Path | str:
    if is_url(data):
        return with_suffix(os.fspath(data), SUFFIX)
    data = Path(data)
    return data.with_name(data.name + SUFFIX)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder that may not be searched
        log(f"{path}: is taken for a file that is not there: {error.strerror}")
        return False


def _shared_name(data: str | os.PathLike[str]) -> str:
    real = lasting(os.fspath(data)) if is_url(data) else os.path.realpath(data)
    mark = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
    name = Path(real.partition("?")[0] if is_url(real) else real).name
    if name == DATA:
        name = Path(real).parent.name or name
    return f"{name}-{mark}{SUFFIX}"
