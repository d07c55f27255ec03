"""Say in words that the compiled extension is not there: loaded when it could not be."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

EXTENSION = "lmdbio._core._lmdbio"

if find_spec(EXTENSION) is None:
    _folder = Path(__file__).resolve().parents[2]
    # Python started in a clone imports the package there, whatever pip has installed elsewhere.
    if (_folder / "csrc").is_dir():
        _text = (
            f"{_folder} is the source folder of lmdbio, without its compiled part: start Python "
            "in another folder, or compile it here: pip install -e . (or make)"
        )
    else:
        _text = f"{_folder}: lmdbio lacks its compiled part here; install it again"
    raise ImportError(_text, name=EXTENSION)
