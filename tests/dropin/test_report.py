"""Advice follows from counts and measurements, and is silent where these say nothing."""

from __future__ import annotations

import pytest

from lmdbio.dropin.monitor import FileReport, Way, advise
from lmdbio.observe.ledger import Facts, FileState, Line
from lmdbio.observe.stats import Stats

SINGLY = Stats(records=1000, requests=1000)
IN_BLOCKS = Stats(records=1000, requests=20)
WALKED = Stats(records=10, requests=10, page_requests=7, page_bytes=28672)


def file(
    surface: str,
    stats: Stats,
    *,
    located_by: str = "",
    cached: int | None = 0,
    is_unwritten: bool = False,
    measured: str = "",
) -> FileReport:
    way = Way(Facts(surface, "f", "pread", located_by), Line(1, 1.0, stats))
    before = FileState(0.0, 1000, cached)
    return FileReport("f", (way,), before, before, is_unwritten, "THE GAIN", measured)


@pytest.mark.parametrize(
    ("given", "pieces"),
    [
        (file("lmdb.open", Stats(), is_unwritten=True), ["readonly=True", "THE GAIN."]),
        (
            file("lmdb.open", Stats(), is_unwritten=True, measured="MEASURED"),
            ["THE GAIN; MEASURED."],
        ),
        (file("lmdb.open", Stats()), []),
        (
            file("lmdbio.open", SINGLY),
            ["1,000 records took 1,000 requests", "lmdbio tune measures"],
        ),
        (file("lmdbio.open", SINGLY, measured="MEASURED"), ["in flight (MEASURED)"]),
        (file("lmdbio.open", SINGLY, cached=None), ["1,000 records took"]),
        (file("lmdbio.open", SINGLY, cached=1000), ["The page cache had all of it"]),
        (file("lmdbio.open", IN_BLOCKS), []),
        (file("lmdbio.open", Stats(records=10, requests=10)), []),
        (file("Records", SINGLY, located_by="provenance"), []),
        (
            file("Records", WALKED, located_by="scan"),
            ["28,672 bytes in 7 requests: lmdbio convert"],
        ),
        (file("Reader", Stats(), located_by="provenance", cached=1000), []),
    ],
)
def test_advice(given: FileReport, pieces: list[str]) -> None:
    told = advise(given)
    assert bool(told) == bool(pieces)
    for piece in pieces:
        assert piece in " ".join(told)


def test_advice_of_several_ways_is_given_once() -> None:
    ways = file("lmdbio.open", SINGLY, cached=1000).ways
    several = FileReport("f", ways * 3, FileState(0.0, 10, 10), None, False, "", "")
    assert len(advise(several)) == 1
