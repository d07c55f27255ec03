"""The layouts that are found by themselves, or by name.

    name         program                             keys of samples       beside them
    ase          ase-db-backends, fairchem v2        str(id) from 1 on     nextid, deleted_ids,
                                                                           metadata
    ocr          mmocr, parseq, deep-text-...        image-%09d from 1 on, num-samples
                                                     label-%09d
    textzoom     TextZoom, text super-resolution     image_hr-%09d from    num-samples
                                                     1 on, image_lr-%09d,
                                                     label-%09d
    ocp          fairchem v1 (OCP), MatSciML         str(i)                length
    tape         TAPE, and others of proteins        str(i)                num_examples
    folder2lmdb  Efficient-PyTorch                   str(i)                __keys__, __len__
    tensorpack   tensorpack's LMDBSerializer         %08d                  __keys__
    deepmd       deepmd-kit                          %012d                 __metadata__
    lsun         LSUN, torchvision                   40 hexadecimal digits
    caffe        Caffe: values are Datum             %08d, %08d_name, ...
    numbers      Uni-Mol and many others             str(i) from 0 or 1    a few other keys
                                                     on; %08d beside others
    names        mmengine, BasicSR                   file names

Several records are a sample of ``ocr`` and ``textzoom``. ``names``, and ``unimol``, which is
``numbers`` from 0 on, are found by name alone: any keys are names, and such numbers are what they
are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lmdbio.errors import IncompatibleError
from lmdbio.inside.wire import is_datum
from lmdbio.layouts.aselmdb import Aselmdb
from lmdbio.layouts.layout import Keys, Layout, Selection
from lmdbio.layouts.numbered import Numbered, Numbers
from lmdbio.system.frozen import dataclass

__all__ = ["AUTO", "KNOWN", "find_layout", "layout_named"]

#: The name that finds a layout by itself.
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Whole:
    """A layout of which each record is a sample, in key order; known by how its keys look.

    Attributes:
        name: name of the layout.
        wants: words for how the first and the last key look.
        key: regular expression for the first and the last key.
        value: whether the first value is one of this layout; None: any is.
    """

    name: str
    wants: str = "which takes any keys"
    key: bytes = b".*"
    value: Callable[[bytes], bool] | None = None

    def find(self, keys: Keys) -> Selection | None:
        """Return the samples of a database; None: it has another layout."""
        pattern = re.compile(self.key, re.DOTALL)
        if not keys.count or not (pattern.fullmatch(keys.first) and pattern.fullmatch(keys.last)):
            return None
        if self.value is not None and not self.value(keys.value(keys.first) or b""):
            return None
        return Selection(self.name, keys.count)


# --- the layouts ---------------------------------------------------------------------------

#: Those that are found by themselves, in the order in which they are tried.
_FOUND: tuple[Layout, ...] = (
    Aselmdb(),
    Numbered(
        "ocr",
        columns=(Numbers(b"image-", 9), Numbers(b"label-", 9)),
        marks=(b"num-samples",),
        firsts=(1,),
        count_key=b"num-samples",
    ),
    Numbered(
        "textzoom",
        columns=(Numbers(b"image_hr-", 9), Numbers(b"image_lr-", 9), Numbers(b"label-", 9)),
        marks=(b"num-samples",),
        firsts=(1,),
        count_key=b"num-samples",
    ),
    Numbered("ocp", marks=(b"length",), others=(b"metadata",), count_key=b"length"),
    Numbered("tape", marks=(b"num_examples",), count_key=b"num_examples"),
    Numbered("folder2lmdb", marks=(b"__keys__",), others=(b"__len__",), count_key=b"__len__"),
    Numbered("tensorpack", columns=(Numbers(width=8),), marks=(b"__keys__",)),
    Numbered("deepmd", columns=(Numbers(width=12),), marks=(b"__metadata__",)),
    Whole("lsun", "whose keys are 40 hexadecimal digits", rb"[0-9a-f]{40}"),
    Whole(
        "caffe",
        "whose keys begin with 5 to 10 digits, and whose values are Datum",
        rb"[0-9]{5,10}(_.*)?",
        is_datum,
    ),
    Numbered("numbers", columns=(), firsts=(0, 1)),
)
_ASKED_FOR: tuple[Layout, ...] = (Numbered("unimol"), Whole("names"))

#: All layouts, by name.
KNOWN: dict[str, Layout] = {one.name: one for one in (*_FOUND, *_ASKED_FOR)}


def layout_named(layout: str | Layout) -> Layout | None:
    """Return a layout by its name, or as it is; None: it is to be found.

    Raises:
        ValueError: no layout has such a name.
        TypeError: it is no layout.
    """
    if isinstance(layout, str):
        if layout != AUTO and layout not in KNOWN:
            known = ", ".join(map(repr, (AUTO, *KNOWN)))
            raise ValueError(f"layout must be None, one of {known}, or a Layout, not {layout!r}")
        return KNOWN.get(layout)
    if not callable(getattr(layout, "find", None)):
        kind = type(layout).__name__
        raise TypeError(f"layout must be a name, or a Layout with name and find(), not {kind}")
    return layout


def find_layout(keys: Keys, layout: str | Layout = AUTO) -> Selection | None:
    """Find the samples of a database by a look at a few of its keys.

    Args:
        layout: a name, a layout, or "auto": the first one that is there.

    Returns:
        None: "auto" has found none.

    Raises:
        IncompatibleError: the database has another layout than the one that was asked for.
        ValueError, TypeError: as ``layout_named``.
    """
    wanted = layout_named(layout)
    if wanted is None:
        return next((found for one in _FOUND if (found := one.find(keys)) is not None), None)
    found = wanted.find(keys)
    if found is None:
        wants = getattr(wanted, "wants", "")
        raise IncompatibleError(
            f"{keys.path}: has not the layout {wanted.name!r}{', ' if wants else ''}{wants}; its "
            f"first key is {keys.first!r}, its last one {keys.last!r}; lmdbio info names the "
            "layout that it finds"
        )
    return found
