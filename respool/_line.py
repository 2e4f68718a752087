"""The acting side, part two: finding a key's row, and waiting in line."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn

from respool import _stack
from respool._defer import ASK, Deferring
from respool._keys import ALL, KeyTable
from respool._rows import CLOSED, IMPOSSIBLE, PARKED, SERVED, WAITING
from respool._slot import LIMBO, READY
from respool._waiter import FIRST_PAUSE, Armful, Hand, Waiter, backstop, longer
from respool._work import CANCELLED, WAITED, Lane, Work
from respool.errors import (
    LeaseLostError,
    PoolClosedError,
    PoolExhaustedError,
    PoolReentrancyError,
    PoolTimeoutError,
    safe_repr,
)
from respool.limits import check_cap

if TYPE_CHECKING:
    from respool.limits import PoolLimits

__all__ = ["Queueing"]

# What a step in line came to.
DECIDED: Final = "served, sleeping, or out of line"
DESTROY_FIRST: Final = "something must be destroyed to make room"
DROPPED: Final = "the row has been dropped from the keys: find it anew"
ASK_OWN: Final = "nothing is idle, but something of this key is pending: ask whether it's free now"
ASK_ALL: Final = "there's no room, but something is pending: ask whether it's free now"

SUSPECTING: Final = 0.005
"""Seconds until the listener looks again while a note is open whose cycle isn't cleared yet."""


class Queueing(Deferring):
    """How an acquire finds its row and waits its turn."""

    __slots__ = ()

    # -- keys ------------------------------------------------------------------------------------------

    def lane_of(self, key: object) -> Lane:
        """Find or make the row of `key`."""
        self.refuse_all(key)
        try:
            lane = self.keys.rows.get(key)
        except TypeError:
            self.keys.hash_of(key)  # says what is wrong, if it is the hash
            raise
        if lane is not None and not lane.dead:
            return lane
        digest = self.keys.hash_of(key)
        while True:
            chain = self.under_lock(self.keys.chain_locked, digest)
            lane = KeyTable.pick(chain, key)
            if lane is None:
                limits = self.limits
                cap = self.cap_of(key, limits)
                lane = self.under_lock(self._add_lane_locked, key, digest, chain, cap, limits)
            if lane is not None:
                self.keys.remember(key, lane)
                return lane

    def known_lane(self, key: object) -> Lane | None:
        """Find the row of `key` if there is one."""
        self.refuse_all(key)
        digest = self.keys.hash_of(key)
        return KeyTable.pick(self.under_lock(self.keys.chain_locked, digest), key)

    @staticmethod
    def refuse_all(key: object) -> None:
        """See that a key isn't what stands for all keys."""
        if key is ALL:
            raise TypeError("respool.ALL stands for all keys: it can't be a key itself")

    def cap_of(self, key: object, limits: PoolLimits) -> int | None:
        """Ask what may exist of a key.  Runs the user's code: never under the lock."""
        cap = limits.max_per_key
        if not callable(cap):
            return cap
        try:
            return check_cap(cap(key))
        except BaseException as error:
            self.hooks.failed(None, key, "max_per_key", error)
            raise

    def _add_lane_locked(
        self, key: object, digest: int, chain: tuple[Lane, ...], cap: int | None, limits: PoolLimits
    ) -> Lane | None:
        if self.closed:
            self.refuse_closed()
        if limits is not self.limits:  # resized meanwhile: the cap is another now
            return None
        lane = self.keys.add_locked(digest, chain, lambda: Lane(self, key, digest, cap))
        if lane is not None:
            self.accounts.rows += 1
        return lane

    # -- in line ---------------------------------------------------------------------------------------

    def line_up(
        self,
        hand: Hand | Armful,
        ticket: Waiter,
        seconds: float | None,
        deadline: float | None,
        *,
        wait: bool,
    ) -> bool:
        """Wait in line until `ticket` is served; False where it may not wait and nothing is to be had at once.

        What has just proved invalid is destroyed from within the line, so that its room goes to `ticket`.
        """
        record = ticket.record
        work = Work()
        hand.pass_invalid(work.condemned)
        ticket.arm()
        try:
            self._go_in_line(ticket, work, wait)
        finally:
            if work:
                self.act(work)
        if ticket.state is WAITING:
            self._sleep(ticket, deadline)
        if ticket.state is SERVED:
            return True
        if ticket.state is CLOSED:
            self.refuse_closed()
        if ticket.state is IMPOSSIBLE:
            self.under_lock(self.refuse_impossible_locked, record.row, record.cost, ticket.count)
        if wait or seconds == 0:
            raise self.late(record.row, seconds)
        return False

    def _go_in_line(self, ticket: Waiter, work: Work, wait: bool) -> None:  # noqa: FBT001 - passed on
        """Do what is to be done before one sleeps.  A loop in a function of its own: see `Engine._pump`."""
        record = ticket.record
        step = self.under_lock(self._enter_locked, ticket, work, wait)
        while step is not DECIDED:
            self.act(work)
            if step is DROPPED:
                lane = self.lane_of(record.row.key)
                for own in (record,) if ticket.batch is None else ticket.batch.records:
                    own.row = own.lane = lane
                step = self.under_lock(self._enter_locked, ticket, work, wait)
            elif step is ASK_OWN:
                ticket.asked = 1
                self.ask(record.row, ASK, others=False)
                step = self.under_lock(self._enter_locked, ticket, work, wait)
            elif step is ASK_ALL:
                ticket.asked = 2
                self.ask(record.row, ASK, others=True)
                step = self.under_lock(self._park_locked, ticket, work, wait)
            else:  # what was destroyed made room: for this one, as long as nobody older needs it
                step = self.under_lock(self._park_locked, ticket, work, wait)

    def _enter_locked(self, ticket: Waiter, work: Work, wait: bool) -> str:  # noqa: FBT001 - passed on by `under_lock`
        record = ticket.record
        row = record.row
        if ticket.keeps_place:  # it's in line already
            ticket.keeps_place = False
            return self._park_locked(ticket, work, wait)
        if row.dead:
            return DROPPED
        if self.closed:
            self.refuse_closed()
        if not self.possible_locked(row, record.cost, ticket.count):
            self.refuse_impossible_locked(row, record.cost, ticket.count)
        if row.pending and not row.idle and not ticket.asked:
            return ASK_OWN
        if self.destroyer is not None and self._full_locked():
            ticket.evicts = (
                False  # what must be freed in the background has to be waited for, which this one may not
            )
        self.shut_locked()  # first: whoever gives something back from now on looks for who waits
        self.accounts.enter(ticket)
        return self._park_locked(ticket, work, wait)

    def possible_locked(self, row: Lane, cost: int, count: int) -> bool:
        """Tell whether so many of this cost could be had if the pool were empty."""
        limits = self.limits
        return (
            (limits.max_size is None or count <= limits.max_size)
            and (row.cap is None or count <= row.cap)
            and (limits.max_cost is None or count * cost <= limits.max_cost)
        )

    def refuse_impossible_locked(self, row: Lane, cost: int, count: int) -> NoReturn:
        """Count the refusal and raise PoolExhaustedError."""
        self.accounts.total.rejected += 1
        row.ledger.rejected += 1
        what = "a resource" if count == 1 else f"{count} resources"
        raise PoolExhaustedError(
            f"pool {self.name}: {what} for key {safe_repr(row.key)}, at a cost of {cost} each, can't be had within "
            f"{self.limits} (this key's own limit: {row.cap})"
        )

    def _park_locked(  # noqa: C901 - one list of what may come
        self,
        ticket: Waiter,
        work: Work,
        wait: bool,  # noqa: FBT001
    ) -> str:
        accounts = self.accounts
        if ticket.record.phase is LIMBO:  # pragma: no cover - in a forked child: test_fork_in_handlers
            raise self.forked("this thread waited")
        self.settle_locked(work)
        if ticket.state is not WAITING:
            return DECIDED
        if work.condemned:
            return DESTROY_FIRST
        if accounts.pending and ticket.asked < 2:  # noqa: PLR2004 - once its own key's, once all
            return ASK_ALL
        row = ticket.record.row
        if not wait:
            self.withdraw_locked(ticket)
            return DECIDED
        if self._alone_locked(ticket):
            self.withdraw_locked(ticket)
            msg = (
                f"pool {self.name}: waiting for key {safe_repr(row.key)} inside a hook of this pool would never end: "
                "only hooks that wait themselves could give anything back"
            )
            raise PoolReentrancyError(msg)
        if self._full_locked():
            self.withdraw_locked(ticket)
            accounts.total.rejected += 1
            row.ledger.rejected += 1
            raise PoolExhaustedError(
                f"pool {self.name}: {len(accounts.sleeping)} callers wait already, max_waiters={self.limits.max_waiters}"
            )
        accounts.sleeping[ticket.seq] = ticket
        if not ticket.slept:
            ticket.slept = True
            accounts.total.waits += 1
            row.ledger.waits += 1
        if self.listener is None:
            self.appoint_locked()
        if accounts.pending:
            self.appoint_poller_locked()
        return DECIDED

    def _full_locked(self) -> bool:
        """Tell whether nobody else may wait."""
        most = self.limits.max_waiters
        return most is not None and len(self.accounts.sleeping) >= most

    def _alone_locked(self, ticket: Waiter) -> bool:
        """Tell whether only hooks that wait themselves could ever free what `ticket` waits for."""
        hooks = self.hooks
        if hooks.marks.get(ticket.thread) is None:  # as nearly always
            return False
        mine = list(hooks.stuck(ticket.thread))
        if not mine:
            return False
        stuck = {id(record): record for record in mine}
        for sleeper in self.accounts.sleeping.values():
            if isinstance(sleeper, Waiter):
                for record in hooks.stuck(sleeper.thread):
                    stuck[id(record)] = record
        # What lies idle has been looked at: it isn't enough, and it can't come back either.
        row = ticket.record.row
        if row.where is PARKED:
            held = sum(record.row is row for record in stuck.values())
            return held >= row.size - row.quarantined - len(row.idle)
        idle = self.count_idle_locked()
        return len(stuck) >= self.accounts.size - self.accounts.quarantined - idle

    def _sleep(self, ticket: Waiter, deadline: float | None) -> None:
        row = ticket.record.row
        began = monotonic()
        ticket.outcome = "cancelled"
        try:
            self.hooks.tell("queued", row.key)
            self._sleep_on(ticket, deadline)
            ticket.outcome = {SERVED: "failed", CLOSED: "closed", IMPOSSIBLE: "failed"}.get(
                ticket.state, "timeout"
            )
        finally:
            seconds = monotonic() - began
            ticket.seconds += seconds
            if ticket.record.phase is not LIMBO:
                self.inbox.append([WAITED, (row, seconds)])
            if ticket.record.phase is not LIMBO and ticket.outcome == "cancelled":
                self.inbox.append([CANCELLED, row])
                self.under_lock(self.withdraw_locked, ticket)

    def forked(self, meanwhile: str) -> LeaseLostError:
        """Make the error for a child that is still in a call of its parent's."""
        return LeaseLostError(f"pool {self.name}: the process has forked while {meanwhile}")

    def _sleep_on(self, ticket: Waiter, deadline: float | None) -> None:
        """Sleep until `ticket` is served or out of line.  A loop in a function of its own: see `Engine._pump`."""
        row = ticket.record.row
        while ticket.state is WAITING:
            if ticket.record.phase is LIMBO:
                raise self.forked("this thread waited")
            nap = ticket.nap  # before the look at `poller`: whoever sets that puts a new one in its place
            polls = self.poller is ticket
            most = backstop(len(self.accounts.sleeping))
            left = most if deadline is None else min(most, deadline - monotonic())
            if left <= 0:
                self.under_lock(self._give_up_locked, ticket)
                break
            if self.suspects:
                left = min(left, SUSPECTING)
            ticket.listen(nap, self.gate, min(left, ticket.pause) if polls else left)
            if ticket.state is WAITING or (self.gate and self.has_notes()):
                self.pump()
            if ticket.state is WAITING and polls:
                free = self.ask(row, ASK, others=True)
                ticket.pause = FIRST_PAUSE if free else longer(ticket.pause)
            if self.destroyer is not None:
                self.destroyer.revive()  # nobody else may come for a long time

    def _give_up_locked(self, ticket: Waiter) -> None:
        if ticket.state is WAITING:
            self.accounts.leave(ticket)
            self.again = True  # those behind it are looked at again

    # -- refusing --------------------------------------------------------------------------------------

    def refuse_closed(self) -> NoReturn:
        """Raise PoolClosedError."""
        raise PoolClosedError(f"pool {self.name} is closed")

    def be_in_time(self, lane: Lane, seconds: float | None, deadline: float | None) -> None:
        """No create and no validate is begun after the deadline."""
        if deadline is not None and monotonic() >= deadline:
            raise self.late(lane, seconds)

    def late(self, lane: Lane, seconds: float | None) -> PoolTimeoutError:
        """Count a timeout and build its error."""
        error: PoolTimeoutError = self.under_lock(self._late_locked, lane, seconds)
        return error

    def _late_locked(self, lane: Lane, seconds: float | None) -> PoolTimeoutError:
        self.accounts.total.timeouts += 1
        lane.ledger.timeouts += 1
        return self.timeout_error_locked(f"pool {self.name}: no resource within {seconds:g} s", lane.key)

    def timeout_error_locked(self, message: str, key: object) -> PoolTimeoutError:
        """Build a PoolTimeoutError that says how things stand."""
        accounts = self.accounts
        idle = self.count_idle_locked()
        busy = accounts.creating + accounts.destroying + accounts.quarantined + accounts.pending
        holders = None
        if self.track:
            held: list[tuple[int, _stack.Frames]] = [
                record.holder
                for record in list(self.by_id.values())
                if record.phase is READY and record.holder is not None
            ]
            holders = _stack.render(min(held)[1]) if held else None
        return PoolTimeoutError(
            message,
            key=key,
            limits=self.limits,
            idle=idle,
            leased=accounts.size - idle - busy,
            pending=accounts.pending,
            creating=accounts.creating,
            waiters=len(accounts.sleeping),
            destroying=accounts.destroying,
            quarantined=accounts.quarantined,
            holders=holders,
        )
