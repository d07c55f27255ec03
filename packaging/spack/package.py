"""Spack's recipe: lmdbio on the MPI of a cluster. `packaging/README.md` says how to use it."""

import os

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyLmdbio(PythonPackage):
    """Reads LMDB data sets at the storage's own speed, from a laptop to many MPI ranks."""

    # There is no place yet from which Spack could fetch it: the source distribution that
    # `make wheel` leaves in dist/ has to lie in the current folder.
    manual_download = True
    url = f"file://{os.getcwd()}/lmdbio-0.1.0.tar.gz"

    license("BSD-3-Clause")

    version("0.1.0")

    variant("mpi", default=True, description="Let ranks read for one another, by mpi4py")
    variant("torch", default=False, description="Data sets and loaders for PyTorch")

    requires("platform=linux", msg="lmdbio is written against Linux's calls")

    depends_on("c", type="build")
    depends_on("python@3.10:", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cffi@1.17:", type=("build", "run"))
    depends_on("py-numpy@1.24:", type=("build", "run"))
    depends_on("py-lmdb@1.4:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-backports-zstd@1.0:", type=("build", "run"), when="^python@:3.13")
    depends_on("py-tomli@2:", type=("build", "run"), when="^python@:3.10")
    depends_on("py-mpi4py@4:", type=("build", "run"), when="+mpi")
    depends_on("py-torch@2.3:", type=("build", "run"), when="+torch")
