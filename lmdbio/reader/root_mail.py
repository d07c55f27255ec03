"""Linking: what ties each root to the others, by the job's mode and nodes.

    nodes > 1                 letters between one root of each node: a rank has failed
    tokens, roots > 1         letters along chains: turns to read
    speculate, roots > 1      letters from team to team: the cursor

A job of one node whose roots read on their own has no letters.

Letters are read by threads, which a main thread can keep from running: many calls of mpi4py's
that make a communicator hold Python's lock until all ranks are there. So nobody waits for a letter
for ever: whose turn does not come reads out of turn, and whoever does not get the cursor seeks
alone. Both cost time and change nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lmdbio import _core, share
from lmdbio.errors import IncompatibleError
from lmdbio.locate.cursor_walk import Relay, Walked
from lmdbio.machine.calibration import Staggering
from lmdbio.machine.choice import Reason
from lmdbio.machine.tokens import choose_tokens
from lmdbio.planning.mode import USUAL_TOKENS, Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.speculation import Speculation
from lmdbio.reader.flow_control import NAP_SHARE, Pace
from lmdbio.reader.roots import Work

__all__ = ["Links", "count_tokens", "link"]

#: Records looked up for all roots, before the first guess, at most.
SAMPLE_RECORDS_MAX = 4096
#: Tokens where nobody has measured.
ROOTS_PER_TOKEN = 8
#: Between two looks into the mail, where a letter may come: ``NAP_SHARE`` of the time that nothing
#: has come or gone, or in which this root reads a block.
NAP_SECONDS_MIN, NAP_SECONDS_MAX = 0.001, 0.05
#: The same share where the cursor is awaited, which comes by once in each iteration.
CURSOR_NAP_SHARE = 1 / 6
#: Who has waited so long for the cursor asks for it; and so long, seeks alone.
DEMAND_SECONDS, CURSOR_SECONDS_MAX = 0.02, 1.0
#: Whose turn has not come while all others could have had so many, but not sooner and not later,
#: reads.
TURN_ROUNDS, TURN_SECONDS_MIN, TURN_SECONDS_MAX = 4, 0.25, 2.0


class Links:
    """One root's letters to the others; for its filling thread.

    Attributes:
        turns: its part in its chain; None: it reads whenever it can.
        relay: its part in seeking with one cursor; None: it locates records itself.
        speculation: guesses where records lie, until the cursor has come by them.
        failure: (rank, cause) that another node has told of.
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
        heralds: tuple[int, ...] = (),
    ) -> None:
        self._mail, self.turns, self.relay = mail, turns, relay
        self.speculation = speculation
        self._others = roots[:team] + roots[team + 1 :]
        self._roots, self._heralds = roots, heralds
        self.failure: tuple[int, str] | None = None
        self._ticket: _core.Ticket | None = None  # whose requests are begun in this turn
        self._has_read_all = False
        self._active_s = time.monotonic()  # when a letter last went, or came and was waited for
        self._pace = Pace()
        self._no_turn_s: float | None = None  # since when it is wanted
        self._no_cursor_s: float | None = None
        self._has_asked = False

    @property
    def watches(self) -> bool:
        """Whether this root hears from other nodes, and tells them, when somebody fails."""
        return bool(self._heralds)

    @property
    def awaits_wish(self) -> bool:
        """Whether the token lies here, for whoever wants it."""
        turns = self.turns
        return turns is not None and turns.holds and not self.in_turn and turns.others > 0

    @property
    def awaits_turn(self) -> bool:
        """Whether the token may come, for it was asked for; also when that was in vain, and what
        it was wanted for has been read."""
        turns = self.turns
        if turns is None or turns.holds or turns.is_out:
            return False
        return turns.is_wished or self._no_turn_s is not None

    @property
    def awaits_cursor(self) -> bool:
        """Whether the cursor, or somebody's wish for it, may come."""
        return self.relay is not None and not self.relay.is_out and self._mail is not None

    @property
    def _hears(self) -> bool:
        """Whether any letter may come."""
        return self._mail is not None and self._mail.is_open

    # --- letters

    def read(self) -> None:
        """Takes in what has come."""
        while self._mail is not None:
            letter = self._mail.receive()
            if letter is None:
                return
            if self._concerns(letter.kind):
                self._active_s = time.monotonic()
            if letter.kind == share.Kind.ABORT:
                self.failure = share.failure_of(letter.body)
            elif letter.kind == share.Kind.TOKEN and self.turns is not None:
                self.turns.come(letter.body)
                self._no_turn_s = None  # who has waited in vain does not wait again until here
            elif letter.kind == share.Kind.WISH and self.turns is not None:
                self.turns.hear(letter.sender, letter.body, time.monotonic())
            elif letter.kind == share.Kind.CURSOR and self.relay is not None:
                self.relay.come(letter.body)
            elif letter.kind == share.Kind.DEMAND and self.relay is not None:
                self.relay.hear(letter.body)

    def _concerns(self, kind: share.Kind) -> bool:
        """Whether this root has waited for such a letter, and the next one may come soon."""
        if kind == share.Kind.WISH:
            return self.turns is not None and self.turns.holds
        if kind == share.Kind.DEMAND:
            return self.relay is not None and self.relay.holds
        return True

    def _send(self, to: int, kind: share.Kind, body: bytes) -> None:
        if self._mail is not None:
            self._mail.send(to, kind, body)
            self._active_s = time.monotonic()

    def tell(self, failure: tuple[int, str]) -> None:
        """Tells other nodes of a rank of this one that failed; not of what they told."""
        if self.failure is None:
            for rank in self._heralds:
                self._send(rank, share.Kind.ABORT, share.failure_letter(*failure))

    def slice_ms(self) -> int:
        """How long to wait at once: not long where a letter may come."""
        now_s = time.monotonic()
        if self.awaits_turn or self.awaits_wish or self.awaits_cursor:
            nap_s = NAP_SHARE * max(now_s - self._active_s, self._pace.each_s)
            if self.awaits_cursor:
                nap_s = CURSOR_NAP_SHARE * (now_s - self._active_s)
            nap_s = min(nap_s, NAP_SECONDS_MAX)
        elif self._pace.room_s is not None:
            nap_s = self._pace.room_s - now_s
        else:
            return _core.SLICE_MS
        return min(int(1000 * max(nap_s, NAP_SECONDS_MIN)), _core.SLICE_MS)

    def landed(self, seconds: float) -> None:
        """The oldest block that was submitted has arrived, which took so long."""
        self._pace.landed(seconds)

    def close(self) -> None:
        """Writes no more letters, and takes none. May be called twice."""
        if self._mail is not None:
            self._mail.close()

    # --- turns

    def may_read(self, block: int) -> bool:
        """Whether it is this root's turn, or it has waited for that in vain; else asks for it."""
        turns = self.turns
        if turns is None or not self._hears or not turns.others:
            return True
        if self._ticket is not None or not self._pace.has_room():
            return False
        self._wish(block)
        now_s = time.monotonic()
        if turns.holds:
            return turns.is_next(now_s)
        if self._no_turn_s is None:
            self._no_turn_s = now_s
        return now_s - self._no_turn_s > self._patience()

    def _patience(self) -> float:
        """How long this root waits for its turn: all others may want one, or two."""
        roots = self.turns.others + 1 if self.turns is not None else 1
        patience_s = TURN_ROUNDS * roots * self._pace.flight_s
        return min(max(patience_s, TURN_SECONDS_MIN), TURN_SECONDS_MAX)

    def read_by(self, block: int, ticket: _core.Ticket, requests: int, depth: int) -> None:
        """A block's requests were handed over; the turn, if it is one, lasts until all have begun.

        Args:
            requests: the ticket's.
            depth: that the engine has under way at most.
        """
        if self.turns is None:
            return
        self._pace.submitted(ticket, requests, depth)
        self.turns.read(block)
        if self.turns.holds:
            self._ticket = ticket

    def _wish(self, block: int | None) -> None:
        """Asks for the token, to read a block or to leave, unless it was asked for."""
        if self.turns is not None:
            for letter in self.turns.wish(block, time.monotonic(), self._pace.busy_s):
                self._send(letter.to, share.Kind.WISH, letter.body)

    def drop_turn(self) -> None:
        """What was submitted was given up."""
        self._ticket = None
        self._pace.clear()

    @property
    def in_turn(self) -> bool:
        """Whether requests are being begun in this turn."""
        return self._ticket is not None

    def end_turn(self, timeout_ms: int = 0, older: _core.Ticket | None = None) -> None:
        """Passes the token on when the last request of the block has begun.

        Not when it has ended: the next root's requests then reach the storage while it still
        has these to serve, in the order of the file, and it is never idle between two turns.

        Args:
            timeout_ms: to wait for that, at most.
            older: other reads of the same engine; when they end, this waits no longer.
        """
        if self._ticket is not None and self._ticket.poll_begun(timeout_ms, older):
            self._ticket = None
            self.read()  # who wants it
            self.give_turn()

    def give_turn(self, *, gives_up: bool = False) -> None:
        """Passes the token on to who wants it, if it is here and nothing is begun under it.

        Who has read all leaves with it; but keeps it while nobody wants it, for it would come
        where nobody expects it.

        Args:
            gives_up: this root listens no more: whoever is left gets the token.
        """
        turns = self.turns
        if turns is None or not turns.holds or self._ticket is not None:
            return
        leaves = gives_up or (self._has_read_all and (turns.is_wanted or not turns.others))
        passed = turns.pass_on(time.monotonic(), leaves=leaves)
        if passed is not None:
            self._send(passed.to, share.Kind.TOKEN, passed.body)

    def leave_turns(self) -> None:
        """This root has read all that it will: it leaves its chain as soon as it has the token."""
        self._has_read_all = True
        self._wish(None)
        self.give_turn()

    # --- the cursor

    def seek(self, block: int, *, is_due: bool, is_found: bool, alive: Callable[[], None]) -> bool:
        """Goes on with the cursor if it is here, and hands it over.

        Args:
            block: that this root reads next.
            is_due: it would, now; else only what others ask for is sought.
            is_found: its records of ``block`` were taken already.
            alive: see ``Relay.seek``.

        Returns:
            Whether all of this root's records of ``block`` are found.
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
        """Asks for the cursor, if it has not come for a while; does without it in the end."""
        now_s = time.monotonic()
        if self._no_cursor_s is None:
            self._no_cursor_s, self._has_asked = now_s, False
        waited_s = now_s - self._no_cursor_s
        if waited_s > DEMAND_SECONDS and not self._has_asked:
            self._has_asked = True
            for rank in self._others:
                self._send(rank, share.Kind.DEMAND, relay.demand(block))
        if waited_s > CURSOR_SECONDS_MAX or not self._hears:
            relay.seek_alone(block, alive)

    # --- the end

    def leave(self, alive: Callable[[], None]) -> bool:
        """Says to the others, as token and cursor come by, that this root wants nothing more.

        Returns:
            Whether nobody depends on it any more.
        """
        if self.relay is not None and not self.relay.is_out:
            self.relay.leave()
            self._hand_over(-1, alive)
        self.leave_turns()
        if not self._hears or self.failure is not None:
            return True
        return not (self.awaits_turn or self.awaits_wish or self.awaits_cursor)


def usual_tokens(roots: int) -> int:
    """Tokens where nobody has measured: one for eight roots.

    One token brings a block for each hop: 8 MiB in 1.5 ms are 5 GB/s, which is more than the
    links of a few nodes carry together. The fewer, the more nearly the file is read in order.
    """
    return max(1, roots // ROOTS_PER_TOKEN)


def count_tokens(
    job: share.Job,
    schedule: Schedule,
    mode: Mode,
    measured: Sequence[Staggering] = (),
    *,
    suggested: bool,
) -> tuple[int, Reason]:
    """How many tokens there are, and why; 0: whoever can, reads. The same on all ranks.

    Args:
        schedule: says which roots have records at all.
        mode: that was asked for.
        measured: by jobs on the first root's storage; the same on all ranks.
        suggested: nobody asked for them by name: there are none where MPI cannot hand them on,
            or where they were measured to gain nothing.
    """
    readers = sum(schedule.team_rows(i) > 0 for i in range(len(schedule.teams)))
    tokens, reason = mode.tokens, Reason("keyword", "as the mode says")
    if mode.tokens == USUAL_TOKENS:
        reason = Reason("facts", f"one for {ROOTS_PER_TOKEN} roots, for nobody has measured")
        tokens, reason = choose_tokens(
            measured,
            nodes=len(job.nodes),
            roots=readers,
            assignment=schedule.assignment,
            may_be_none=suggested,
        ) or (usual_tokens(readers), reason)
    elif suggested:
        reason = Reason("facts", "turns are for several nodes that read one file far away")
    if tokens >= readers:
        return 0, Reason("facts", "every root would have a turn of its own")
    if tokens and suggested and not job.is_threaded:
        return 0, Reason("facts", "this MPI was initialised for one thread alone")
    return tokens, reason


def link(
    job: share.Job, schedule: Schedule, mode: Mode | None, tokens: int, work: Work | None
) -> Links:
    """Links this rank's root to the others. Collective over the job.

    Args:
        mode: of the first root, whose choices of what spans nodes count for all.
        tokens: ``count_tokens``.
        work: of this root; None where this rank is none.

    Raises:
        IncompatibleError: they need letters, and this MPI serves one thread alone.
    """
    assert mode is not None
    roots = tuple(team[0] for team in schedule.teams)
    readers = [rank for i, rank in enumerate(roots) if schedule.team_rows(i)]
    takes_turns = tokens > 0
    relays = mode.locate == "speculate"

    def first() -> tuple[_core.Extents | None, int]:
        has_sample = relays and job.rank == 0
        return _sample(schedule, work) if has_sample else None, share.next_number(job)

    told = job.together(first)
    sample, number = told[0][0], max(number for _, number in told)
    needs_mail = takes_turns or (relays and len(readers) > 1)
    mail = None
    if needs_mail or len(job.nodes) > 1:
        mail = share.open_mail(job, number)
        if mail is None and needs_mail:
            raise IncompatibleError(
                f"mode {mode} hands {'turns' if takes_turns else 'a cursor'} from root to root "
                "by a thread of its own, and this MPI was initialised for one thread alone: "
                "initialise it with MPI_THREAD_MULTIPLE (mpi4py does so by itself)"
            )
    if work is None:
        if mail is not None:
            mail.close()
        return Links()
    links = Links(
        mail,
        roots=roots,
        team=schedule.team_of(job.rank),
        heralds=tuple(node[0] for node in job.nodes if node != job.node)
        if job.node_rank == 0
        else (),
    )
    if takes_turns and job.rank in readers:
        links.turns = share.Turns(share.chain_of(readers, job.rank, tokens), job.rank)
    if relays:
        assert isinstance(work.source, Walked) and sample is not None
        links.relay = Relay(work.source, schedule, schedule.team_of(job.rank))
        links.speculation = Speculation(schedule.count, work.source.pages.size(), sample)
    return links


def _sample(schedule: Schedule, work: Work | None) -> _core.Extents:
    """Extents of the first records."""
    assert work is not None and isinstance(work.source, Walked)
    wanted = min(schedule.count, max(2, schedule.batch_size), SAMPLE_RECORDS_MAX)
    return work.source.again().first(wanted)
