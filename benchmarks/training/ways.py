"""The ways to load that are compared: who takes part, and with which settings. Pure.

    program   torch's DataLoader over data sets of LMDB: as people write it over py-lmdb, the same
              over lmdbio.open, and over lmdbio.torch's data sets
    loader    lmdbio.torch.Loader, as it comes
    fixed     the same, told how many threads, or processes, to use
    peer      other formats and loaders, over the same records

A further setting of the Loader is a further entry of ``_fixed``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LOADER", "Way", "chosen", "usual_threads", "ways"]

LOADER = "loader"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to load.

    Attributes:
        name, title: in short, and in a table.
        kind: of the function that makes it (``loaders``, ``peers``).
        group: see above.
        needs: module that it needs; "" for none but torch.
        words: keywords for ``lmdbio.torch.Loader``.
        form: of the files that it reads (``forms``).
        judged: it is one of those that the Loader is held against.
    """

    name: str
    title: str
    kind: str
    group: str
    needs: str = ""
    words: Mapping[str, int] = field(default_factory=dict)
    form: str = "lmdb"
    judged: bool = False


def _program(name: str, title: str, needs: str, *, judged: bool = True) -> Way:
    return Way(name, f"DataLoader over {title}", name, "program", needs, judged=judged)


PROGRAMS = (
    _program("lmdb", "py-lmdb", "lmdb"),
    _program("open", "lmdbio.open", "lmdbio"),
    _program("dataset", "lmdbio.torch.Dataset", "lmdbio.torch"),
    _program("iterable", "lmdbio.torch.IterableDataset", "lmdbio.torch", judged=False),
)
PEERS = (
    Way("files", "DataLoader over plain files", "files", "peer", "", form="files"),
    Way("webdataset", "WebDataset", "webdataset", "peer", "webdataset", form="tars"),
    Way("streaming", "MosaicML Streaming", "streaming", "peer", "streaming", form="mds"),
    Way("litdata", "LitData", "litdata", "peer", "litdata", form="litdata"),
    Way("grain", "Grain over ArrayRecord", "grain", "peer", "grain", form="arrayrecord"),
    Way("spdl", "SPDL over py-lmdb", "spdl", "peer", "spdl.pipeline"),
    Way("datasets", "Hugging Face datasets", "datasets", "peer", "datasets", form="arrow"),
)


def _fixed(word: str, count: int) -> Way:
    plain = word if count != 1 else {"processes": "process"}.get(word, word[:-1])
    return Way(f"{LOADER}-{word[0]}{count}", f"Loader, {count} {plain}", LOADER, "fixed",
               "lmdbio.torch", {word: count}, judged=True)  # fmt: skip


def usual_threads(cores: int) -> tuple[int, ...]:
    """Return the numbers of threads that are told to the Loader, unless somebody says others."""
    return tuple(sorted({1, 2, 4, cores} if cores <= 4 else {1, 4, cores}))


def ways(threads: Sequence[int], processes: Sequence[int]) -> list[Way]:
    """Return everybody, in the order in which they are shown.

    Args:
        threads, processes: numbers that a Loader is told, each alone.
    """
    fixed = [("threads", n) for n in threads] + [("processes", n) for n in processes]
    loader = Way(LOADER, "lmdbio.torch.Loader", LOADER, LOADER, "lmdbio.torch")
    return [*PROGRAMS, loader, *(_fixed(word, n) for word, n in fixed), *PEERS]


def chosen(all_ways: Sequence[Way], text: str) -> list[Way]:
    """Return those that a list with commas names: names, "ours", "peers", "all".

    Raises:
        ValueError: nobody is called so.
    """
    groups: dict[str, Callable[[Way], Any]] = {
        "all": lambda way: True,
        "ours": lambda way: way.group != "peer",
        "peers": lambda way: way.group == "peer",
    }
    names = {way.name for way in all_ways}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in names and word not in groups:
            raise ValueError(f"{word!r}: there are {', '.join((*groups, *sorted(names)))}")
    return [
        way
        for way in all_ways
        if any(word == way.name or (word in groups and groups[word](way)) for word in words)
    ]
