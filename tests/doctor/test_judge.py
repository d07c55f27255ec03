"""Findings follow from facts: each from those that say so, and the limit and the next command too.

Method: a table of facts that differ from those of a healthy data set in what a case names; and any
facts at all, by hypothesis.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import cli
from lmdbio.doctor import facts as kinds
from lmdbio.doctor.facts import (
    DataFacts,
    Facts,
    LockFacts,
    MachineFacts,
    ProvenanceFacts,
    SampleFacts,
    TunedFacts,
)
from lmdbio.doctor.judge import diagnose
from lmdbio.machine.storage import Storage
from tests.support import long_run

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

HEALTHY = Facts(
    path="train_lmdb",
    data=DataFacts(10 * GIB, 10 * GIB, 0, 100_000, 4 * MIB),
    sample=SampleFacts(64, 100 * KIB, 200 * KIB, "JPEG", "%08d", 1.0, 0.9),
    storage=Storage(
        file_system="ext4", source="/dev/vda", disk=True, rotational=False,
        readahead_bytes=128 * KIB, direct=True, direct_alignment=512, size_bytes=10 * GIB,
        cached_bytes=0,
    ),
    uring=True,
    locks=LockFacts(True, True, 1, 0, 0),
    machine=MachineFacts(
        32 * GIB, False, 2 * GIB, 16 * GIB, 16 * GIB, 8, 8, None, 4096, 8192, None, None, 65530,
        "4.1", "/usr/bin/mpiexec", "MPICH 4.2",
    ),
    provenance=ProvenanceFacts("good"),
    tuned=TunedFacts("2026-11-27", 2e9, 4e7, 4096),
)  # fmt: skip
CACHED = replace(HEALTHY.storage, cached_bytes=10 * GIB)
TMPFS = replace(HEALTHY.storage, file_system="tmpfs", source=None, disk=False)
NFS = replace(HEALTHY.storage, file_system="nfs4", source="server:/data", disk=False)


def changed(part: str, **values: Any) -> Facts:
    """Return healthy facts but for some of one part."""
    return replace(HEALTHY, **{part: replace(getattr(HEALTHY, part), **values)})


def test_a_healthy_data_set_has_good_findings_alone() -> None:
    found = diagnose(HEALTHY)
    assert {finding.severity for finding in found.findings} == {"good"}
    assert found.limit == (
        "The disk's bandwidth, 1.9 GiB/s measured in order: values are large enough for it."
    )
    assert found.command == "lmdbio bench train_lmdb"


#: Out of order, and larger than what the page cache keeps.
CROWDED = replace(
    changed("sample", ascending=0.5), machine=replace(HEALTHY.machine, cached_bytes_max=GIB)
)


#: facts, topic, severity, words of the finding.
def named(**values: Any) -> Facts:
    """Return healthy facts with those of a transform."""
    return changed("transform", name="t.py:f", **values)


CASES: tuple[tuple[Facts, str, str, str], ...] = (
    (changed("data", file_bytes=9 * GIB), "file", "problem", "It ends 1.0 GiB before"),
    (changed("data", named=["a", "b"], holds_named_only=True), "file", "note", "a, b (--db NAME)"),
    (changed("data", free_bytes=5 * GIB), "free pages", "note", "5.0 GiB within the file, 50%"),
    (changed("sample", median_bytes=3000), "sizes", "note", "a median of 2.9 KiB"),
    (changed("sample", median_bytes=300, largest_bytes=300), "sizes", "note", "all of 300 bytes"),
    (changed("sample", ascending=0.5, adjacent=0.02), "order", "note", "in another order"),
    (changed("sample", ascending=0.5), "order", "note", "are brought to memory first, 5."),
    (CROWDED, "order", "problem", "each of 100,000 records, 10 s at the rate measured"),
    (changed("sample", ascending=0.85), "order", "note", "roughly in the order"),
    (replace(HEALTHY, storage=TMPFS), "storage", "good", "in memory already"),
    (replace(HEALTHY, storage=NFS), "storage", "note", "nfs4 on server:/data, no disk of this"),
    (changed("storage", file_system="overlay", disk=False), "storage", "note", "a volume of its"),
    (changed("storage", rotational=True), "storage", "good", "takes it for a turning one"),
    (replace(HEALTHY, storage=CACHED), "page cache", "good", "it is read out of memory"),
    (changed("machine", available_bytes=GIB), "page cache", "note", "every epoch reads"),
    (changed("data", damage="page 7 is none"), "file", "problem", "damaged: page 7 is none."),
    (changed("storage", direct=False), "O_DIRECT", "note", "has none"),
    (replace(HEALTHY, uring=False), "io_uring", "note", "cannot be had"),
    (changed("locks", is_writable=False), "locks", "note", "py-lmdb wants lock=False"),
    (changed("locks", stale=1), "locks", "problem", "1 reader slot of 1 belongs"),
    (changed("locks", stale=2, readers=3), "locks", "problem", "2 reader slots of 3 belong"),
    (changed("locks", behind=500), "locks", "note", "500 transactions old"),
    (changed("locks", unseen="why"), "locks", "note", "not looked at: why"),
    (changed("provenance", status="absent"), "provenance", "good", "which is soon done"),
    (replace(changed("provenance", status="absent"), data=replace(HEALTHY.data, tree_bytes=GIB)),
     "provenance", "note", "each open walks 1.0 GiB"),
    (changed("provenance", status="stale", reason="txnid differs"), "provenance", "problem",
     "stale: txnid differs"),
    (changed("provenance", status="unproven", reason="a copy", deep_bytes=GIB), "provenance",
     "note", "the next open hashes 1.0 GiB"),
    (replace(HEALTHY, tuned=TunedFacts()), "tuned", "note", "Nobody has measured"),
    (changed("machine", processors=1), "processors", "note", "one of 8 processors"),
    (changed("machine", processors=1, machine_processors=1), "processors", "note", "There is one"),
    (changed("machine", quota=1.5), "processors", "note", "the time of 1.5 of 8"),
    (changed("machine", open_files=256, open_files_hard=256), "limits", "note", "cannot be rai"),
    (changed("machine", open_files=1024), "limits", "note", "1,024 files may be open"),
    (changed("machine", address_bytes=8 * GIB), "limits", "note", "py-lmdb has to"),
    (changed("machine", mappings=1000), "limits", "note", "1,000 mappings"),
    (changed("machine", locked_bytes=64 * KIB), "limits", "note", "64.0 KiB may be locked"),
    (changed("machine", is_grouped=True), "memory", "good", "as its control group allows"),
    (changed("machine", shm_free_bytes=64 * MIB), "/dev/shm", "note", "--shm-size"),
    (changed("machine", shm_free_bytes=64 * MIB, ranks=4), "/dev/shm", "problem", "--shm-size"),
    (changed("machine", shm_free_bytes=GIB), "/dev/shm", "note", "less than a Reader's budget"),
    (changed("machine", mpi4py="", ranks=4), "ranks", "problem", "pip install 'lmdbio[mpi]'"),
    (changed("machine", ranks=4), "ranks", "good", "One of 4 ranks, over MPI"),
    (changed("machine", launcher=""), "ranks", "note", "no mpiexec"),
    (changed("machine", mpi4py=""), "ranks", "good", "one process does all"),
    (changed("machine", mpi4py="4.2"), "ranks", "good", "by mpi4py 4.2 and MPICH 4.2 (/usr"),
    (changed("machine", ranks=8, machines=2, address="10.0.0.5"), "ranks", "good",
     "torchrun has started on 2 machines: they use sockets, and would reach this one at 10.0.0.5"),
    (changed("machine", ranks=8, machines=1, address="127.0.0.1", mpi4py=""), "ranks", "good",
     "on 1 machine: they use sockets"),
    (changed("machine", ranks=8, machines=2, unreachable="127.0.0.1 is"), "ranks", "problem",
     "the others would not reach this one. 127.0.0.1 is"),
    (changed("machine", shm_free_bytes=64 * MIB, ranks=4, machines=2), "/dev/shm", "note", ""),
    (named(error="KeyError: 'x'"), "transform", "problem", "t.py:f raised KeyError: 'x'"),
    (named(), "transform", "note", "t.py:f: there is no record"),
    (named(seconds=2e-4), "transform", "good", "takes 200 us a record; one processor"),
    (named(seconds=2e-4, gain=1.9, free_gain=2.0), "transform", "good", "lets go of Python's"),
    (named(seconds=2e-4, gain=1.0, free_gain=2.0), "transform", "note", "Python's lock (two"),
    (named(seconds=2e-4, gain=1.4, free_gain=2.0), "transform", "note", "for a part of that (two"),
    (named(seconds=2e-4, gain=1.0, free_gain=1.1), "transform", "note", "cannot be told while"),
)  # fmt: skip


@pytest.mark.parametrize(("facts", "topic", "severity", "words"), CASES)
def test_a_fact_leads_to_its_finding(facts: Facts, topic: str, severity: str, words: str) -> None:
    found = [(one.topic, one.severity, one.text) for one in diagnose(facts).findings]
    assert any(t == topic and s == severity and words in text for t, s, text in found), found
    # And the healthy data set has no such one.
    healthy = [one.text for one in diagnose(HEALTHY).findings if one.severity == severity]
    assert not any(words in text for text in healthy)


def test_problems_come_first() -> None:
    assert diagnose(CROWDED).findings[0].topic == "order"


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        (changed("data", file_bytes=GIB), "The file itself"),
        (replace(HEALTHY, storage=TMPFS), "Memory and processors"),
        (replace(HEALTHY, storage=CACHED), "Memory and processors"),
        (replace(HEALTHY, storage=NFS), "The way to the storage: nfs4"),
        (changed("sample", median_bytes=3000), "Requests: at random, each value of 2.9 KiB"),
        (HEALTHY, "The disk's bandwidth"),
    ],
)
def test_the_limit_is_the_first_that_applies(facts: Facts, limit: str) -> None:
    assert diagnose(facts).limit.startswith(limit)


def test_a_measured_rate_is_named_and_no_other() -> None:
    small = changed("sample", median_bytes=3000)
    assert "(9,766 requests of 4.0 KiB a second were measured)" in diagnose(small).limit
    assert "measured" not in diagnose(replace(small, tuned=TunedFacts())).limit
    assert "measured" not in diagnose(replace(HEALTHY, tuned=TunedFacts())).limit


ABSENT, UNTUNED = ProvenanceFacts("absent"), TunedFacts()


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        (changed("data", file_bytes=GIB), "lmdbio verify train_lmdb"),
        (changed("data", named=["a b"], holds_named_only=True),
         "lmdbio doctor train_lmdb --db 'a b'"),
        (changed("sample", ascending=0.5), "lmdbio compact train_lmdb train_lmdb.tidy"),
        (replace(changed("sample", ascending=0.5), storage=CACHED), "lmdbio bench train_lmdb"),
        (changed("data", free_bytes=5 * GIB), "lmdbio compact train_lmdb train_lmdb.tidy"),
        (changed("provenance", status="stale"), "lmdbio convert train_lmdb"),
        (changed("provenance", status="unproven"), "lmdbio convert train_lmdb"),
        (replace(HEALTHY, storage=NFS, provenance=ABSENT), "lmdbio convert train_lmdb"),
        (replace(HEALTHY, storage=CACHED, tuned=UNTUNED), "lmdbio bench train_lmdb"),
        (replace(HEALTHY, storage=TMPFS, tuned=UNTUNED), "lmdbio bench train_lmdb"),
        (replace(HEALTHY, tuned=UNTUNED), "lmdbio tune train_lmdb"),
        (replace(HEALTHY, provenance=ABSENT), "lmdbio convert train_lmdb"),
        (replace(HEALTHY, path="my data/x"), "lmdbio bench 'my data/x'"),
    ],
)  # fmt: skip
def test_the_next_command_is_one_that_changes_something(facts: Facts, command: str) -> None:
    assert diagnose(facts).command == command


def part(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of one part, as far as its types go."""
    numbers = st.one_of(st.none(), st.integers(0, 1 << 50))
    shares = st.one_of(st.none(), st.floats(0, 1))
    texts = st.sampled_from(["", "x", "absent", "good", "stale", "unproven", "damaged"])
    by_type = {
        "int": st.integers(0, 1 << 50), "int | None": numbers, "float | None": shares,
        "bool": st.booleans(), "bool | None": st.one_of(st.none(), st.booleans()), "str": texts,
        "Sequence[str]": st.lists(texts, min_size=1, max_size=6),
    }  # fmt: skip
    fields = {name: by_type[field.type] for name, field in kind.__dataclass_fields__.items()}
    return st.builds(kind, **fields)


STORAGES = st.builds(
    Storage,
    file_system=st.sampled_from([None, "ext4", "nfs", "tmpfs", "overlay", "fuse.x", "0x1"]),
    source=st.sampled_from([None, "s"]),
    disk=st.booleans(),
    rotational=st.sampled_from([None, True, False]),
    readahead_bytes=st.sampled_from([None, 0, 1 << 20]),
    direct=st.sampled_from([None, True, False]),
    size_bytes=st.sampled_from([None, 0, 1 << 30]),
    cached_bytes=st.sampled_from([None, 0, 1 << 30]),
)
ANY = st.builds(
    Facts,
    path=st.text(min_size=1, max_size=20),
    name=st.sampled_from(["", "n"]),
    data=part(DataFacts),
    sample=part(SampleFacts),
    storage=STORAGES,
    uring=st.sampled_from([None, True, False]),
    **{
        name: part(getattr(kinds, f"{name.capitalize()}Facts".replace("Locks", "Lock")))
        for name in ("locks", "machine", "provenance", "tuned", "transform")
    },
)  # fmt: skip


@given(ANY)
@settings(max_examples=long_run.cases(200))
def test_any_facts_have_findings_a_limit_and_a_command_that_exists(facts: Facts) -> None:
    found = diagnose(facts)
    assert found.findings and all(one.text.endswith((".", ")")) for one in found.findings)
    assert found.limit.endswith(".") and found.reason
    words = shlex.split(found.command)
    assert words[0] == "lmdbio" and words[1] in cli.COMMANDS
    assert facts.path in words[2]
