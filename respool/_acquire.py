"""The acting side, part two: getting a resource, by waiting in line, creating and validating.

What an acquire is given, it holds as a guard in a local variable.  If an interrupt ends it at any point, the guard's finaliser gives everything back; the
`except` clauses here are for prompt and well-named endings.
"""

from __future__ import annotations

from _thread import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn

from respool import _stack
from respool._engine import CANCELLED, GOING, RETURNED, STALE, UNUSED, WAITED, Lane, Work
from respool._keys import KeyTable
from respool._release import Releasing
from respool._rows import CLOSED, SERVED, WAITING
from respool._slot import CHECKING, CONDEMNED, CREATING, GONE, READY, Record, silence
from respool._waiter import BACKSTOP, Waiter
from respool.errors import (
    LeaseLostError,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolReentrancyError,
    PoolTimeoutError,
    safe_repr,
)
from respool.limits import check_cap, check_cost, check_timeout

if TYPE_CHECKING:
    from respool._slot import Guard

__all__ = ["Acquiring"]

# What a step in line came to.
DECIDED: Final = "served, sleeping, or out of line"
DESTROY_FIRST: Final = "something must be destroyed to make room"
DROPPED: Final = "the row has been dropped from the keys: find it anew"

SUSPECTING: Final = 0.005
"""Seconds until the listener looks again while a note is open whose cycle isn't cleared yet."""


class Acquiring(Releasing):
    """How an acquire that finds nothing on the fast way comes to its resource."""

    __slots__ = ()

    # -- keys ------------------------------------------------------------------------------------------

    def lane_of(self, key: object) -> Lane:
        """Find or make the row of `key`."""
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
                cap = self._cap_of(key)
                lane = self.under_lock(self._add_lane_locked, key, digest, chain, cap)
            if lane is not None:
                self.keys.remember(key, lane)
                return lane

    def known_lane(self, key: object) -> Lane | None:
        """Find the row of `key` if there is one."""
        digest = self.keys.hash_of(key)
        return KeyTable.pick(self.under_lock(self.keys.chain_locked, digest), key)

    def _cap_of(self, key: object) -> int | None:
        cap = self.limits.max_per_key
        if not callable(cap):
            return cap
        try:
            return check_cap(cap(key))
        except BaseException as error:
            self.hooks.failed(None, key, "max_per_key", error)
            raise

    def _add_lane_locked(
        self, key: object, digest: int, chain: tuple[Lane, ...], cap: int | None
    ) -> Lane | None:
        if self.closed:
            self.refuse_closed()
        lane = self.keys.add_locked(digest, chain, lambda: Lane(self, key, digest, cap))
        if lane is not None:
            self.accounts.rows += 1
        return lane

    # -- acquiring -------------------------------------------------------------------------------------

    def take(self, lane: Lane, timeout: object, *, wait: bool) -> Guard | None:
        """Get a resource of `lane`: its guard, ready, in the caller's hands.

        None only with ``wait=False``, where nothing is to be had at once.
        """
        seconds = check_timeout(timeout)
        if seconds == 0:
            wait = False
        guard = self._from_idle(lane)
        if guard is None or not self._passes(guard):
            deadline = None if seconds is None or not wait else monotonic() + seconds
            guard = self._take_in_line(lane, seconds, deadline, wait=wait, invalid=guard)
        if self.track and guard is not None:
            guard.record.holder = (next(self.numbers), _stack.capture())
        return guard

    def _from_idle(self, lane: Lane) -> Guard | None:
        """Pop an idle resource where that needs no lock: nobody waits for it, and none are counted."""
        if self.gate or lane.queue or self.limits.max_idle is not None:
            return None
        try:
            return lane.idle.pop()
        except IndexError:
            return None

    def _passes(self, guard: Guard) -> bool:
        """Validate a resource in hand.  One that fails is condemned, to be destroyed by the caller."""
        hooks = self.hooks
        if hooks.validate is None:
            return True
        record = guard.record
        record.phase = CHECKING
        hooks.enter(record)
        try:
            valid = bool(hooks.validate(record.row.key, record.resource))
        except BaseException as error:
            hooks.leave(record)
            hooks.failed(record.row, record.row.key, "validate", error)
            if not isinstance(error, Exception):
                self.destroy(guard, "invalid")
                raise
            valid = False
        else:
            hooks.leave(record)
        if valid:
            record.phase = READY
            return True
        record.reason = "invalid"
        record.phase = CONDEMNED
        self.inbox.append([GOING, record])
        return False

    def _take_in_line(
        self, lane: Lane, seconds: float | None, deadline: float | None, *, wait: bool, invalid: Guard | None
    ) -> Guard | None:
        record = Record(lane)
        own: Guard | None = self.guards()
        own.record = record  # from here on the place in line, and whatever comes of it, can't be lost
        guard: Guard | None = None
        try:
            self._be_in_time(lane, seconds, deadline)
            record.cost = self._cost_of(lane)
            ticket = Waiter(next(self.numbers), record, get_ident())
            record.holder = ticket
            while self._line_up(ticket, invalid, seconds, deadline, wait=wait):
                invalid = None
                guard = ticket.grant
                if guard is None:
                    if self._create(record, seconds, deadline):
                        return own
                    self.destroy(own, "closed")
                    self.refuse_closed()
                ticket.grant = None
                if self.hooks.validate is not None:
                    self._be_in_time(record.row, seconds, deadline)
                    if not self._passes(guard):
                        invalid, guard = guard, None
                        continue
                record.phase = GONE
                silence(own)
                return guard
        except BaseException:
            # A traceback may keep this frame for long.  Let go now: the finalisers of the guards give everything back.
            if invalid is not None and invalid.record.phase is CONDEMNED:
                self._destroy(invalid)
            if guard is not None and guard.record.phase is READY:
                self.inbox.append([RETURNED, guard])  # it was never in the user's hands
            own = guard = invalid = None
            self.inbox.append([UNUSED, record.row])
            self.pump()
            raise
        record.phase = GONE
        silence(own)
        if not record.row.size:
            self.inbox.append([UNUSED, record.row])
            self.pump()
        return None

    def _cost_of(self, lane: Lane) -> int:
        hook = self.hooks.cost
        if hook is None:
            return 1
        try:
            return check_cost(hook(lane.key))
        except BaseException as error:
            self.hooks.failed(lane, lane.key, "cost", error)
            raise

    # -- in line ---------------------------------------------------------------------------------------

    def _line_up(
        self,
        ticket: Waiter,
        invalid: Guard | None,
        seconds: float | None,
        deadline: float | None,
        *,
        wait: bool,
    ) -> bool:
        """Wait in line until `ticket` is served; False where it may not wait and nothing is to be had at once."""
        record = ticket.record
        work = Work()
        if invalid is not None:
            work.condemned.append(invalid)
            invalid = None
        try:
            step = self.under_lock(self._enter_locked, ticket, work, wait)
            while step is not DECIDED:
                self.act(work)
                if step is DROPPED:
                    record.row = record.lane = self.lane_of(record.row.key)
                    step = self.under_lock(self._enter_locked, ticket, work, wait)
                else:  # what was destroyed made room: for this one, as long as nobody older needs it
                    step = self.under_lock(self._park_locked, ticket, work, wait)
        finally:
            if work:
                self.act(work)
        if ticket.state is WAITING:
            self._sleep(ticket, deadline)
        if ticket.state is SERVED:
            return True
        if ticket.state is CLOSED:
            self.refuse_closed()
        if wait or seconds == 0:
            raise self.late(record.row, seconds)
        return False

    def _enter_locked(self, ticket: Waiter, work: Work, wait: bool) -> str:  # noqa: FBT001 - passed on by `under_lock`
        record = ticket.record
        row = record.row
        if row.dead:
            return DROPPED
        if self.closed:
            self.refuse_closed()
        accounts = self.accounts
        if not accounts.fits_ever(record.cost):
            accounts.total.rejected += 1
            row.ledger.rejected += 1
            msg = f"pool {self.name}: a resource for key {safe_repr(row.key)} costs {record.cost}, more than max_cost={accounts.max_cost} allows"
            raise PoolExhaustedError(msg)
        self.shut_locked()  # first: whoever gives something back from now on looks for who waits
        accounts.enter(ticket)
        return self._park_locked(ticket, work, wait)

    def _park_locked(self, ticket: Waiter, work: Work, wait: bool) -> str:  # noqa: FBT001
        accounts = self.accounts
        self.settle_locked(work)
        if ticket.state is not WAITING:
            return DECIDED
        if work.condemned:
            return DESTROY_FIRST
        row = ticket.record.row
        if not wait:
            self.withdraw_locked(ticket)
            return DECIDED
        if self.alone_locked(ticket):
            self.withdraw_locked(ticket)
            msg = (
                f"pool {self.name}: waiting for key {safe_repr(row.key)} inside a hook of this pool would never end: "
                "only hooks that wait themselves could give anything back"
            )
            raise PoolReentrancyError(msg)
        if self.limits.max_waiters is not None and len(accounts.sleeping) >= self.limits.max_waiters:
            self.withdraw_locked(ticket)
            accounts.total.rejected += 1
            row.ledger.rejected += 1
            msg = f"pool {self.name}: {len(accounts.sleeping)} callers wait already, max_waiters={self.limits.max_waiters}"
            raise PoolExhaustedError(msg)
        accounts.sleeping[ticket.seq] = ticket
        if not ticket.slept:
            ticket.slept = True
            accounts.total.waits += 1
            row.ledger.waits += 1
        self.appoint_locked()
        return DECIDED

    def _sleep(self, ticket: Waiter, deadline: float | None) -> None:
        row = ticket.record.row
        began = monotonic()
        outcome = "cancelled"
        try:
            self.hooks.tell("queued", row.key)
            while ticket.state is WAITING:
                left = BACKSTOP if deadline is None else min(BACKSTOP, deadline - monotonic())
                if left <= 0:
                    self.under_lock(self._give_up_locked, ticket)
                    break
                ticket.listen(self.gate, min(left, SUSPECTING) if self.suspects else left)
                if ticket.state is WAITING or self.has_notes():
                    self.pump()
            outcome = {SERVED: "served", CLOSED: "closed"}.get(ticket.state, "timeout")
        finally:
            seconds = monotonic() - began
            self.inbox.append([WAITED, (row, seconds)])
            if outcome == "cancelled":
                self.inbox.append([CANCELLED, row])
            self.hooks.tell("waited", row.key, seconds, outcome)

    def _give_up_locked(self, ticket: Waiter) -> None:
        if ticket.state is WAITING:
            self.accounts.leave(ticket)
            self.again = True  # those behind it are looked at again

    # -- creating --------------------------------------------------------------------------------------

    def _create(self, record: Record, seconds: float | None, deadline: float | None) -> bool:
        """Create the resource of `record`, which has a room; False where the pool has been closed meanwhile.

        Its guard stays with the caller alone: a traceback through here must not keep it alive.
        """
        hooks = self.hooks
        lane = record.row
        generation = lane.generation
        self._be_in_time(lane, seconds, deadline)
        began = monotonic() if hooks.times_creation else 0.0
        hooks.enter(record)
        try:
            try:
                record.resource = resource = hooks.create(lane.key)
            finally:
                hooks.leave(record)
            if record.phase is not CREATING:
                msg = f"pool {self.name}: the process has forked inside the create hook"
                raise LeaseLostError(msg)
            if resource is None:
                msg = f"pool {self.name}: create returned None for key {safe_repr(lane.key)}"
                raise PoolError(msg)
            if self.by_id.setdefault(id(resource), record) is not record:
                record.resource = None
                msg = f"pool {self.name}: create returned {safe_repr(resource)}, which the pool already holds"
                raise PoolError(msg)
        except BaseException as error:
            hooks.failed(lane, lane.key, "create", error)
            raise
        seconds_taken = monotonic() - began if hooks.times_creation else 0.0
        closed = self.under_lock(self._made_locked, record, generation)
        if hooks.times_creation:
            hooks.tell("created", lane.key, seconds_taken)
        return not closed

    def _made_locked(self, record: Record, generation: int) -> bool:
        self.accounts.made(record)
        record.holder = None
        if record.row.generation != generation:
            record.lane = STALE  # clear() came while it was created
        return self.closed

    # -- refusing --------------------------------------------------------------------------------------

    def refuse_closed(self) -> NoReturn:
        """Raise PoolClosedError."""
        msg = f"pool {self.name} is closed"
        raise PoolClosedError(msg)

    def _be_in_time(self, lane: Lane, seconds: float | None, deadline: float | None) -> None:
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
        idle = sum(len(lane.idle) for lane in self.keys.all_locked())
        busy = accounts.creating + accounts.destroying + accounts.quarantined
        holders = None
        if self.track:
            held = [
                record.holder
                for record in list(self.by_id.values())
                if record.phase is READY and type(record.holder) is tuple
            ]
            holders = _stack.render(min(held)[1]) if held else None
        return PoolTimeoutError(
            message,
            key=key,
            limits=self.limits,
            idle=idle,
            leased=accounts.size - idle - busy,
            creating=accounts.creating,
            waiters=len(accounts.sleeping),
            holders=holders,
        )
