"""arguments: what py-lmdb takes for a key, a value and a number, and what it refuses."""

from __future__ import annotations

import errno
import io
import os

from lmdbio.errors import lmdb_error
from lmdbio.remote import is_url
from lmdbio.system.frozen import dataclass
from lmdbio.system.slim import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["IMPOSED", "LmdbKeywords", "as_bytes", "as_get_key", "as_number", "as_optional_bytes"]

#: The largest numbers that py-lmdb takes: of a C ``size_t``, and of an ``int``.
SIZE_MAX, INT_MAX = 2**64 - 1, 2**31 - 1
#: Keywords of ``lmdb.open`` that are numbers, and how large they may be.
_NUMBERS = {
    "map_size": SIZE_MAX,
    "mode": INT_MAX,
    "max_readers": INT_MAX,
    "max_dbs": INT_MAX,
    "max_spare_txns": INT_MAX,
}


#: Environment variable by which what is opened without ``readonly=`` is opened readonly.
READONLY = "LMDBIO_READONLY"
#: The reason of refusals to write then.
IMPOSED = (
    f"{READONLY}=1, or lmdbio run --readonly, opens readonly what does not say readonly=False"
)
#: As it was when lmdbio was imported: each opening comes here, and to look takes microseconds.
_said = os.environ.get(READONLY, "")


def impose_readonly() -> None:
    """Set the variable, for this process and those that it starts."""
    global _said
    os.environ[READONLY] = _said = "1"


def imposes_readonly() -> bool:
    """Return whether the variable asks for it.

    Raises:
        ValueError: it says neither 0 nor 1.
    """
    if _said not in ("", "0", "1"):
        raise ValueError(f"{READONLY} must be 0 or 1, not {_said!r}")
    return _said == "1"


@dataclass(frozen=True, slots=True)
class LmdbKeywords:
    """The keywords of ``lmdb.open`` but ``path`` and ``readonly``."""

    map_size: int = 10485760
    subdir: bool = True
    metasync: bool = True
    sync: bool = True
    map_async: bool = False
    mode: int = 0o755
    create: bool = True
    readahead: bool = True
    writemap: bool = False
    meminit: bool = True
    max_readers: int = 126
    max_dbs: int = 0
    max_spare_txns: int = 0
    lock: bool = True
    lib_version: int | None = None

    @classmethod
    def of(cls, *given: Any) -> LmdbKeywords:
        """Return the keywords as py-lmdb takes them: None means the default.

        Args:
            given: keywords' values, in order.
        """
        if None not in given[:-1]:  # the last one's default is None
            return cls(*given)
        return cls(
            *(
                getattr(_DEFAULTS, name) if value is None else value
                for name, value in zip(cls.__match_args__, given, strict=True)
            )
        )

    def named(self) -> dict[str, Any]:
        """Return the keywords by their names."""
        return {name: getattr(self, name) for name in self.__match_args__}

    def data_file(self, path: str) -> str:
        """Return the data file of an environment at ``path``, or of a URL."""
        if is_url(path):
            from lmdbio.provenance import find_data

            return os.fspath(find_data(path))
        if not self.subdir or not path:  # an empty one is no file, and not the current folder
            return path
        return os.path.join(path, "data.mdb")  # noqa: PTH118

    def check_numbers(self) -> None:
        """Refuse numbers as py-lmdb does.

        Raises:
            OverflowError: a number is negative, or too large.
            InvalidParameterError: there are to be no readers.
            TypeError: it is no integer.
        """
        for name, largest in _NUMBERS.items():
            as_number(getattr(self, name), largest)
        if not self.max_readers:
            raise lmdb_error("mdb_env_set_maxreaders", errno.EINVAL)


_DEFAULTS = LmdbKeywords()


def as_number(value: Any, largest: int = SIZE_MAX) -> int:
    """Return a number that py-lmdb takes.

    Raises:
        OverflowError: it is negative, or above ``largest``.
        TypeError: it is no integer.
    """
    number = index(value)
    if number < 0:
        raise OverflowError("Integer argument must be >= 0")
    if number > largest:
        raise OverflowError("Integer argument exceeds limit.")
    return number


def as_bytes(value: Any) -> bytes:
    """Return a key or value as py-lmdb takes it: bytes, or an object with a buffer of them.

    Raises:
        TypeError: ``value`` is a str, or has no buffer.
        BufferError, ValueError: its bytes do not lie one after another; its own exception.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("Won't implicitly convert Unicode to bytes; use .encode()")
    try:
        view = memoryview(value)
    except TypeError:
        name = type(value).__name__
        raise TypeError(f"a bytes-like object is required, not '{name}'") from None
    if not view.c_contiguous:
        io.BytesIO().write(value)  # asks it for bytes as py-lmdb does, which it refuses
    return bytes(view)


def as_optional_bytes(value: Any) -> bytes:
    """Return a key or value that may be left out (``as_bytes``); empty for None."""
    return b"" if value is None else as_bytes(value)


def as_get_key(key: Any) -> bytes:
    """Return the key of a ``get`` (``as_bytes``).

    Raises:
        TypeError: there is none, or it is no key.
    """
    if key is None:
        raise TypeError("key must be given.")
    return as_bytes(key)
