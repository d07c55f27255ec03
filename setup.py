"""Builds lmdbio's one extension, ``lmdbio._core._lmdbio``, from ``csrc/`` by cffi's API mode.

Where the C core cannot serve, or with ``LMDBIO_CORE=0``, a wheel without it is built
(py3-none-any), which reads through py-lmdb. All else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import os
import struct
import sys
import sysconfig
from typing import Any

from setuptools import setup


def has_core() -> bool:
    """Return whether the C core can serve here, and is wanted.

    It is written against Linux's calls (preadv2, futex, O_DIRECT), 64-bit offsets, and LMDB's
    pages as a little-endian machine writes them.
    """
    is_served = sys.platform == "linux" and sys.byteorder == "little"
    is_served = is_served and struct.calcsize("P") == 8
    return is_served and os.environ.get("LMDBIO_CORE") != "0"


options: dict[str, Any] = {}
if has_core():
    options["cffi_modules"] = ["csrc/build_extension.py:ffi"]
    # A free-threaded Python has no stable ABI; everywhere else one wheel serves 3.10 and later.
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        options["options"] = {"bdist_wheel": {"py_limited_api": "cp310"}}
setup(**options)
