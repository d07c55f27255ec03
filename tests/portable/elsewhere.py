"""Run a program as on a system that has none of Linux's and POSIX' own calls.

    python elsewhere.py PROGRAM ARGUMENTS...

The modules that Windows has not cannot be imported, and the functions and numbers of ``os`` and
``signal`` that it has not are gone, once Python and PyTorch, which are another system's there,
are loaded. ``os.fork`` stays, by which Python begins a DataLoader's workers here.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

import torch.utils.data  # noqa: F401 - torch.distributed asks for some of these

#: Parts of POSIX' Python that Windows' lacks.
MODULES = ("fcntl", "resource", "grp", "pwd", "termios", "pty", "tty", "syslog")
OF_OS = (
    *("sched_getaffinity", "pread", "preadv", "pwrite", "posix_fadvise", "posix_fallocate"),
    *("register_at_fork", "memfd_create", "MFD_CLOEXEC", "sysconf", "sysconf_names"),
    *("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_DIRECT", "sendfile"),
    *("statvfs", "fstatvfs", "getuid", "geteuid", "uname", "killpg", "getpgid", "eventfd"),
)
OF_SIGNAL = ("SIGHUP", "SIGBUS", "pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK")

if __name__ == "__main__":
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in OF_OS:
        delattr(os, name)
    for name in OF_SIGNAL:
        delattr(signal, name)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
