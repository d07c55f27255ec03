"""Builds lmdbio's one extension, ``lmdbio._core._lmdbio``, from ``csrc/`` by cffi's API mode.

All else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import struct
import sys
import sysconfig

from setuptools import setup

#: The C core is written against Linux's calls (preadv2, futex, O_DIRECT), 64-bit offsets, and
#: LMDB's pages as a little-endian machine writes them.
UNSUPPORTED = (
    "lmdbio runs on 64-bit little-endian Linux, and this is {system}. Use py-lmdb here "
    "(pip install lmdb): lmdbio.open takes the same calls, so a program that begins with "
    "'try: import lmdbio as lmdb', 'except ImportError: import lmdb' runs on both."
)


def check_platform() -> None:
    """Refuse a system that the C core cannot serve, before a compiler fills the screen.

    Raises:
        SystemExit: with a sentence that says what to use instead.
    """
    bits = 8 * struct.calcsize("P")
    if sys.platform == "linux" and sys.byteorder == "little" and bits == 64:
        return
    names = {"darwin": "macOS", "win32": "Windows"}
    system = f"{names.get(sys.platform, sys.platform)} ({bits}-bit, {sys.byteorder}-endian)"
    raise SystemExit(UNSUPPORTED.format(system=system))


check_platform()

# A free-threaded Python has no stable ABI; everywhere else one wheel serves 3.10 and later.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

setup(
    cffi_modules=["csrc/build_extension.py:ffi"],
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
