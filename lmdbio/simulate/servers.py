"""servers: when a store has answered reads, event by event. Pure.

    a read, asked at t    cut at stripe borders into pieces; stripe k of a file lies on server
                          (first + k) % servers
    each piece            arrives  = t + request
    at its server         sent     = max(arrives, server free) [+ out of order] + bytes at its rate
                          a server takes pieces in the order of their coming
    on its node's link    ready    = sent - the shorter one of its times at server and link
                          carried  = max(ready, link free) + bytes at the link's rate
                          a link takes pieces in the order of ``ready``
    the answer            when the last of the pieces is carried

All requests take equally long to arrive, so reads arrive in the order of asking, and a server's
part is known at once. The link's part is not: a piece of a later read from an idle server may
overtake. So each piece is one event, when it is ready, and each answer another one.

benchmarks/pfs/model.c has the same arithmetic in whole nanoseconds; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from lmdbio.simulate.store import Store

__all__ = ["Read", "Servers", "Then", "first_server"]

#: Takes the time at which something has happened.
Then = Callable[[float], None]
#: Offset and length of a read, bytes.
Read = tuple[int, int]
_U64 = 1 << 64


def first_server(path: str, servers: int) -> int:
    """Return the server of a file's first stripe: FNV-1a of its path below the folder."""
    value = 0xCBF29CE484222325
    for byte in path.encode():
        value = ((value ^ byte) * 0x100000001B3) % _U64
    return value % servers


class _File:
    """The place of a file on the servers, and where the last piece served ends on each."""

    __slots__ = ("first", "served")

    def __init__(self, path: str, servers: int) -> None:
        self.first = first_server(path, servers)
        self.served = [0] * servers


class _Answer:
    """A read whose pieces are on their way."""

    __slots__ = ("left", "link", "then")

    def __init__(self, left: int, link: int, then: Then) -> None:
        self.left, self.link, self.then = left, link, then


class Servers:
    """The servers of a store and the links to its nodes, at work.

    Attributes:
        reads: number of reads that were asked for.
        bytes: size of these reads, bytes.
        pieces: number of pieces that they were cut into.
        moves: pieces that did not follow the last one of their file on their server.
        link_bytes: bytes of these reads, by link.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free = [0.0] * store.servers
        self._links: dict[int, float] = {}
        self._files: dict[str, _File] = {}
        # Time, number, bytes, and the read of a piece that is ready, or else what to call.
        self._events: list[tuple[float, int, int, _Answer | None, Then | None]] = []
        self._number = 0
        self.reads = self.bytes = self.pieces = self.moves = 0
        self.link_bytes: dict[int, int] = {}

    def at(self, time: float, action: Then) -> None:
        """Call ``action`` at a time; of equal times the first one asked for comes first."""
        self._number += 1
        heappush(self._events, (time, self._number, 0, None, action))

    def read(self, now: float, read: Read, then: Then, *, link: int = 0, path: str = "") -> None:
        """Ask for a read at the time of the present event.

        Args:
            now: time of the event, seconds, no earlier than any read before.
            read: offset and length, bytes; at least one byte.
            then: function that is called when it is answered.
            link: number of the link of the node that asks.
            path: path of the file.
        """
        store, events, free = self._store, self._events, self._free
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(path, store.servers)
        served, servers, stripe = file.served, store.servers, store.stripe_bytes
        rate = store.server_rate
        # Carrying overlaps with sending: a piece is ready so long before it is all sent.
        fastest = max(rate, store.link_rate)
        offset, length = read
        end, arrives = offset + length, now + store.request_seconds
        answer = _Answer((end - 1) // stripe - offset // stripe + 1, link, then)
        self.reads += 1
        self.bytes += length
        self.link_bytes[link] = self.link_bytes.get(link, 0) + length
        self.pieces += answer.left
        while offset < end:
            number, within = divmod(offset, stripe)
            size = min(end - offset, stripe - within)
            server = (file.first + number) % servers
            place = number // servers * stripe + within
            sent = free[server]
            if sent < arrives:
                sent = arrives
            sent += size / rate
            if served[server] != place:
                sent += store.out_of_order_seconds
                self.moves += 1
            free[server] = sent
            served[server] = place + size
            self._number += 1
            heappush(events, (sent - size / fastest, self._number, size, answer, None))
            offset += size

    def stream(
        self,
        now: float,
        reads: Iterable[Read],
        then: Then,
        *,
        depth: int,
        link: int = 0,
        path: str = "",
        asked: Then | None = None,
    ) -> None:
        """Ask for reads one after the other, as many in flight as ``depth`` says.

        Args:
            then: function that is called when all are answered.
            asked: function that is called when the last one has been asked for.
        """
        waiting, flying = iter(reads), 0
        following = next(waiting, None)

        def ask(time: float) -> None:
            nonlocal following, flying, asked
            while following is not None and flying < depth:
                one, following = following, next(waiting, None)
                flying += 1
                self.read(time, one, answered, link=link, path=path)
            if following is None and asked is not None:
                call, asked = asked, None  # once only
                call(time)

        def answered(time: float) -> None:
            nonlocal flying
            flying -= 1
            ask(time)
            if not flying and following is None:
                then(time)

        ask(now)
        if not flying:
            self.at(now, then)

    def run(self) -> None:
        """Let everything happen that has been asked for, and all that follows from it."""
        events, links, rate = self._events, self._links, self._store.link_rate
        while events:
            time, _, size, answer, action = heappop(events)
            if answer is None:
                assert action is not None
                action(time)
                continue
            carried = links.get(answer.link, 0.0)
            if carried < time:
                carried = time
            carried += size / rate
            links[answer.link] = carried
            answer.left -= 1
            if not answer.left:
                # Pieces of one read share a link: the last one to be ready is the last carried.
                self.at(carried, answer.then)
