"""Openings of named databases beside a writer that commits at full speed, and what comes of them.

A session opens one database of the small environment (small.py) in one way, counts its records,
holds a few of them against the transaction that it sees, and closes it. Each database that is
opened is always there, and nothing is damaged: so there is neither a LookupError, nor damage, but
for the database that is never there.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import small
from reading import Bounds, Drawn, Session, Wrong
from writer import Progress

import lmdbio
from lmdbio.convert.convert import convert
from lmdbio.convert.verify import verify
from lmdbio.locate.view import viewing

#: One turn in so many runs a command, which takes as long as a hundred other turns.
COMMAND_OF = 150
Work = Callable[[], None]


class Opened(Session):
    """One opening, and a few reads.

    Args:
        reading: whose session it is.
        surface: counts are kept under this name.
        name: of the database.
    """

    def __init__(self, reading: Opening, surface: str, name: bytes) -> None:
        super().__init__(reading, surface)
        self.name, self.sidecar, self.still = name, reading.sidecar, reading.still
        self._bounds = Bounds(self.progress)

    def sees(self, txnid: int) -> list[tuple[bytes, bytes]]:
        """Return all records of the transaction that is seen."""
        self._bounds.check(txnid, self.surface)
        self.count.sessions += 1
        return small.items(self.name, txnid)

    def some(self, count: int) -> list[int]:
        return [self.rng.randrange(count) for _ in range(self.rng.choice((1, 4, 30)))]

    def counted(self, found: int, wanted: Sequence[Any], what: str = "records") -> None:
        if found != len(wanted):
            raise Wrong(f"{self.surface}: {found} {what} instead of {len(wanted)}")

    # --- Records

    def records(self, **options: Any) -> None:
        with lmdbio.Records(self.folder, db=self.name, **options) as records:
            txnid = records._source.meta.txnid
            items = self.sees(txnid)
            self.counted(len(records), items)
            for at in self.some(len(items)):
                key, value = items[at]
                self.took(records[at], value, f"record {at} of {txnid}")
                self.took(records.key(at), key, f"key {at} of {txnid}")
                found = records.index_of(key)
                if items[found][0] != key or (found and items[found - 1][0] == key):
                    raise Wrong(f"{self.surface}: {key!r} of {txnid} is record {found}")
            wanted = self.some(len(items))
            batch = [bytes(one) for one in records.read(np.array(wanted))]
            if options.get("engine") == "mmap":
                # Its batches lie in the mapping itself, and hold as long as this state does.
                records._source.guard()
            for at, one in zip(wanted, batch, strict=True):
                self.took(one, items[at][1], f"batch, {at} of {txnid}")
            if self.name == small.PAIRS:
                self.counted(len(records.groups), range(small.KEYS), "keys")

    def samples(self, **options: Any) -> None:
        """Pairs of records, by the layout that the program is known by."""
        with lmdbio.Records(self.folder, db=small.SAMPLES, **options) as records:
            txnid = records._source.meta.txnid
            self.sees(txnid)
            self.counted(len(records), range(small.PICTURES), "samples")
            if records.layout != "ocr":
                raise Wrong(f"{self.surface}: layout {records.layout} of {txnid}")
            for i in self.some(small.PICTURES):
                image, label = records[i]
                self.took(image, small.picture(txnid, i), f"image {i} of {txnid}")
                self.took(label, small.label(txnid, i), f"label {i} of {txnid}")

    def skipped(self) -> None:
        """Records without some."""
        out = b"label-*" if self.name == small.SAMPLES else b"0000000?"
        with lmdbio.Records(self.folder, db=self.name, skip=out) as records:
            txnid = records._source.meta.txnid
            stem = out.rstrip(b"*?")
            items = [one for one in self.sees(txnid) if one[0][: len(stem)] != stem]
            self.counted(len(records), items)
            for at in self.some(len(items)):
                self.took(records[at], items[at][1], f"record {at} of {txnid}")

    def joined(self) -> None:
        """The same database of two files, of which the second one rests."""
        with lmdbio.Records([self.folder, self.still], db=self.name) as records:
            txnid = int(records._source.file_set._parts["txnid"][0])
            items = [*self.sees(txnid), *small.items(self.name, 1)]
            self.counted(len(records), items)
            for at in self.some(len(items)):
                self.took(records[at], items[at][1], f"record {at} of {txnid}")

    def converted(self) -> None:
        convert(self.folder, output=self.sidecar, databases="all")
        self.records(provenance=self.sidecar)

    def headers(self) -> None:
        """The main database, which holds named ones alone, and is refused with their names."""
        try:
            with lmdbio.Records(self.folder, locate=self.rng.choice(("scan", "auto"))) as records:
                raise Wrong(f"{self.surface}: {len(records)} headers are read as records")
        except LookupError as error:
            if "holds only named databases" not in str(error):
                raise
        self.count.sessions += 1
        self.count.right += 1

    # --- others

    def reader(self, **options: Any) -> None:
        """The counted records, of which the first one tells the transaction."""
        size, self.name = self.rng.choice((7, 64)), small.COUNTED
        made = lmdbio.Reader(self.folder, size, db=self.name, iterations=2, **options)
        with made as reader:
            items: list[tuple[bytes, bytes]] = []
            for batch in reader:
                if not items:
                    items = self.sees(small.transaction_of(bytes(batch[0])))
                    self.counted(reader.count, items)
                for at, view in zip(batch.indices.tolist(), batch, strict=True):
                    self.took(view, items[at][1], f"record {at}")
                    view.release()

    def transaction(self, *, lock: bool) -> None:
        with lmdbio.open(str(self.folder), readonly=True, lock=lock, max_dbs=200) as env:
            db = env.open_db(self.name, create=False)
            if bool(db.flags()["dupsort"]) != (self.name == small.PAIRS):
                raise Wrong(f"{self.surface}: flags {db.flags()}")
            if not lock and self.rng.random() < 0.1:
                self.counted(len(env.dbs()), [*small.NAMES, small.NOISE, *small.FILLERS], "names")
            with env.begin(db=db) as txn:
                items = self.sees(txn.id())
                self.counted(txn.stat(db)["entries"], items)
                for at in self.some(len(items)):
                    key, value = items[at]
                    if not at or items[at - 1][0] != key:
                        self.took(txn.get(key), value, f"{key!r} of {txn.id()}")
                cursor = txn.cursor()
                at = self.rng.randrange(len(items))
                if not cursor.set_index(at):
                    raise Wrong(f"{self.surface}: no record {at} of {txn.id()}")
                self.took(cursor.value(), items[at][1], f"record {at} of {txn.id()}")

    def opened_view(self) -> None:
        with viewing(self.folder, self.name) as opened_view:
            items = self.sees(opened_view.meta.txnid)
            known = dict(reversed(items))
            self.counted(opened_view.db.entries, items)
            at = self.rng.randrange(len(items))
            seen = opened_view.at(at)
            self.took(b"".join(opened_view.pieces(seen)), items[at][1], f"record {at}")
            found = list(opened_view.find(items[at][0]))
            self.took(
                b"".join(opened_view.pieces(found[0])), known[items[at][0]], f"{items[at][0]!r}"
            )
            for seen in opened_view.spread([0.1, 0.5, 0.9]):
                self.took(b"".join(opened_view.pieces(seen)), known[seen.key], f"{seen.key!r}")

    def verified(self) -> None:
        report = verify(self.folder)
        self.count.sessions += 1
        self.counted(len(report.databases) - 1, [*small.NAMES, small.NOISE, *small.FILLERS])
        self.count.right += 1

    def absent(self) -> None:
        """A database that is not there is said not to be there, or that a commit came between."""
        ways: tuple[Callable[[], Any], ...] = (
            lambda: lmdbio.Records(self.folder, db=small.ABSENT),
            lambda: viewing(self.folder, small.ABSENT).__enter__(),
            lambda: lmdbio.Reader(self.folder, 8, db=small.ABSENT),
            self._absent_handle,
        )
        try:
            self.rng.choice(ways)()
        except (LookupError, lmdb.NotFoundError):
            self.count.sessions += 1
            self.count.right += 1
        else:
            raise Wrong(f"{self.surface}: {small.ABSENT!r} is opened")

    def _absent_handle(self) -> None:
        with lmdbio.open(str(self.folder), readonly=True, lock=False, max_dbs=9) as env:
            env.open_db(small.ABSENT, create=False)

    def command(self) -> None:
        """A command, whose answer is judged by what it says where it fails."""
        name = self.name.decode()
        command = self.rng.choice(
            (
                ("info", "--json"),
                ("ls", "--db", name, "--limit", "0", "--keys-only"),
                ("get", "--db", name, "--index", "3", "--force"),
                ("head", "--db", name),
                ("doctor", "--db", name),
                ("verify",),
            )
        )
        done = subprocess.run(
            [sys.executable, "-m", "lmdbio", command[0], str(self.folder), *command[1:]],
            capture_output=True,
            env={**os.environ, "COLUMNS": "1000"},
            check=False,
            timeout=60,
        )
        said = done.stderr.decode(errors="replace")
        if done.returncode:
            raise lmdbio.Error(f"{' '.join(command)}: {said}")
        if "Traceback" in said:
            raise Wrong(said)
        told = done.stdout.decode(errors="replace")
        if command[0] in ("info", "doctor") and ("orrupt" in told or "damage" in told):
            damage = [line for line in told.splitlines() if "orrupt" in line or '"damage' in line]
            if any('"damage": ""' not in line for line in damage):
                raise Wrong(f"{command[0]}: {told}")
        self.count.sessions += 1
        self.count.right += 1


class Opening(Drawn):
    """One thread's openings, drawn by chance.

    Args:
        folder: of the environment.
        mine: a folder for this thread's files.
    """

    def __init__(self, folder: Path, mine: Path, seed: int, engines: tuple[str, ...]) -> None:
        super().__init__()
        self.folder, self.rng = folder, random.Random(seed)
        self.progress = Progress(folder)
        self.sidecar, self.still, self._engines = mine / "data.prov", mine / "still", engines
        with lmdb.open(str(self.still), map_size=1 << 28, max_dbs=200) as env:
            small.commit(env, 1)

    def draw(self) -> tuple[str, Work]:
        name = self.rng.choice(small.NAMES)
        ways = dict(self._ways(name))
        surface = self.rng.choice(sorted(ways))
        if self.rng.randrange(COMMAND_OF) == 0:
            return "command", Opened(self, "command", name).command
        return surface, ways[surface]

    def _ways(self, name: bytes) -> Iterator[tuple[str, Work]]:
        engine = self.rng.choice([e for e in self._engines if e != "staged"])

        def opened(surface: str) -> Opened:
            return Opened(self, surface, name)

        kind = name.decode()
        yield f"Records {kind}", lambda: opened(f"Records {kind}").records(engine=engine)
        yield f"Records {kind} scan", lambda: opened(f"Records {kind} scan").records(locate="scan")
        yield "converted", opened("converted").converted
        yield "headers", opened("headers").headers
        yield "joined", opened("joined").joined
        yield "glance", opened("glance").opened_view
        yield "absent", opened("absent").absent
        yield "verify", opened("verify").verified
        yield "Reader", lambda: opened("Reader").reader()
        yield "Reader seek", lambda: opened("Reader seek").reader(mode="LMDB")
        yield "open lock", lambda: opened("open lock").transaction(lock=True)
        yield "open no lock", lambda: opened("open no lock").transaction(lock=False)
        if name == small.SAMPLES:
            layout = self.rng.choice(("auto", "ocr"))
            yield "layout", lambda: opened("layout").samples(layout=layout)
        if name == small.COUNTED:
            yield "insertion", lambda: opened("insertion").records(order="insertion")
        if name != small.PAIRS:
            yield "skip", opened("skip").skipped
