"""Builds lmdbio's one extension, ``lmdbio._core._lmdbio``, from ``csrc/`` by cffi's API mode."""

from __future__ import annotations

import sysconfig

from setuptools import setup

# A free-threaded Python has no stable ABI; everywhere else one wheel serves 3.10 and later.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

setup(
    cffi_modules=["csrc/build_extension.py:ffi"],
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
