"""The papers' figures, and what answers each: ``figures.toml`` as values. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Verdict
from lmdbio.page.table import Table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["KINDS", "PAPERS", "Claim", "Result", "answers_of", "read_claims"]

FILE = Path(__file__).with_name("figures.toml")
PAPERS = {
    "lmdbio": "LMDBIO: Pumma, Si, Feng, Balaji, ACM TOPC 2019",
    "async_io": "Asynchronous grouped I/O: Lee et al.",
    "deepio": "DeepIO: Zhu et al.",
    "locality_aware": "Locality-aware loading: Yang, Cong",
    "hdmlp": "HDMLP, clairvoyant prefetching: Boehringer",
}
#: Words for what answers a figure.
KINDS = {
    "computed": "by arithmetic",
    "simulated": "by the simulator",
    "measured": "by runs",
    "drawing": "a drawing",
    "no": "not here",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of a paper.

    Attributes:
        paper: in PAPERS.
        label: of the figure, as the paper has it.
        shows: in a few words.
        claims: of the paper, with its numbers.
        cases: of tests/papers, which check numbers of it.
        kind: in KINDS.
        here: what answers it, or why nothing does.
        results: names of results that answer it.
    """

    paper: str
    label: str
    shows: str
    claims: str
    cases: tuple[str, ...]
    kind: str
    here: str
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of runs.

    Attributes:
        name: by which figures name it.
        run: that its numbers come from.
        title: above its table.
        answer: in a sentence, with its main numbers.
        table: all of them.
        verdicts: on what must hold.
        picture: of them, as HTML; "" for none.
    """

    name: str
    run: str
    title: str
    answer: str
    table: Table
    verdicts: tuple[Verdict, ...] = ()
    picture: str = ""


def read_claims() -> list[Claim]:
    """Return all figures, in the order of the file.

    Raises:
        ValueError: one is not as it should be; names it.
    """
    found = []
    with FILE.open("rb") as file:
        for one in tomllib.load(file)["figure"]:
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else " ".join(value.split())
                for name, value in one.items()
            }
            claim = Claim(**values)
            where = f"{FILE.name}: {claim.paper} {claim.label}"
            if claim.paper not in PAPERS or claim.kind not in KINDS:
                raise ValueError(f"{where}: no such paper or kind")
            if (claim.kind in ("measured", "simulated")) != bool(claim.results):
                raise ValueError(f"{where}: its kind and its results differ")
            found.append(claim)
    return found


def answers_of(claim: Claim, results: Mapping[str, Result], cases: Mapping[str, str]) -> list[str]:
    """Return what answers a figure, in sentences.

    Args:
        results: by name; those of runs that were left out are missing.
        cases: a sentence for each case that was checked.
    """
    told = [cases[name] for name in claim.cases if name in cases]
    for name in claim.results:
        if name in results:
            told.append(f"{results[name].answer} [{results[name].run}]")
        else:
            told.append(f"{name}: its run was left out")
    return told or [claim.here]
