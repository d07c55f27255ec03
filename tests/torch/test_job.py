"""Whether the ranks of a job cache together: the Loader's words and the job's size decide alone.

Method: a table of words, each with what it comes to beside a group of several ranks, without one,
and where ``comm`` names the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.torch import Loader, Passes
from lmdbio.torch.job import JobGroup, LoaderWords, Sharing, choose_sharing, find_group

GROUP, OTHER = "the group", "another group"
JOB = JobGroup(GROUP, "", is_one_machine=False)
HERE = JobGroup(GROUP, "", is_one_machine=True)
NONE_YET = JobGroup(None, "no group yet")
WORDS = LoaderWords("path", "memory=8G")
TOGETHER = Sharing(GROUP, True, is_given=False)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[lmdbio.Records]:
    with lmdb.open(str(tmp_path / "db")) as env, env.begin(write=True) as txn:
        txn.put(b"0", b"value")
    with lmdbio.Records(tmp_path / "db") as records:
        yield records


@pytest.mark.parametrize(("words", "job", "sharing"), [
    ({}, JOB, TOGETHER),
    ({}, HERE, TOGETHER),
    ({"source": ["a", "b"]}, JOB, TOGETHER),
    ({"options": {"db": "train", "memory_bytes_max": "1G", "layout": "lsun"}}, JOB, TOGETHER),
    ({"threads": 3, "processes": 0}, JOB, TOGETHER),
    ({"threads": 0, "processes": 2}, JOB, TOGETHER),
    ({"cache": "auto"}, JOB, TOGETHER),
    ({"cache": "auto"}, HERE, Sharing()),
    ({"cache": "auto", "keys": True}, HERE, Sharing()),
    ({"cache": None}, JOB, Sharing()),
    ({"cache": None, "comm": OTHER}, JOB, Sharing(OTHER)),
    ({"comm": False}, JOB, Sharing()),
    ({"comm": False, "keys": True}, JOB, Sharing()),
    ({"comm": OTHER}, JOB, Sharing(OTHER, True)),
    ({"comm": OTHER}, NONE_YET, Sharing(OTHER, True)),
    ({"comm": OTHER, "processes": 4, "options": {"layout": "auto", "mode": "auto"}}, JOB,
     Sharing(OTHER, True)),
    ({}, JobGroup(), Sharing()),
    ({"keys": True}, JobGroup(), Sharing()),
    ({}, NONE_YET, Sharing(why="the ranks cache nothing together: no group yet")),
    ({"keys": True}, NONE_YET, Sharing(why="the ranks cache nothing together: no group yet")),
], ids=str)  # fmt: skip
def test_the_ranks_that_cache_together(
    words: dict[str, Any], job: JobGroup, sharing: Sharing
) -> None:
    assert choose_sharing(WORDS._replace(**words), job) == sharing


#: Words that a Reader does not go with, and what says so.
CONFLICTS: list[tuple[dict[str, Any], str]] = [
    ({"keys": True}, "keys=True"),
    ({"assignment": "local"}, "assignment='strided'"),
    ({"shuffle": lmdbio.Shuffle.windows(8, 4)}, "shuffle=True or False"),
    ({"shuffle": Passes(9)}, "no sampler"),
    ({"options": {"readahead": False}}, "has no readahead; it has check, db"),
    ({"options": {"locate": "scan", "engine": "pread"}}, "has no engine, locate; it has"),
]


@pytest.mark.parametrize(("words", "why"), CONFLICTS, ids=str)
def test_words_that_a_shared_reader_does_not_go_with(words: dict[str, Any], why: str) -> None:
    """They leave each process to itself; beside ``comm=`` they are an error."""
    asked = WORDS._replace(**words)
    for job in (JOB, HERE):
        found = choose_sharing(asked, job)
        assert found.comm is None and not found.is_joint
        assert found.why.startswith("the ranks cache nothing together: ") and why in found.why
    with pytest.raises(ValueError, match=r"cache= with comm=: .*ReaderLoader"):
        choose_sharing(asked._replace(comm=OTHER), JOB)


@pytest.mark.parametrize(("words", "why"), [
    ({"rank": 0}, "rank= and ranks="),
    ({"threads": 0}, "threads=0"), ({"threads": 0, "processes": 0}, "threads=0"),
    ({"options": {"layout": "auto"}}, "layout='auto'"),
    ({"options": {"layout": "ocr"}}, "layout='ocr'"),
], ids=str)  # fmt: skip
def test_words_for_which_each_process_is_by_itself_unless_comm_is_given(
    words: dict[str, Any], why: str
) -> None:
    asked = WORDS._replace(**words)
    found = choose_sharing(asked, JOB)
    assert not found.is_joint and why in found.why
    assert choose_sharing(asked._replace(comm=OTHER), JOB) == Sharing(OTHER, True)


def test_open_records_are_not_shared(records: lmdbio.Records) -> None:
    asked = WORDS._replace(source=records)
    assert "open Records" in choose_sharing(asked, JOB).why
    with pytest.raises(ValueError, match="open Records"):
        choose_sharing(asked._replace(comm=OTHER), JOB)


def test_what_is_no_communicator_and_no_function_is_refused(records: lmdbio.Records) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"comm": True}, "None or False, not True"),
        ({"comm": "world", "cache": "memory=1M"}, "None or False, not 'world'"),
        ({"transform": "decode"}, "transform= is a function, not 'decode'"),
        ({"collate_fn": 3}, "collate_fn= is a function, not 3"),
    ]
    for words, text in wrong:
        with pytest.raises(TypeError, match=text):
            Loader(records.path, **words)


@pytest.mark.parametrize(("variables", "absence"), [
    ({}, ""), ({"WORLD_SIZE": "1"}, ""), ({"WORLD_SIZE": "many"}, ""),
    ({"WORLD_SIZE": "4"}, "init_process_group"),
    ({"WORLD_SIZE": "4", "RANK": "3"}, "train_dataloader()"),
])  # fmt: skip
def test_ranks_that_have_not_met(
    variables: dict[str, str], absence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    found = find_group()
    assert found.group is None and absence in found.absence
    assert bool(absence) == bool(found.absence)
