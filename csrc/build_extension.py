"""Describes the extension to cffi: the headers of ``csrc/`` are the binding's only declarations.

Each room's header is both what C includes and what Python may call, so the two cannot drift
apart. Declarations that cffi cannot digest (inline functions, attributes), and those that only
other rooms of ``csrc/`` use, stand between the comments ``cdef: skip`` and ``cdef: resume``.
"""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: The C that makes Python's objects: beside the bindings, since csrc/ knows no Python.
GLUE = [
    ROOT / "lmdbio/_core/glue" / name
    for name in (
        "arguments.h",
        "lookup.h",
        "items.h",
        "values.h",
        "monitor.h",
        "transaction.h",
        "position.h",
        "owner.h",
        "brief.h",
    )
]

#: The bodies of those that are long, and the headers that no other includes: one translation unit
#: with what cffi makes, which the compiler inlines as if it were one file: a search by key
#: goes through four of them. The last one is about what cffi makes after it.
USED = (
    "glue/lookup.c",
    "glue/position.c",
    "glue/items.c",
    "glue/values.c",
    "glue/transaction.c",
    "glue/owner.h",
    "glue/brief.h",
)

#: Functions of Python's that C calls (lmdbio/_core/remote.py): a ``lio_remote_read``.
CALLED = """
extern "Python" int lio_python_read(void *, const lio_remote_call *, uint64_t, uint64_t, uint8_t *,
                                    uint64_t *, lio_error *);
"""

#: A function that closes an object: its name, and the type of the object.
CLOSES = re.compile(r"^void lio_(\w+_(?:close|free|drop))\((\w+) \*\w+\);", re.MULTILINE)

SKIPPED = re.compile(r"/\* cdef: skip \*/.*?/\* cdef: resume \*/", re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def declarations(header: Path) -> str:
    """The part of a header that cffi is told about."""
    text = SKIPPED.sub("", header.read_text(encoding="utf-8"))
    return PREPROCESSOR.sub("", text)


def rooms() -> list[Path]:
    """The headers in the order in which ``lmdbio.h`` includes them."""
    text = (HERE / "lmdbio.h").read_text(encoding="utf-8")
    return [HERE / name for name in re.findall(r'#include "(\w+\.h)"', text)]


def cells() -> tuple[str, str]:
    """Return the declarations and the definitions of what closes cells (glue/owner.h)."""
    closes = [found for room in rooms() for found in CLOSES.findall(declarations(room))]
    heads = [f"static void lio_cell_{name}({kind} **cell)" for name, kind in closes]
    bodies = [
        f"{{ {kind} *held = *cell; *cell = NULL; lio_{name}(held); }}" for name, kind in closes
    ]
    return (
        "".join(f"{head};\n" for head in heads),
        "".join(f"{head} {body}\n" for head, body in zip(heads, bodies, strict=True)),
    )


def builder() -> FFI:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    ffi = FFI()
    for header in [*rooms(), *GLUE]:
        ffi.cdef(declarations(header))
    ffi.cdef(CALLED)
    declared, defined = cells()
    ffi.cdef(declared)
    ffi.set_source(
        "lmdbio._core._lmdbio",
        "".join(f'#include "{header}"\n' for header in ("lmdbio.h", *USED)) + defined,
        # Relative to the folder of setup.py, where a build always runs.
        sources=sorted(os.path.relpath(path, ROOT) for path in HERE.glob("*.c")),
        include_dirs=["csrc", "lmdbio/_core"],
        depends=sorted(
            os.path.relpath(path, ROOT)
            for path in [*HERE.glob("*.h"), *GLUE[0].parent.glob("*.[ch]")]
        ),
        extra_compile_args=[
            "-std=c11",
            "-O2",
            "-fvisibility=hidden",
            "-pthread",
            *os.environ.get("LMDBIO_CFLAGS", "").split(),
        ],
        extra_link_args=["-pthread", *os.environ.get("LMDBIO_LDFLAGS", "").split()],
        define_macros=[("_GNU_SOURCE", "1")]
        + ([] if free_threaded else [("Py_LIMITED_API", "0x030a0000")]),
        py_limited_api=not free_threaded,
    )
    return ffi


ffi = builder()

if __name__ == "__main__":
    ffi.compile(tmpdir=str(ROOT), verbose=True)
