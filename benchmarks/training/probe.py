"""Finds what this Python can import and the Loader can be told, and how long a step must be.

python -m benchmarks.training.probe [MODULE ...]            the answer is JSON
python -m benchmarks.training.probe --step WORKLOAD
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import sys
from typing import Any

import torch

from benchmarks.training.step import Step
from benchmarks.training.workloads import WORKLOADS
from lmdbio.torch import Loader

WORDS_MAX = 120


def reason(module: str) -> str:
    """Return why a module cannot be imported; "" if it can."""
    try:
        # Some greet their users.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"
    except Exception as error:  # a library that does not fit another one fails anyhow
        return f"{module} cannot be imported: {str(error)[:WORDS_MAX]}"
    return ""


def main(words: list[str]) -> dict[str, Any]:
    if words[:1] == ["--step"]:
        return {"repeats": Step.repeats(WORKLOADS[words[1]])}
    return {
        "modules": {module: reason(module) for module in words},
        "loader_words": list(inspect.signature(Loader).parameters),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
