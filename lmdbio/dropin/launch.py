"""launch: a script or a module, run as ``python`` runs it, where ``import lmdb`` gives lmdbio.

``sys.argv``, ``sys.path``, ``__main__`` with all its names, exit status and tracebacks are those
that ``python`` would give. The program's ``__main__`` stays to the end of the process, for exit
functions, pickles and processes that are spawned need it.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import lmdbio

__all__ = ["NoProgramError", "run_program"]

#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130


class NoProgramError(Exception):
    """There is no such script or module; the message names it."""


class _Main(NamedTuple):
    """A program that was found.

    Attributes:
        code: code to run.
        names: names of the module ``__main__``, with their values.
        argv0: the first of ``sys.argv``.
        folder: the first of ``sys.path``.
        holds_code: whether ``folder`` goes there even where Python puts none (``python -P``).
    """

    code: CodeType
    names: dict[str, Any]
    argv0: str
    folder: str
    holds_code: bool = False


def run_program(name: str, arguments: Sequence[str], *, is_module: bool) -> int:
    """Run a program to its end, and return its exit status.

    Args:
        name: name of a script, of a folder or a zip file with a ``__main__.py``, or of a module.
        arguments: arguments of the program.
        is_module: ``name`` is what ``python -m`` takes.

    Raises:
        NoProgramError: there is no such program.
        SystemExit: it ended so.
    """
    if not name:
        raise NoProgramError("its name is empty (an unset variable?)")
    sys.modules["lmdb"] = lmdbio
    has_folder = not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated)
    sys.argv = ["-m" if is_module else name, *arguments]
    if has_folder:
        sys.path[0] = os.getcwd() if is_module else ""  # noqa: PTH109
    try:
        found = _find_module(name) if is_module else _find_script(name)
        sys.argv[0] = found.argv0
        if has_folder:
            sys.path[0] = found.folder
        elif found.holds_code:
            sys.path.insert(0, found.folder)
        main = ModuleType("__main__")
        main.__dict__.update(found.names, __builtins__=builtins)
        # multiprocessing calls it so in processes that it spawns, and in what they answer.
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main
        exec(found.code, main.__dict__)
    except (SystemExit, NoProgramError):
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _find_script(name: str) -> _Main:
    # As Python joins them, which pathlib does not.
    path = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118
    importer = pkgutil.get_importer(path)
    spec = None if importer is None else importer.find_spec("__main__", None)
    if spec is not None:  # a folder, or a zip file
        return _of_spec(spec, argv0=name, folder=path)._replace(holds_code=True)
    if os.path.isdir(path):  # noqa: PTH112
        raise NoProgramError(f"{name}: there is no __main__.py in this folder")
    is_compiled = path.endswith(".pyc")
    loader: Any = (SourcelessFileLoader if is_compiled else SourceFileLoader)("__main__", path)
    try:
        if is_compiled:
            code = loader.get_code("__main__")
        else:
            with io.open_code(path) as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
    except OSError as error:
        raise NoProgramError(f"{name}: {error.strerror}") from error
    names = {"__file__": path, "__cached__": None, "__loader__": loader, "__spec__": None}
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    return _Main(code, {**names, "__package__": None}, name, folder)


def _find_module(name: str) -> _Main:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise NoProgramError(f"{name}: this module cannot be found: {error}") from error
    if spec is None:
        raise NoProgramError(f"{name}: there is no such module, or it has no __main__")
    return _of_spec(spec, argv0=spec.origin or name, folder=os.getcwd())  # noqa: PTH109


def _of_spec(spec: ModuleSpec, *, argv0: str, folder: str) -> _Main:
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise NoProgramError(f"{spec.name}: there is no Python code to run")
    names = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }
    return _Main(code, names, argv0, folder)
