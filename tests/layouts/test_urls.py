"""Samples of a URL.

Goal: they are those of the file, found by few requests, with and without a provenance file there.

Method: a server in this process serves files as the programs write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio.cli import cli
from lmdbio.convert.convert import convert
from tests.support.programs import PROGRAMS, Program
from tests.support.range_server import RangeServer

COUNT = 2000
SERVED = "/set/data.mdb"


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize(
    "program",
    [p for p in PROGRAMS if p.name in ("mmocr", "fairchem", "ase")],
    ids=lambda p: p.name,
)
def test_samples_of_a_url_are_those_of_the_file(
    program: Program, converted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "data.lmdb"
    program.write(path, COUNT)
    samples = program.read(path)
    file = path / "data.mdb" if path.is_dir() else path
    served = {SERVED: file.read_bytes()}
    if converted:
        served[SERVED + ".prov"] = Path(convert(path).sidecar).read_bytes()
    with RangeServer(served) as server:
        url = server.url(SERVED)
        with lmdbio.Records(url, layout="auto") as records:
            assert records.located_by == ("provenance" if converted else "scan")
            assert records.layout == program.layout and len(records) == COUNT
            assert list(records.values(range(0, COUNT, 7))) == samples[::7]
            assert records[-1] == samples[-1]
        asked = [len(server.asked)]
        for layout in (None, "auto"):
            lmdbio.Records(url, layout=layout).close()
            asked.append(len(server.asked))
        if program.name != "ase" or not converted:  # there all keys are read, for rows are gone
            assert asked[2] - asked[1] < asked[1] - asked[0] + 30
        told = CliRunner().invoke(cli, ["info", url], catch_exceptions=False).output
        assert f'layout="{program.layout}"' in told and f"{COUNT:,} samples" in told
