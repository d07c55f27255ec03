"""Name where provenance files lie, and the data that they are about."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from lmdbio.system.log import tell

__all__ = [
    "PROVENANCE_DIR",
    "Paths",
    "as_given",
    "data_file",
    "data_files",
    "find_sidecar",
    "sidecar_file",
]

#: One environment, a folder or a pattern of several, or a list of such.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"
#: Names of single-file environments that a folder of several is searched for.
SUFFIXES = (".lmdb", ".aselmdb")


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
            errno.ENOENT,
            "this folder is no LMDB environment: it has no data.mdb, and holds none that are",
            str(given),
        )
    return inside


def data_files(source: Paths, subdir: bool | None = None) -> list[Path]:
    """Return the data files of one environment, or of several.

    Args:
        source: an environment; a folder of several (``*.lmdb``, ``*.aselmdb``, and ``data.mdb``
            at any depth); a pattern such as ``"shards/*.lmdb"`` or ``"**/data.mdb"``; or a list
            of such. A folder's and a pattern's are sorted by name, numbers in them by their value.
        subdir: as in ``lmdb.open``, of each.

    Raises:
        ValueError: an empty list.
        TypeError: ``source`` is none of these.
        OSError: as ``data_file``; or a folder or a pattern has none.
    """
    if isinstance(source, (str, os.PathLike)):
        return _expanded(source, subdir)
    given = as_given(source)
    if not given:
        raise ValueError("an empty list of paths: there is nothing to read")
    return [file for path in given for file in _expanded(path, subdir)]


def _expanded(path: str | os.PathLike[str], subdir: bool | None) -> list[Path]:
    given = Path(path)
    if given.is_dir() and not (given / "data.mdb").exists() and subdir is not True:
        found = _inside(given)
        if found:
            return found
    elif not given.exists() and glob.has_magic(os.fspath(path)):
        names = glob.iglob(os.fspath(path), recursive=True)  # noqa: PTH207, from any root
        found = sorted(map(Path, names), key=_natural)
        if not found:
            raise FileNotFoundError(errno.ENOENT, "nothing has such a name", str(given))
        return [data_file(one, subdir) for one in found]
    return [data_file(path, subdir)]


def _inside(folder: Path) -> list[Path]:
    """Return the data files below a folder that is no environment itself, sorted."""
    found = [one for suffix in SUFFIXES for one in folder.glob(f"*{suffix}") if one.is_file()]
    for place, _, files in os.walk(folder):
        found += [Path(place) / "data.mdb"] if "data.mdb" in files else []
    return sorted(found, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return what to sort paths by: shard 2 comes before shard 10."""
    parts = re.split(r"(\d+)", os.fspath(path))  # text and digits by turns
    return [(int(part) if at % 2 else -1, part) for at, part in enumerate(parts)]


def as_given(source: Paths, *, absolute: bool = False) -> str | tuple[str, ...]:
    """Return the same source as text, or as several texts.

    Args:
        absolute: from the root folder on.

    Raises:
        TypeError: it is no path, and no list of such.
    """
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(Path(source).absolute() if absolute else source)
    known = "a data set is a path or a list of paths"
    if not isinstance(source, Sequence) or isinstance(source, (bytes, bytearray)):
        raise TypeError(f"{known}, not {type(source).__name__}")
    for path in source:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"{known}, not of {type(path).__name__}")
    return tuple(str(as_given(path, absolute=absolute)) for path in source)


def in_words(paths: Sequence[str | os.PathLike[str]]) -> str:
    """Return a short text for some paths."""
    first, more = os.fspath(paths[0]), len(paths) - 1
    return f"{first} and {more} more" if more else first


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
