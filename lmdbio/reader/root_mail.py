"""Root mail: what one root writes to the others, and hears from them, by the job's mode and nodes.

    nodes > 1                 letters between one root of each node: a rank has failed
    tokens, roots > 1         letters along chains: turns to read
    speculate, roots > 1      letters from team to team: the cursor

A job of one node whose roots read on their own has no letters.

Threads read letters, and a main thread can keep them from running: many calls of mpi4py's that
make a communicator hold Python's lock until all ranks are there. So no root waits for a letter
for ever: one whose turn does not come reads out of turn, and one that does not get the cursor
seeks alone. Both cost time and change nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lmdbio import _core, share
from lmdbio.errors import IncompatibleError
from lmdbio.locate.cursor_walk import CursorWalk, Relay
from lmdbio.planning.mode import Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.speculation import Speculation
from lmdbio.reader.flow import NAP_SHARE, Arrival, Flight, FlowControl
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import WARNING, log

__all__ = ["RootMail", "open_root_mail"]

#: The first root looks up at most so many records for all roots, before the first guess.
SAMPLE_RECORDS_MAX = 4096
#: Bounds of the time between two looks into the mail, where a letter may come: ``NAP_SHARE`` of
#: the time since a letter came or went, or of that in which this root reads a block.
NAP_SECONDS_MIN, NAP_SECONDS_MAX = 0.001, 0.05
#: The same share where the root expects the cursor, which comes by once in each iteration.
CURSOR_NAP_SHARE = 1 / 6
#: A root that expects no letter looks so many seconds apart for one that tells of a failure.
POLL_SECONDS = 0.1
#: A root asks for the cursor when it has waited so long for it, and seeks alone after so long.
DEMAND_SECONDS, CURSOR_SECONDS_MAX = 0.02, 1.0
#: A root reads out of turn when all others could have had so many turns since it asked for one,
#: clamped to these bounds.
TURN_ROUNDS, TURN_SECONDS_MIN, TURN_SECONDS_MAX = 4, 0.25, 2.0


class RootMail:
    """One root's letters to the others. The root's thread uses it.

    Args:
        mail: None: no letters.
        roots: roots of the job, by team.
        team: index of this root's team.
        node_leaders: a rank of each other node, which hears of failures; none where another rank
            of this node tells them.
        path: path of the file, for the logger.

    Attributes:
        mail: mail that carries the letters; None: no letters.
        turns: this root's part in its chain; None: it reads whenever it can.
        relay: this root's part in seeking with one cursor; None: it locates records itself.
        speculation: guesses where records lie, until the cursor has come by them.
        failure: rank and cause of a failure that another node has told.
    """

    def __init__(
        self,
        mail: share.Mail | None = None,
        *,
        turns: share.Turns | None = None,
        relay: Relay | None = None,
        speculation: Speculation | None = None,
        roots: tuple[int, ...] = (),
        team: int = 0,
        node_leaders: tuple[int, ...] = (),
        path: str = "",
    ) -> None:
        self._path = path
        self.mail, self.turns, self.relay = mail, turns, relay
        self.speculation = speculation
        self._others = roots[:team] + roots[team + 1 :]
        self._roots, self._node_leaders = roots, node_leaders
        self.failure: tuple[int, str] | None = None
        self._ticket: Arrival | None = None  # requests that the engine begins in this turn
        self._has_read_all = False
        self._active_s = time.monotonic()  # when a letter last went, or an expected one came
        self._flow = FlowControl()
        self._no_turn_s: float | None = None  # since when this root waits for a turn
        self._no_cursor_s: float | None = None  # since when it waits for the cursor
        self._has_asked = False  # for the cursor

    @property
    def monitors(self) -> bool:
        """Whether this root tells other nodes of failures, and hears of theirs."""
        return bool(self._node_leaders)

    @property
    def awaits_request(self) -> bool:
        """Whether the token lies here, for a root that may ask for it."""
        turns = self.turns
        return turns is not None and turns.holds and not self.in_turn and turns.others > 0

    @property
    def awaits_turn(self) -> bool:
        """Whether the token may come, for this root has asked for it.

        Also where it came too late, and the root has read its block out of turn.
        """
        turns = self.turns
        if turns is None or turns.holds or turns.is_out:
            return False
        return turns.is_wished or self._no_turn_s is not None

    @property
    def awaits_cursor(self) -> bool:
        """Whether the cursor may come, or another root's demand for it."""
        return self.relay is not None and not self.relay.is_out and self.mail is not None

    @property
    def _hears(self) -> bool:
        """Whether any letter can come."""
        return self.mail is not None and self.mail.is_open

    # --- letters

    def read(self) -> None:
        """Take in all letters that have come."""
        is_expected = self.awaits_turn or self.awaits_request or self.awaits_cursor
        apart_s = 0.0 if is_expected else POLL_SECONDS
        while self.mail is not None and (letter := self.mail.receive(apart_s)) is not None:
            if self._concerns(letter.kind):
                self._active_s = time.monotonic()
            if letter.kind == share.Kind.ABORT:
                self.failure = share.failure_of(letter.body)
            elif letter.kind == share.Kind.TOKEN and self.turns is not None:
                self.turns.come(letter.body)
                self._no_turn_s = None  # a root that waited in vain waits no more until here
            elif letter.kind == share.Kind.REQUEST and self.turns is not None:
                self.turns.hear(letter.sender, letter.body, time.monotonic())
            elif letter.kind == share.Kind.CURSOR and self.relay is not None:
                self.relay.come(letter.body)
            elif letter.kind == share.Kind.DEMAND and self.relay is not None:
                self.relay.hear(letter.body)

    def _concerns(self, kind: share.Kind) -> bool:
        """Return whether this root expected such a letter, and the next one may come soon."""
        if kind == share.Kind.REQUEST:
            return self.turns is not None and self.turns.holds
        if kind == share.Kind.DEMAND:
            return self.relay is not None and self.relay.holds
        return True

    def _send(self, to: int, kind: share.Kind, body: bytes) -> None:
        if self.mail is not None:
            self.mail.send(to, kind, body)
            self._active_s = time.monotonic()

    def report(self, failure: tuple[int, str]) -> None:
        """Report a failure of this node to other nodes; not one that they have reported."""
        if self.failure is None:
            for rank in self._node_leaders:
                self._send(rank, share.Kind.ABORT, share.failure_letter(*failure))

    def slice_ms(self) -> int:
        """Return how long to wait at once, ms: not long where a letter may come."""
        now_s = time.monotonic()
        if self.awaits_turn or self.awaits_request or self.awaits_cursor:
            nap_s = NAP_SHARE * max(now_s - self._active_s, self._flow.each_s)
            if self.awaits_cursor:
                nap_s = CURSOR_NAP_SHARE * (now_s - self._active_s)
            nap_s = min(nap_s, NAP_SECONDS_MAX)
        elif self._flow.room_s is not None:
            nap_s = self._flow.room_s - now_s
        else:
            return _core.SLICE_MS
        return min(int(1000 * max(nap_s, NAP_SECONDS_MIN)), _core.SLICE_MS)

    def landed(self, seconds: float) -> None:
        """Note that the oldest block under way has arrived, and how long it took."""
        self._flow.landed(seconds)

    def close(self) -> None:
        """Send and take no more letters. May be called twice."""
        if self.mail is not None:
            self.mail.close()

    # --- turns

    def may_read(self, block: int) -> bool:
        """Return whether this root may read a block; if not, ask for the turn.

        It may in its turn, or when it has waited for one in vain.
        """
        turns = self.turns
        if turns is None or not self._hears or not turns.others:
            return True
        if self._ticket is not None or not self._flow.has_room():
            return False
        self._request_turn(block)
        now_s = time.monotonic()
        if turns.holds:
            return turns.is_next(now_s)
        if self._no_turn_s is None:
            self._no_turn_s = now_s
        is_out_of_turn = now_s - self._no_turn_s > self._timeout_s()
        if is_out_of_turn:
            log(f"{self._path}: a root reads out of turn: its turn did not come in time")
        return is_out_of_turn

    def _timeout_s(self) -> float:
        """Return how long this root waits for its turn, s: all others may want one, or two."""
        roots = self.turns.others + 1 if self.turns is not None else 1
        timeout_s = TURN_ROUNDS * roots * self._flow.flight_s
        return min(max(timeout_s, TURN_SECONDS_MIN), TURN_SECONDS_MAX)

    def read_by(self, flight: Flight) -> None:
        """Note that an engine has taken a block's requests.

        The turn, if it is one, lasts until all of them have begun.
        """
        if self.turns is None:
            return
        self._flow.submitted(flight)
        self.turns.read(flight.number)
        if self.turns.holds:
            self._ticket = flight.ticket

    def _request_turn(self, block: int | None) -> None:
        """Ask for the token, to read a block or to leave, unless this root has asked."""
        if self.turns is not None:
            for letter in self.turns.request(block, time.monotonic(), self._flow.busy_s):
                self._send(letter.to, share.Kind.REQUEST, letter.body)

    def drop_turn(self) -> None:
        """Forget the requests under way: the root has given them up."""
        self._ticket = None
        self._flow.clear()

    @property
    def in_turn(self) -> bool:
        """Whether an engine still begins requests of this turn."""
        return self._ticket is not None

    def end_turn(self, timeout_ms: int = 0, older: Arrival | None = None) -> None:
        """Pass the token on when the last request of the block has begun.

        Not when it has ended: the next root's requests reach the storage while it still serves
        these, in the order of the file, and it is never idle between two turns.

        Args:
            timeout_ms: longest wait for the last request, ms.
            older: other reads of the same engine; when they end, this call waits no longer.
        """
        if self._ticket is not None and self._ticket.poll_begun(timeout_ms, older):
            self._ticket = None
            self.read()  # which roots want it
            self.give_turn()

    def give_turn(self, *, gives_up: bool = False) -> None:
        """Pass the token on, if it is here and the engine begins no request under it.

        It goes to a root that wants it. A root that has read all leaves the chain with it, but
        keeps it while no root wants it: it would come where no root expects it.

        Args:
            gives_up: whether this root listens no more: any root that is left gets the token.
        """
        turns = self.turns
        if turns is None or not turns.holds or self._ticket is not None:
            return
        leaves = gives_up or (self._has_read_all and (turns.is_wanted or not turns.others))
        passed = turns.pass_on(time.monotonic(), leaves=leaves)
        if passed is not None:
            self._send(passed.to, share.Kind.TOKEN, passed.body)

    def leave_turns(self) -> None:
        """Leave the chain as soon as the token comes: this root has read all that it will."""
        self._has_read_all = True
        self._request_turn(None)
        self.give_turn()

    # --- the cursor

    def seek(self, block: int, *, is_due: bool, is_found: bool, alive: Callable[[], None]) -> bool:
        """Go on with the cursor if it is here, and hand it over.

        Args:
            block: block that this root reads next.
            is_due: whether it could read it now; else it seeks only records that others ask for.
            is_found: whether it has taken its records of ``block`` already.
            alive: see ``Relay.seek``.

        Returns:
            Whether it has found all of its records of ``block``.
        """
        assert self.relay is not None
        self._hand_over(block if is_due else block - 1, alive)
        if is_found or self.relay.has(block):
            self._no_cursor_s = None
            return True
        if is_due:
            self._miss_cursor(self.relay, block, alive)
        return self.relay.has(block)

    def _hand_over(self, block: int, alive: Callable[[], None]) -> None:
        assert self.relay is not None
        handover = self.relay.seek(block, alive)
        if handover is not None:
            self._send(self._roots[handover.to], share.Kind.CURSOR, handover.body)

    def _miss_cursor(self, relay: Relay, block: int, alive: Callable[[], None]) -> None:
        """Ask for the cursor if it has not come for a while; in the end, seek without it."""
        now_s = time.monotonic()
        if self._no_cursor_s is None:
            self._no_cursor_s, self._has_asked = now_s, False
        waited_s = now_s - self._no_cursor_s
        if waited_s > DEMAND_SECONDS and not self._has_asked:
            self._has_asked = True
            for rank in self._others:
                self._send(rank, share.Kind.DEMAND, relay.demand(block))
        if waited_s > CURSOR_SECONDS_MAX or not self._hears:
            log(f"{self._path}: a root seeks alone: the cursor did not come in time")
            relay.seek_alone(block, alive)

    # --- the end

    def leave(self, alive: Callable[[], None]) -> bool:
        """Tell the others, as token and cursor come by, that this root wants nothing more.

        Returns:
            Whether no root depends on it any more.
        """
        if self.relay is not None and not self.relay.is_out:
            self.relay.leave()
            self._hand_over(-1, alive)
        self.leave_turns()
        if not self._hears or self.failure is not None:
            return True
        return not (self.awaits_turn or self.awaits_request or self.awaits_cursor)


def open_root_mail(
    job: share.Job,
    schedule: Schedule,
    mode: Mode | None,
    tokens: int,
    source: RootSource | None,
    *,
    exchanges: bool = False,
) -> RootMail:
    """Open the mail of this rank's root, so that it can write to the others. Collective.

    All ranks of the job meet once; the first time on a communicator they duplicate it.

    Args:
        mode: mode of the first root, whose choices of what spans nodes count for all.
        tokens: ``count_tokens``.
        source: data set of this root; None where this rank is no root.
        exchanges: whether roots exchange rows, over the same channel.

    Raises:
        IncompatibleError: the roots need letters, and this MPI serves one thread alone.
    """
    assert mode is not None
    roots = tuple(team[0] for team in schedule.teams)
    readers = [rank for i, rank in enumerate(roots) if schedule.team_rows(i)]
    takes_turns = tokens > 0
    relays = mode.locate == "speculate"

    def sample_and_number() -> tuple[_core.Extents | None, int]:
        has_sample = relays and job.rank == 0
        return _sample(schedule, source) if has_sample else None, share.next_number(job)

    answers = job.together(sample_and_number)
    sample, number = answers[0][0], max(number for _, number in answers)
    hands = "turns" if takes_turns else "a cursor" if relays and len(readers) > 1 else ""
    needs_mail = hands or exchanges or len(job.nodes) > 1
    mail = _open_mail(job, number, mode, hands) if needs_mail else None
    if source is None:
        if mail is not None:
            mail.close()
        return RootMail()
    # One rank of each node tells the others' first ranks of failures, which pass them on.
    leads = job.node_rank == 0
    team = schedule.team_of(job.rank)
    root_mail = RootMail(
        mail,
        roots=roots,
        team=team,
        node_leaders=tuple(node[0] for node in job.nodes if leads and node != job.node),
        path=source.index.path,
    )
    if takes_turns and job.rank in readers:
        root_mail.turns = share.Turns(share.chain_of(readers, job.rank, tokens), job.rank)
    if relays:
        assert isinstance(source.index, CursorWalk) and sample is not None
        root_mail.relay = Relay(source.index, schedule, team)
        pages = source.index.pages
        root_mail.speculation = Speculation(schedule.count, pages.size(), sample)
    return root_mail


def _open_mail(job: share.Job, number: int, mode: Mode, hands: str) -> share.Mail | None:
    """Open this rank's mail; None: there can be none, and roots hand nothing on. Collective.

    Args:
        number: number of the Reader.
        hands: words for what roots hand on; "": nothing, and letters tell of failures alone.

    Raises:
        IncompatibleError: the roots need letters, and this MPI serves one thread alone.
    """
    mail = share.open_mail(job, number)
    if mail is None and hands:
        raise IncompatibleError(
            f"mode {mode} hands {hands} from root to root by a thread of its own, and this MPI "
            "was initialised for one thread alone: initialise it with MPI_THREAD_MULTIPLE "
            "(mpi4py does so by itself)"
        )
    if mail is None:
        log(
            "other nodes do not hear of a rank that fails, and may wait for it: this MPI was "
            "initialised for one thread alone",
            WARNING,
        )
    return mail


def _sample(schedule: Schedule, source: RootSource | None) -> _core.Extents:
    """Return the extents of the first records."""
    assert source is not None and isinstance(source.index, CursorWalk)
    wanted = min(schedule.count, max(2, schedule.batch_size), SAMPLE_RECORDS_MAX)
    return source.index.again().first(wanted)
