"""excerpt: the first and the last bytes of a value, which its kind is guessed from. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "Excerpt"]

#: A JPEG file with an EXIF preview tells its size after up to 64 KiB.
HEAD_BYTES = 96 << 10
#: Labels stand behind the data of a Datum; a pickle ends in a full stop.
TAIL_BYTES = 64


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a value.

    Attributes:
        head: first bytes of the value.
        length: size of the whole, bytes; None: not known, as of what was unpacked in part.
        tail: last bytes of the value, where the head is not all of it.
    """

    head: bytes
    length: int | None
    tail: bytes = b""

    @classmethod
    def whole_of(cls, value: bytes) -> Excerpt:
        """Return the excerpt of a value that is in memory."""
        return cls(value, len(value))

    @property
    def is_whole(self) -> bool:
        """The head is all of it."""
        return self.length == len(self.head)

    @property
    def last(self) -> bytes:
        """The last byte; empty where it is not known."""
        return self.head[-1:] if self.is_whole else self.tail[-1:]

    def part(self, start: int, stop: int) -> bytes | None:
        """Return bytes ``start`` to ``stop``, cut at the end; None: they are not at hand."""
        if stop <= len(self.head) or (self.is_whole and start <= len(self.head)):
            return self.head[start:stop]
        if self.length is None:
            return None
        begun = self.length - len(self.tail)
        if begun <= start <= self.length:
            return self.tail[start - begun : stop - begun]
        return None
