"""Samples in tar archives, as WebDataset writes them: members that share a name, but its ending.

    0001.jpg, 0001.cls, 0002.jpg, 0002.cls     -> pairs of jpg and cls
    0001.jpg, 0002.jpg                         -> images alone

An archive is read once, forwards. ``tarfile`` takes five times as long for each member.

Source: POSIX ustar and pax, GNU tar's long names; webdataset, ``base_plus_ext`` and
``group_by_keys``.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from lmdbio.errors import Error
from lmdbio.ingest.reading import BATCH_BYTES, BATCH_SAMPLES_MAX
from lmdbio.ingest.sources import IMAGES, Batch, Sample, states_of

__all__ = ["ENDINGS", "Archives"]

ENDINGS = (".tar", ".tar.gz", ".tgz")
#: Members that are labels, if nobody names any; the first of them that the first sample has.
LABELS = ("cls", "txt", "json")
BLOCK_BYTES, READ_BYTES = 512, 1 << 20
#: Of a header: name, size, sum of its bytes, kind, magic bytes, folder of the name.
_HEADER = struct.Struct("100s24x12s12x8sc100x6s82x155s12x")
#: Of a name or of pax's facts about a member.
NAME_BYTES_MAX = 1 << 20
#: Of a member in a compressed archive, of which nobody knows how long it is: LMDB's own limit.
VALUE_BYTES_MAX = (1 << 32) - 1
SPACES = sum(b" " * 8)
STRAY = (
    "{!r} is a label, and the first sample has none: name the value, and the label, by --column"
)
#: Weights of the six octal digits of a sum.
DIGITS = 8 ** np.arange(5, -1, -1)
_META = re.compile(rb"__[^/]*__(?:$|/)")


class Archive:
    """The regular members of one tar archive, forwards.

    Args:
        path: path of the archive, which may be compressed by gzip.

    Attributes:
        memory: a stretch of the archive, which begins with a block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = path.open("rb", buffering=0)
        is_plain = path.suffix == ".tar"
        self._file = self._raw if is_plain else cast(BinaryIO, gzip.GzipFile(fileobj=self._raw))
        self._bytes_max = path.stat().st_size if is_plain else VALUE_BYTES_MAX
        self.memory, self._at = b"", 0  # and how far it is parsed
        self._name, self._left = b"", 0  # of a member: its name, and its content ahead
        os.posix_fadvise(self._raw.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def members(self) -> list[tuple[bytes, int, int]]:
        """Go to the next members, and return each one's name, and begin and end in ``memory``.

        One whose begin is below 0 comes alone, and ``read`` returns its content. Empty: there are
        no more.

        Raises:
            Error: the archive is damaged, cut, or has a member that is no file of its own.
        """
        if self._left:
            self._skip()
        return self._scan() or self._next()

    def _next(self) -> list[tuple[bytes, int, int]]:
        """Return the next member, of any kind."""
        facts: dict[bytes, bytes] = {}
        while True:
            kind = self._header(facts)
            if kind is None:
                return []
            if kind in b"xL":
                facts |= self._facts(kind)
            elif kind in b"0\0" + b"7":
                if any(name.startswith(b"GNU.sparse.") for name in facts):
                    raise self._error("is sparse: write the archive without tar -S")
                return [(self._name, -1, self._left)]
            elif kind not in b"5gKV":  # folders, and what says nothing of names and sizes
                what = "is a link" if kind in b"12" else f"is of kind {kind!r}"
                how = "--hard-dereference" if kind in b"1" else "-h"
                raise self._error(f"{what}: write the archive with its content (tar {how})")
            else:
                facts = {} if kind in b"5" else facts

    def _scan(self) -> list[tuple[bytes, int, int]]:
        """Pass over the members that lie in the memory, as far as they are plain files.

        Their headers are checked together. Any other member is left to ``_header``, which knows
        all kinds, and says what is wrong.
        """
        memory, at, end = self.memory, self._at, len(self.memory)
        starts, begins, ends = list[int](), list[int](), list[int]()
        try:
            while at + BLOCK_BYTES <= end:
                content = at + BLOCK_BYTES
                size = int(memory[at + 124 : at + 135], 8)
                behind = content + (size + 511 & ~511)
                if size < 0 or behind > end:
                    break
                starts.append(at >> 9)
                begins.append(content)
                ends.append(content + size)
                at = behind
        except ValueError:
            pass
        if not starts:
            return []
        # Blocks begin at multiples of their size: the memory begins with one.
        heads = np.frombuffer(memory, np.uint8, end & ~511).reshape(-1, BLOCK_BYTES)[starts]
        sums = heads.sum(1, np.uint32) - heads[:, 148:156].sum(1, np.uint32) + SPACES
        stored = (heads[:, 148:154].astype(np.int64) - ord("0")) @ DIGITS
        is_plain = (sums == stored) & (heads[:, 0] != 0) & (heads[:, 345] == 0)
        for field, alternative in (135, ord(" ")), (156, ord("0")):  # size's end, kind
            is_plain &= (heads[:, field] == 0) | (heads[:, field] == alternative)
        count = len(starts) if is_plain.all() else int(is_plain.argmin())
        if not count:
            return []
        padded = np.ascontiguousarray(heads[:count, :100]).view("S100")[:, 0]
        names = [name.partition(b"\0")[0] for name in padded.tolist()]
        self._name, self._at = names[-1], ends[count - 1] + 511 & ~511
        return list(zip(names, begins, ends, strict=False))

    def _header(self, facts: Mapping[bytes, bytes]) -> bytes | None:
        """Read the next header, and return its kind; None: it is the archive's end.

        Args:
            facts: path and size of the member, as headers before say.
        """
        if self._left:
            self._skip()
        at = self._take(BLOCK_BYTES)
        block = self.memory[at : at + BLOCK_BYTES]
        name, size_field, sum_field, kind, magic, prefix = _HEADER.unpack(block)
        if not name[0] and not any(block):
            self._pass_end()
            return None
        try:
            # The low half of an Adler-32 is one more than the sum of all bytes, mod 65521.
            found = (zlib.adler32(block) & 0xFFFF) - 1 - sum(sum_field) + SPACES
            wrong = (int(sum_field.strip(b"\0 "), 8) - found) % 65521
            size = (facts and int(facts.get(b"size", b"0"))) or _number(size_field)
        except ValueError:
            wrong, size = 1, 0
        if wrong or size < 0:
            raise self._error("is followed by no header of tar: the archive is damaged")
        if size > self._bytes_max:
            raise self._error(f"is followed by one of {size:,} bytes: the archive is cut")
        name = name.partition(b"\0")[0]
        if prefix[0] and magic == b"ustar\0":
            name = prefix.partition(b"\0")[0] + b"/" + name
        self._name = facts.get(b"path", name) if facts else name
        self._left = 0 if kind in b"123456" else size
        return cast(bytes, kind)

    def _facts(self, kind: bytes) -> dict[bytes, bytes]:
        """Return what a member says of the next one."""
        if self._left > NAME_BYTES_MAX:
            raise self._error(f"says {self._left:,} bytes of the next one: the archive is damaged")
        text = self.read()
        if kind == b"L":
            return {b"path": text.rstrip(b"\0")}
        facts: dict[bytes, bytes] = {}
        while text:
            length, _, rest = text.partition(b" ")
            if not length.isdigit() or not len(length) < int(length) <= len(text):
                raise self._error("is no list of pax: the archive is damaged")
            name, _, value = rest[: int(length) - len(length) - 2].partition(b"=")
            facts[name], text = value, text[int(length) :]
        return facts

    def read(self) -> bytes:
        """Return the content of the member."""
        size, self._left = self._left, 0
        at = self._take(size + -size % BLOCK_BYTES)
        return self.memory[at : at + size]

    def _skip(self) -> None:
        """Pass over the content of the member."""
        self._at += self._left + -self._left % BLOCK_BYTES
        self._left = 0
        if self._at > len(self.memory):
            with self._naming_damage():
                self._file.seek(self._at - len(self.memory), 1)
            self.memory, self._at = b"", 0

    def _take(self, size: int) -> int:
        """Pass over so many bytes; return where in the memory they begin."""
        if self._at + size > len(self.memory):
            self._fill(size)
        at, self._at = self._at, self._at + size
        return at

    def _fill(self, size: int) -> None:
        """Read on, until so many bytes are in the memory that are not parsed."""
        parts = [self.memory[self._at :]]
        while (missing := size - sum(map(len, parts))) > 0:
            parts.append(self._read_on(missing))
            if not parts[-1]:
                raise self._error("is followed by no end of archive: it is cut, or still written")
        self.memory, self._at = b"".join(parts), 0

    def _read_on(self, size: int = 0) -> bytes:
        """Return what follows in the file, about so many bytes or more; empty: it has ended."""
        with self._naming_damage():
            return self._file.read(max(READ_BYTES, size))

    def _pass_end(self) -> None:
        """Read zeros to the file's end, where gzip sees whether its sum is right.

        Raises:
            Error: there are other bytes, such as those of an archive that was appended.
        """
        rest = self.memory[self._at :]
        while rest.count(0) == len(rest):
            if not (rest := self._read_on()):
                self.memory, self._at = b"", 0
                return
        raise self._error("is followed by an end of archive, and more: one file has one archive")

    @contextlib.contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._error(f"is followed by damage: {error}") from error

    def _error(self, text: str) -> Error:
        name = self._name.decode("utf-8", "backslashreplace")
        return Error(f"{self.path}: member {name!r} {text}" if name else f"{self.path}: {text}")

    @property
    def done(self) -> int:
        """Bytes of the file that are read."""
        return os.lseek(self._raw.fileno(), 0, os.SEEK_CUR)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


class Archives:
    """Shards, one after the other; see ``Source``.

    Args:
        shards: paths of the archives.
        columns: endings of the members that are the value and the label of a sample, each with
            alternatives behind semicolons ("jpg;png"); empty: an image, and one of ``LABELS`` if
            the first sample has one.

    Raises:
        ValueError: there is no sample, or the first one lacks such members.
        Error, OSError: an archive cannot be read.
    """

    def __init__(self, shards: Sequence[Path], columns: Sequence[str]) -> None:
        self._shards = shards
        self.metadata: Mapping[bytes, bytes] = {}
        #: Bytes of all archives up to the end of each.
        self._ends = list(accumulate(shard.stat().st_size for shard in shards))
        self.total, self.unit = self._ends[-1] >> 20, "MiB"
        self._columns: dict[bytes, int] = {}
        self._names = tuple(columns) or self._usual()
        #: Labels that nobody has named, and that would be lost: those of the first sample are.
        self._strays = () if columns or len(self._names) > 1 else LABELS
        for at, names in enumerate(self._names):
            self._columns |= {name.lower().encode(): at for name in names.split(";")}
        self._places = list(range(len(self._names)))
        self.facts: Mapping[str, str] = {
            **states_of(shards),
            "members": " ".join(self._names),
        }

    def _usual(self) -> tuple[str, ...]:
        """Return the members that the first sample has."""
        for shard in self._shards:
            found = next(self._samples(Archive(shard), wants_all=True), None)
            if found is not None:
                break
        else:
            raise ValueError(f"{self._shards[0]}: has no samples")
        endings = [ending.decode("utf-8", "replace") for ending in found[1]]
        if not set(endings) & set(IMAGES):
            raise ValueError(
                f"{shard}: the first sample has no image, but {', '.join(endings)}: "
                "name its value, and its label, by --column"
            )
        return ";".join(IMAGES), *[one for one in LABELS if one in endings][:1]

    def batches(self, first: int) -> Iterator[Batch]:
        """Iterate over the samples from number ``first`` on; see ``Source``."""
        before = 0
        for shard, end in zip(self._shards, self._ends, strict=True):
            samples: list[Sample] = []
            size, archive = 0, Archive(shard)
            for name, members in self._samples(archive, skip=first):
                if first:
                    first -= 1
                    continue
                samples.append(self._sample(shard, name, members))
                size += len(samples[-1][0])
                if size >= BATCH_BYTES or len(samples) == BATCH_SAMPLES_MAX:
                    yield Batch(samples, before + archive.done >> 20)
                    samples, size = [], 0
            yield Batch(samples, end >> 20)
            before = end

    def _sample(self, shard: Path, name: bytes, members: Mapping[bytes, bytes]) -> Sample:
        """Return a sample.

        Raises:
            ValueError: it lacks a member, or has alternatives.
        """
        places = [self._columns[ending] for ending in members]
        if places == self._places:
            return cast(Sample, tuple(members.values()))
        if sorted(places) == self._places:
            by_place = dict(zip(places, members.values(), strict=True))
            return cast(Sample, tuple(by_place[place] for place in self._places))
        has = ", ".join(ending.decode("utf-8", "replace") for ending in members) or "none"
        wants = " and ".join(self._names)
        text = name.decode("utf-8", "backslashreplace")
        raise ValueError(
            f"{shard}: sample {text!r} has {has} of the members {wants}, and wants one of "
            "each: name others by --column"
        )

    def _samples(
        self, archive: Archive, *, skip: int = 0, wants_all: bool = False
    ) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        """Yield the name of each sample, and its members by their endings.

        Args:
            archive: archive, which is closed at the end.
            skip: number of samples whose members are not read.
            wants_all: whether members are read that are in no column.
        """
        try:
            base: bytes | None = None
            members: dict[bytes, bytes] = {}
            while found := archive.members():
                memory = archive.memory
                for name, begin, end in found:
                    start = name.rfind(b"/") + 1
                    dot = name.find(b".", start)
                    if dot <= start or (name[:2] == b"__" and _META.match(name)):
                        continue  # WebDataset passes over these, too
                    if name[:dot] != base:
                        if base is not None:
                            yield base, members
                            skip -= 1
                        base, members = name[:dot], {}
                    ending = name[dot + 1 :].lower()
                    if ending in members:
                        raise self._refusal(archive, name, "two members are called {!r}")
                    if wants_all or ending in self._columns:
                        content = memory[begin:end] if begin >= 0 else None
                        members[ending] = (
                            b"" if skip > 0 else archive.read() if content is None else content
                        )
                    elif ending.decode("utf-8", "replace") in self._strays:
                        raise self._refusal(archive, name, STRAY)
            if base is not None:
                yield base, members
        finally:
            archive.close()

    @staticmethod
    def _refusal(archive: Archive, name: bytes, text: str) -> ValueError:
        """Return an error about a member, whose name is put into a text."""
        return ValueError(
            f"{archive.path}: {text.format(name.decode('utf-8', 'backslashreplace'))}"
        )


def _number(field: bytes) -> int:
    """Return a number of a header: octal digits, or GNU's binary for what these cannot say."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b"\0 ") or b"0", 8)
