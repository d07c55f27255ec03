"""Programs beside the tests, as modules: several of them are called ``run.py``."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.support import TESTS


def load(folder: str) -> ModuleType:
    """``run.py`` of a folder of tests/."""
    path = TESTS / folder / "run.py"
    spec = importlib.util.spec_from_file_location(f"lmdbio_{folder}_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
