"""All cases: which way of loading works under which trainer, in how many processes, and how.

Each trainer's defaults are tried, and what the guide says to write where they do not do.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.trainers.case import Case

__all__ = ["CASES"]

STATEFUL = ("StatefulDataLoader of BatchSampler", "StatefulDataLoader of IterableDataset")
SAMPLED = ("BatchSampler", STATEFUL[0])
ITERATED = ("IterableDataset", STATEFUL[1])
WAYS = ("Loader", "BatchSampler", "IterableDataset", *STATEFUL)
STOPS = ("", "middle", "last batch", "end")
#: The words about a sampler that a trainer wants to have replaced.
REPLACED = "use_distributed_sampler=False"
#: Those about a loader that a trainer makes anew always.
REMADE = r"\(predict, overfit_batches\) write"
#: So many samples that the last step is not full, for any number of processes here.
UNEVEN = 50


def _said(way: str, stop: str) -> str:
    """Return what is needed that the iteration after an epoch's last batch is its empty rest."""
    return "said" if (way, stop) == (STATEFUL[1], "last batch") else ""


def _lightning() -> Iterator[Case]:
    program = "lightning_fit"
    for way in WAYS:
        for stop in STOPS:
            # Lightning keeps the states of loaders that have one; others keep theirs in its hooks.
            hooks = "hooks" if stop and way in ("BatchSampler", "IterableDataset") else ""
            # It says no epoch to a data set, and loads no state that was saved at an epoch's end.
            said = "said" if stop and way == STATEFUL[1] else ""
            yield Case(program, 1, way, hooks or said, stop)
        if way != "Loader":
            yield from (Case(program, 1, way, workers=workers) for workers in (1, 2))
    yield from (Case(program, 1, way, "said") for way in ITERATED)
    for way in WAYS:
        own = "own sampler" if way in SAMPLED else ""
        yield Case(program, 2, way, own, count=UNEVEN)
        for stop in ("", "middle", "end"):
            hooks = "hooks" if stop and way in ("BatchSampler", "IterableDataset") else ""
            said = "said" if stop and way == STATEFUL[1] else ""
            yield Case(program, 2, way, ", ".join(filter(None, (own, hooks, said))), stop)
    yield from (Case(program, 2, way, workers=2) for way in ITERATED)
    yield from (Case(program, 2, way, expects=REPLACED) for way in SAMPLED)
    yield from (Case(program, 2, way, "own sampler, spawn") for way in ("Loader", *SAMPLED[:1]))
    yield Case(program, 2, "Loader", "spawn", "middle")
    for processes in (1, 2):
        for way in WAYS:
            given = "own sampler, made by the model" if way in SAMPLED else "made by the model"
            yield Case(program, processes, way, given)
        yield Case(program, processes, "Loader", "made by the model", "middle")
        for stop in ("", "middle"):
            yield Case(program, processes, "Loader", "made by the model, cached", stop)
        yield Case(program, processes, "IterableDataset", "predict")
        for given in ("predict", "overfit") if processes == 1 else ("predict",):
            yield Case(program, processes, "Loader", given, expects=REMADE)


def _fabric() -> Iterator[Case]:
    for processes in (1, 2, 3):
        for way in WAYS:
            given = "own sampler" if way in SAMPLED else ""
            for stop in STOPS if processes == 1 else ("", "middle"):
                yield Case("fabric_loop", processes, way, given or _said(way, stop), stop)
            yield Case("fabric_loop", processes, way, given, count=UNEVEN)
        yield Case("fabric_loop", processes, "Loader", "itself", "middle")
        expects = "exact" if processes == 1 else REPLACED
        yield from (Case("fabric_loop", processes, way, expects=expects) for way in SAMPLED)


def _accelerate() -> Iterator[Case]:
    program = "accelerate_loop"
    for processes in (1, 2, 3):
        whole = processes > 1
        for way in WAYS:
            dealt = whole and way != "Loader"
            for stop in ("", "middle", "end"):
                if not (stop and way in STATEFUL):  # prepare() makes a plain DataLoader of it
                    yield Case(program, processes, way, "", stop, whole=dealt)
            yield Case(program, processes, way, "skipped", "middle", whole=dealt)
            yield Case(
                program,
                processes,
                way,
                count=UNEVEN,
                whole=dealt,
                expects="once" if dealt else "exact",
            )
            yield Case(program, processes, way, "itself", "middle")
            if way == "Loader":
                for stop in ("", "middle"):
                    yield Case(program, processes, way, "cached", stop)
            if dealt:
                yield Case(program, processes, way, expects="Accelerate")


def _transformers() -> Iterator[Case]:
    program = "transformers_trainer"
    for processes in (1, 2):
        for stop in ("", "middle", "end"):
            yield Case(program, processes, "Loader", "", stop)
            yield Case(program, processes, "Dataset", "", stop, expects="once")
            yield Case(program, processes, "BatchSampler", "said", stop)
            yield Case(program, processes, "IterableDataset", "said", stop)
            yield Case(
                program, processes, "BatchSampler", "prepared, said", stop, whole=processes > 1
            )
        yield from (Case(program, processes, way) for way in ("BatchSampler", "IterableDataset"))
        yield Case(program, processes, "Loader", count=UNEVEN)
        yield Case(program, processes, "Dataset", count=UNEVEN, expects="once")
    yield Case(program, 2, "BatchSampler", "prepared", expects="Accelerate")


def _plain() -> Iterator[Case]:
    for processes in (1, 2, 3):
        for way in WAYS:
            yield Case("plain_loop", processes, way, count=UNEVEN)
            if way == "Loader":
                yield Case("plain_loop", processes, way, "cached", "middle", count=UNEVEN)
            for stop in STOPS:
                yield Case("plain_loop", processes, way, _said(way, stop), stop)
                if way in ITERATED and not _said(way, stop):
                    yield Case("plain_loop", processes, way, "said", stop)
    for stop in STOPS:
        for way in WAYS[1:]:
            yield Case("plain_loop", 1, way, _said(way, stop), stop, workers=2)
        for way in WAYS[:3]:
            yield Case("plain_loop", 1, way, "nodes", stop)


CASES = (*_plain(), *_lightning(), *_fabric(), *_accelerate(), *_transformers())
