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
from collections.abc import Callable

from lmdbio import _core, share
from lmdbio.assignment import Schedule
from lmdbio.errors import IncompatibleError
from lmdbio.mode import USUAL_TOKENS, Mode
from lmdbio.roots import Work
from lmdbio.seeking import Relay, Walked
from lmdbio.speculation import Speculation

__all__ = ["Links", "count_tokens", "link"]

#: Records looked up for all roots, before the first guess, at most.
SAMPLE_RECORDS_MAX = 4096
#: Tokens where nobody has measured.
ROOTS_PER_TOKEN = 8
#: Between two looks into the mail.
NAP_SECONDS_MIN, NAP_SECONDS_MAX = 0.0005, 0.0015
#: The token is not looked for until so much of the time has passed that it usually takes to go
#: round; never for longer than this.
ROUND_SHARE, ROUND_SECONDS_MAX = 0.5, 0.02
#: Who has waited so long for the cursor asks for it; and so long, seeks alone.
DEMAND_SECONDS, CURSOR_SECONDS_MAX = 0.02, 1.0
#: Whose turn has not come for so many usual rounds, but not sooner and not later, reads.
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
        self._nap_s = NAP_SECONDS_MIN
        self._ticket: _core.Ticket | None = None  # whose requests are begun in this turn
        self._passed_s: float | None = None  # when the token was passed on
        self._round_s = 0.0  # that it usually takes to come round
        self._looks_late = False  # not before so much of that has passed
        self._no_turn_s: float | None = None  # since when it is wanted
        self._no_cursor_s: float | None = None
        self._has_asked = False

    @property
    def watches(self) -> bool:
        """Whether this root hears from other nodes, and tells them, when somebody fails."""
        return bool(self._heralds)

    @property
    def awaits_turn(self) -> bool:
        return self.turns is not None and not self.turns.holds and not self.turns.is_out

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
            self._nap_s = NAP_SECONDS_MIN
            if letter.kind == share.Kind.ABORT:
                self.failure = share.failure_of(letter.body)
            elif letter.kind == share.Kind.TOKEN and self.turns is not None:
                self.turns.come(letter.body)
                self._no_turn_s = None  # who has waited in vain does not wait again until here
                self._expect_round()
            elif letter.kind == share.Kind.CURSOR and self.relay is not None:
                self.relay.come(letter.body)
            elif letter.kind == share.Kind.DEMAND and self.relay is not None:
                self.relay.hear(letter.body)

    def _send(self, to: int, kind: share.Kind, body: bytes) -> None:
        if self._mail is not None:
            self._mail.send(to, kind, body)

    def tell(self, failure: tuple[int, str]) -> None:
        """Tells other nodes of a rank of this one that failed; not of what they told."""
        if self.failure is None:
            for rank in self._heralds:
                self._send(rank, share.Kind.ABORT, share.failure_letter(*failure))

    def slice_ms(self) -> int:
        """How long to wait at once: not long where a letter may come."""
        if not (self.awaits_turn or self.awaits_cursor):
            return _core.SLICE_MS
        self._nap_s = min(2 * self._nap_s, NAP_SECONDS_MAX)
        if self.awaits_cursor:
            return max(1, int(1000 * self._nap_s))
        due_s = 0.0
        if self._passed_s is not None:
            due_s = self._passed_s + ROUND_SHARE * self._round_s - time.monotonic()
        self._looks_late = due_s > self._nap_s
        return max(1, int(1000 * max(self._nap_s, min(due_s, ROUND_SECONDS_MAX))))

    def close(self) -> None:
        """Writes no more letters, and takes none. May be called twice."""
        if self._mail is not None:
            self._mail.close()

    # --- turns

    def may_read(self) -> bool:
        """Whether it is this root's turn, or it has waited for that in vain."""
        turns = self.turns
        if turns is None or (turns.holds and self._ticket is None) or not self._hears:
            return True
        if turns.holds:
            return False
        now_s = time.monotonic()
        if self._no_turn_s is None:
            self._no_turn_s = now_s
        patience_s = max(TURN_SECONDS_MIN, TURN_ROUNDS * self._round_s)
        return now_s - self._no_turn_s > min(patience_s, TURN_SECONDS_MAX)

    def read_by(self, ticket: _core.Ticket) -> None:
        """Requests were handed over; the turn, if it is one, lasts until all have begun."""
        if self.turns is not None and self.turns.holds:
            self._ticket = ticket

    def drop_turn(self) -> None:
        """What was begun in this turn was given up."""
        self._ticket = None

    @property
    def in_turn(self) -> bool:
        """Whether requests are being begun in this turn."""
        return self._ticket is not None

    def end_turn(self, timeout_ms: int = 0) -> None:
        """Passes the token on when the last request of the block has begun.

        Not when it has ended: the next root's requests then reach the storage while it still
        has these to serve, in the order of the file, and it is never idle between two turns.
        """
        if self._ticket is not None and self._ticket.poll_begun(timeout_ms):
            self._ticket = None
            self.give_turn()

    def give_turn(self, *, leaves: bool = False) -> None:
        """Passes the token on, if it is here and nothing is begun under it."""
        turns = self.turns
        if turns is None or not turns.holds or self._ticket is not None:
            return
        passed = turns.pass_on(leaves=leaves)
        if passed is not None:
            self._send(passed.to, share.Kind.TOKEN, passed.body)
            self._passed_s = time.monotonic()

    def _expect_round(self) -> None:
        """Remembers how long the token was away.

        Found at the first look, it may have lain here for long: were that not seen, roots that
        wait for each other would make the round last as long as they expect.
        """
        if self._passed_s is None:
            return
        away_s = time.monotonic() - self._passed_s
        self._round_s = self._round_s / 2 if self._looks_late else (self._round_s + away_s) / 2

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
        self.give_turn(leaves=True)
        if not self._hears or self.failure is not None:
            return True
        return not (self.awaits_turn or self.awaits_cursor)


def usual_tokens(roots: int) -> int:
    """Tokens where nobody has measured: one for eight roots.

    One token brings a block for each hop: 8 MiB in 1.5 ms are 5 GB/s, which is more than the
    links of a few nodes carry together. The fewer, the more nearly the file is read in order.
    """
    return max(1, roots // ROOTS_PER_TOKEN)


def count_tokens(job: share.Job, schedule: Schedule, mode: Mode, *, suggested: bool) -> int:
    """How many tokens there are; 0: whoever can, reads. The same on all ranks.

    Args:
        schedule: says which roots have records at all.
        mode: that was asked for.
        suggested: nobody asked for them by name: there are none where MPI cannot hand them on.
    """
    readers = sum(schedule.team_rows(i) > 0 for i in range(len(schedule.teams)))
    tokens = usual_tokens(readers) if mode.tokens == USUAL_TOKENS else mode.tokens
    if tokens >= readers or (suggested and not job.is_threaded):
        return 0  # everybody would have one
    return tokens


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
    sample = job.together(lambda: _sample(schedule, work) if relays and job.rank == 0 else None)[0]
    needs_mail = takes_turns or (relays and len(readers) > 1)
    mail = None
    if needs_mail or len(job.nodes) > 1:
        mail = share.open_mail(job)
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
