"""The process of one client over one package: ``worker.py MODULE PATH``, told what to do by lines.

Goal: the client is imported after lmdbio has taken py-lmdb's place, or has not. Answers go to what
was the standard output; what the client prints goes to the errors.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from typing import Any

from tests.clients.client import digest, end


def environments() -> list[str]:
    """Return whose environments this process holds."""
    kinds = {type(one) for one in gc.get_objects()}
    return sorted(kind.__qualname__ for kind in kinds if "lmdbio.dropin" in str(kind.__module__))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, path = sys.argv[1:]
    client = importlib.import_module(name)

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    reader = client.opened(path)
    for line in sys.stdin:
        what, *arguments = line.split()
        if what == "who":
            answer([sys.modules["lmdb"].__name__, environments()])
        elif what == "values":
            answer([digest(value) for value in client.epoch(reader)])
        elif what == "odd":
            answer({name: end(call) for name, call in client.odd(reader, path).items()})
        else:
            count = int(arguments[0])
            begin = time.perf_counter()
            for _ in range(count):
                client.epoch(reader)
            answer((time.perf_counter() - begin) / count)


if __name__ == "__main__":
    main()
