"""Words: keywords that users of torch's DataLoader write, and what stands for each here."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

__all__ = ["integer", "refuse_foreign"]

_THREADS = "it finds its workers itself: write threads=4 or processes=4 to bound them"
_ORDER = (
    "it has an order of its own: shuffle=, or, for one that you make, DataLoader(Dataset(source), "
    "sampler=...)"
)
_BEGUN = "its processes begin as multiprocessing says (set_start_method), and stay"
#: Words of a Loader's that an IterableDataset has not.
_OF_LOADER = ("decode", "threads", "processes", "pin_memory", "cache", "assignment")
#: Keywords of DataLoader that a Loader has no use for.
_OF_DATALOADER = {
    "num_workers": _THREADS,
    "sampler": _ORDER,
    "batch_sampler": _ORDER,
    "prefetch_factor": "batches that wait to be asked for are ahead=2",
    "generator": "orders, and what transforms draw, follow from seed=",
    "multiprocessing_context": _BEGUN,
    "persistent_workers": _BEGUN,
    "timeout": "a worker that is stopped, or gone, is an error by itself",
    "in_order": "its batches come in order, always",
    "pin_memory_device": "write pin_memory=True",
    "dataset": "it is given the path, or Records, as its first argument",
}


def integer(name: str, value: Any) -> int:
    """Return an argument as an int.

    Args:
        name: name of the argument.
        value: value that the caller gave.

    Raises:
        TypeError: it is no integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def refuse_foreign(name: str, options: Iterable[str], own: type | None = None) -> None:
    """Raise TypeError for keywords that neither a class nor ``Records`` has.

    Args:
        name: the class that was called.
        options: keywords that it does not have itself.
        own: class whose keywords a misspelt one may be meant for; None: it has none.
    """
    from lmdbio.records.records import Records

    known = set(inspect.signature(Records.__init__).parameters) - {"self", "path"}
    for word in options:
        if word in known:
            continue
        if name == "Loader" and word in _OF_DATALOADER:
            raise TypeError(f"{name} has no {word}=: {_OF_DATALOADER[word]}")
        if word in _OF_DATALOADER:
            raise TypeError(f"{name} has no {word}=: give it to torch's DataLoader over this one")
        if word in _OF_LOADER:
            raise TypeError(f"{name} has no {word}=: a Loader has")
        if own is not None:
            known |= set(inspect.signature(own).parameters) - {"options"}
        close = get_close_matches(word, known, 1)
        hint = f": did you mean {close[0]}=?" if close else f"; it has {', '.join(sorted(known))}"
        raise TypeError(f"{name} has no {word}={hint}")
