"""Whether lmdbio reads a file, which some LMDB wrote, by every way that it has.

``judge`` reads it in each form of provenance, as records, by key, by cursor and in batches, proves
it sound, copies it, and compares all with what the story says that it holds and py-lmdb reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import lmdb
from stories import Contents, Name, Story

import lmdbio
from lmdbio.convert.compacting import compact
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.errors import IncompatibleError
from lmdbio.provenance import Provenance

FORMS = ("auto", "replay", "runs", "leaves", "explicit")
Pairs = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Verdict:
    """The verdict on one file.

    Attributes:
        rule: by which its pages are split, where its history was found; else "".
        forms: those of ``FORMS`` that can describe it.
        wrong: what is not as it should be, in sentences; nothing, if all is well.
    """

    rule: str = ""
    forms: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def hold(self, what: str, is_so: object, should: object) -> None:
        if is_so != should:
            self.wrong.append(f"{what} differs")


def pairs_of(contents: Contents, name: Name) -> Pairs:
    return [(key, value) for key, values in contents[name].items() for value in values]


def judge(file: Path, page_bytes: int, story: Story) -> Verdict:
    """Reads ``file``, which a writer made after ``story``; leaves other files beside it."""
    verdict = Verdict()
    contents, _ = story.contents(page_bytes)
    names = [name for name in contents if name is not None] or [None]
    main = _by_cursor(lmdb, file, None)
    verdict.hold("the main database by cursor", _by_cursor(lmdbio, file, None), main)
    if names == [None]:
        verdict.hold("py-lmdb's own reading", main, pairs_of(contents, None))
    for name in names:
        told = f"{name!r}: "
        pairs = pairs_of(contents, name)
        if name is not None:
            verdict.hold(told + "py-lmdb's own reading", _by_lmdb(file, name, pairs), pairs)
            verdict.hold(told + "by cursor", _by_cursor(lmdbio, file, name), pairs)
        _judge_walk(verdict, told + "backwards and by key", file, name, contents)
        _judge_records(verdict, told + "scanned", file, name, pairs, "scan")
    for form in FORMS:
        try:
            report = convert(file, form=form, databases=names)  # type: ignore[arg-type]
        except IncompatibleError:
            continue
        verdict.forms.append(form)
        with Provenance.open(report.sidecar) as opened:
            for section in opened.sections:
                if section.history is not None:
                    verdict.rule = section.history.split.name
        for name in names:
            told = f"{form}, {name!r}: "
            _judge_records(verdict, told, file, name, pairs_of(contents, name), "provenance")
        count = sum(len(pairs_of(contents, name)) for name in names)
        verdict.hold(f"{form}: the proof", verify(file).sidecar_records, count)
    if story.name != "several":
        _judge_copy(verdict, file, names, contents)
    return verdict


def _by_cursor(library: object, file: Path, name: Name) -> Pairs:
    with library.open(str(file), subdir=False, readonly=True, lock=False, max_dbs=8) as env:  # type: ignore[attr-defined]
        db = env.open_db(name, create=False) if name else None
        with env.begin(db=db) as txn:
            return [(bytes(key), bytes(value)) for key, value in txn.cursor()]


def _by_lmdb(file: Path, name: Name, pairs: Pairs) -> Pairs:
    """Return what py-lmdb reads; ``pairs`` where it refuses pages of LMDB before 0.9.17."""
    try:
        return _by_cursor(lmdb, file, name)
    except lmdb.CorruptedError as e:
        if "wrong type" not in str(e):
            raise
        return pairs


def _judge_walk(verdict: Verdict, told: str, file: Path, name: Name, contents: Contents) -> None:
    pairs = pairs_of(contents, name)
    with lmdbio.open(str(file), subdir=False, readonly=True, lock=False, max_dbs=8) as env:
        db = env.open_db(name, create=False) if name else None
        with env.begin(db=db) as txn:
            cursor = txn.cursor()
            back = [(bytes(k), bytes(v)) for k, v in cursor.iterprev()] if cursor.last() else []
            verdict.hold(told, back[::-1], pairs)
            for key, values in contents[name].items():
                if txn.get(key) != values[0]:
                    verdict.wrong.append(f"{told}: the value of {key!r} differs")
                    break
            verdict.hold(told + ", a key that is not there", txn.get(b"\xffnone\xff\xff"), None)


def _judge_records(
    verdict: Verdict, told: str, file: Path, name: Name, pairs: Pairs, locate: str
) -> None:
    """``check="always"``: the digest of the tree is part of the judgement."""
    check = "always" if locate == "provenance" else "fast"
    values = [value for _, value in pairs]
    with lmdbio.Records(file, db=name, locate=locate, check=check, subdir=False) as records:  # type: ignore[arg-type]
        verdict.hold(told + " the number of records", len(records), len(pairs))
        verdict.hold(told + " the records", list(records), values)
        some = list(range(0, len(pairs), 7))
        verdict.hold(told + " some", [bytes(v) for v in records.read(some)], values[::7])
        for i in range(0, len(pairs), 97):
            verdict.hold(told + f" record {i}", records[i], values[i])
        if pairs and len(pairs) == len({key for key, _ in pairs}):
            for i in (0, len(pairs) // 3, len(pairs) - 1):
                verdict.hold(told + f" key {i}", records.key(i), pairs[i][0])
                verdict.hold(told + f" place {i}", records.index_of(pairs[i][0]), i)
    if pairs and locate == "provenance":
        steps = -(-len(pairs) // 64)
        with lmdbio.Reader(file, 64, db=name, iterations=steps) as reader:
            read = list(chain.from_iterable([bytes(v) for v in batch] for batch in reader))
        verdict.hold(told + " the Reader's", read, (values + values * 64)[: 64 * steps])


def _judge_copy(verdict: Verdict, file: Path, names: list[Name], contents: Contents) -> None:
    copy = file.with_name("copy.mdb")
    try:
        compact(file, copy)
    except IncompatibleError as e:  # LMDB's own copy fails
        verdict.hold("why there is no copy", "dupfixed" in str(e), True)
        return
    for name in names:
        verdict.hold("the copy", _by_cursor(lmdbio, copy, name), pairs_of(contents, name))
        verdict.hold("py-lmdb's copy", _by_cursor(lmdb, copy, name), pairs_of(contents, name))
    verify(copy)
