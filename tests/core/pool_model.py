"""What a pool that one thread uses has to do, thought out the slow way: one list of what exists, gone through for each question.

Each method says what a call of the pool must come to, and changes the list accordingly, before the call is made. What hooks do
when they're called is written on the things themselves, so that it doesn't matter how often or in which order they're asked. The
rules are those of the contract, and no line is taken from the package.

Nobody ever waits here: that is the matter of `tests.core.accounting_model` and of the tests with threads.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.core.pool_things import DRAWN, GONE, HELD, IDLE, KEPT, PENDING, STUCK

if TYPE_CHECKING:
    from tests.core.pool_things import Limits, Thing, When

# What an acquire comes to that gives nothing.
CLOSED = "closed"
NEVER = "could never be had"
NONE = "not to be had at once"
FAILED = "create failed"


class PoolModel:
    """A pool as a list."""

    def __init__(self, limits: Limits, costs: dict[str, int], *, resets: bool, validates: bool) -> None:
        self.limits = limits
        self.costs = costs
        self.resets = resets
        self.validates = validates
        self.now = 0.0
        self.closed = False
        self.things: list[Thing] = []
        self.idle: list[Thing] = []  # the one given back the longest ago first
        self.creates: list[str] = []  # what the next creates come to: "good", "error", "none" or "held"
        self.total: Counter[str] = Counter()
        self.history: dict[str, Counter[str]] = {}

    # -- looking things up -----------------------------------------------------------------------------

    def of(self, key: str | None = None, *states: str) -> list[Thing]:
        """Give the things of a key, or of all, in one of these states."""
        return [one for one in self.things if key in {None, one.key} and (not states or one.state in states)]

    def fits(self, key: str, more: int, without: list[Thing]) -> bool:
        """Tell whether so many more of a key would be within `max_size` and `max_cost` if these were not there."""
        costs = [one.cost for one in self.things if one not in without] + [self.costs[key]] * more
        limits = self.limits
        return (limits.max_size is None or len(costs) <= limits.max_size) and (
            limits.max_cost is None or sum(costs) <= limits.max_cost
        )

    def is_full(self, key: str, more: int) -> bool:
        """Tell whether so many more would pass a key's cap."""
        cap = self.limits.caps.get(key)
        return cap is not None and len(self.of(key)) + more > cap

    def is_beyond(self, key: str | None = None) -> bool:
        """Tell whether there's more of a key, or in all, than limits that have shrunk allow."""
        return not self.fits(next(iter(self.costs)), 0, []) if key is None else self.is_full(key, 0)

    def is_beyond_any(self) -> bool:
        """Tell whether there's more of anything."""
        return any(self.is_beyond(key) for key in [None, *self.costs])

    def may_grow(self, key: str) -> bool:
        """Tell whether one more may become idle."""
        limits = self.limits
        return (
            not self.is_beyond_any()
            and not self.is_full(key, 1)
            and self.fits(key, 1, [])
            and (limits.max_idle is None or len(self.idle) < limits.max_idle)
        )

    def overdue(self, thing: Thing) -> str | None:
        """Tell why a thing must not be handed out any more, if time says so."""
        limits = self.limits
        lifetime = limits.max_lifetime
        if lifetime is not None and self.now >= thing.born + lifetime * (1 - limits.jitter * DRAWN):
            return "lifetime"
        idle = limits.idle_timeout is not None and self.now - thing.since >= limits.idle_timeout
        return "idle" if idle else None

    def birth(self) -> float:
        """Tell when what is made now is born; 0 where the pool doesn't look at the clock."""
        return self.now if self.limits.timed else 0.0

    # -- counting --------------------------------------------------------------------------------------

    def count(self, key: str | None, what: str, number: int = 1) -> None:
        """Note that something has happened, to one key or to none."""
        self.total[what] += number
        if key is not None:
            self.history.setdefault(key, Counter())[what] += number

    def end_of_call(self) -> None:
        """Nothing idle stays beyond the limits, and a key that has no resource is forgotten, with its history."""
        self.settle()
        for key in list(self.history):
            if not self.of(key):
                del self.history[key]

    def stats(self, key: str | None = None) -> dict[str, Any]:
        """Tell what the snapshot must say, but for what is zero."""
        happened = self.total if key is None else self.history.get(key, Counter())
        now = {
            "idle": len(self.of(key, IDLE)),
            "leased": len(self.of(key, HELD)),
            "pending": len(self.of(key, PENDING)),
            "quarantined": len(self.of(key, STUCK, KEPT)),
            "size": len(self.of(key)),
            "cost": sum(one.cost for one in self.of(key)),
        }
        return {what: number for what, number in (happened | now).items() if number}

    # -- the end of things -----------------------------------------------------------------------------

    def leave(self, thing: Thing, how: str) -> None:
        """It's out of the pool: "destroyed", "detached" or "abandoned"."""
        thing.state = GONE
        self.things.remove(thing)
        thing.left = how != "destroyed"
        if thing in self.idle:
            self.idle.remove(thing)
        self.count(thing.key, how)

    def destroy(self, thing: Thing, reason: str) -> None:
        """It has to go, for this reason."""
        if thing.forgotten:
            self.leave(thing, "abandoned")
            return
        if thing in self.idle:
            self.idle.remove(thing)
        if thing.destroy != "good":
            self.count(thing.key, "errors of destroy")
        if thing.destroy == "quarantine":
            thing.state = KEPT
            return
        self.count(thing.key, f"destroyed for {reason}")
        self.leave(thing, "destroyed")

    def settle(self) -> None:
        """Let idle ones go, the least recently used first, as long as there's more than the limits allow."""
        self.shed()
        while self.limits.max_idle is not None and len(self.idle) > self.limits.max_idle:
            self.destroy(self.idle[0], "surplus")
            self.shed()

    def shed(self) -> None:
        """The same, but for what `max_idle` has to say."""
        for key in [*self.costs, None]:
            while self.is_beyond(key) and any(key in {None, one.key} for one in self.idle):
                self.destroy(next(one for one in self.idle if key in {None, one.key}), "surplus")

    # -- coming back -----------------------------------------------------------------------------------

    def lie_down(self, thing: Thing) -> None:
        """It's idle from now on."""
        thing.state = IDLE
        self.idle.append(thing)

    def come_back(self, thing: Thing) -> None:
        """Its holder, or whoever has asked whether it's free, gives it back."""
        thing.when = None
        if thing.forgotten:
            self.leave(thing, "abandoned")
        elif self.closed:
            self.destroy(thing, "closed")
        elif thing.old:
            self.destroy(thing, "cleared")
        elif self.overdue(thing) == "lifetime":
            self.destroy(thing, "lifetime")
        elif self.resets and thing.reset == "error":
            self.count(thing.key, "errors of reset")
            self.destroy(thing, "invalid")
        else:
            thing.since = self.now
            self.lie_down(thing)

    def give_back(self, things: list[Thing]) -> None:
        """Holders give these back, in this order."""
        for thing in things:
            self.come_back(thing)
            self.settle()

    def give_back_when(self, things: list[Thing], when: When) -> bool:
        """Holders give these back with a `when`; False if that raises, and they keep them."""
        if when.answer == "error":
            self.count(things[0].key, "errors of when")
            return False
        if when.answer == "yes":
            self.give_back(things)
            return True
        for thing in things:
            thing.state = PENDING
            thing.when = when
            if thing.forgotten:
                self.leave(thing, "abandoned")
        return True

    def ask(self, things: list[Thing]) -> None:
        """These, pending, are asked whether they're free."""
        for thing in things:
            assert thing.when is not None
            if thing.when.answer == "yes":
                self.come_back(thing)
            elif thing.when.answer == "error":
                thing.state = STUCK
                if not thing.reported:
                    thing.reported = True
                    self.count(thing.key, "errors of when")

    def leak(self, thing: Thing) -> None:
        """Its lease is dropped: it's destroyed."""
        self.count(thing.key, "leaked")
        self.destroy(thing, "leaked")

    # -- acquiring -------------------------------------------------------------------------------------

    def acquire(self, key: str, number: int, *, batch: bool) -> tuple[str | None, list[Thing], int]:
        """So many of a key are wanted at once, all or none where it's a `batch`, without waiting.

        Gives what it comes to if nothing is had; the idle ones that are; and how many more are created, also where a later
        create fails.
        """
        if self.closed:
            return CLOSED, [], 0
        cap = self.limits.caps.get(key)
        if not self.fits(key, number, self.things) or (cap is not None and number > cap):
            self.count(key, "rejected")
            return NEVER, [], 0
        asked_own = asked_all = False
        while True:
            own = [one for one in self.idle if one.key == key][::-1][:number]
            new = number - len(own)
            if not own and self.of(key, PENDING) and not asked_own:
                asked_own = True
                self.ask(self.of(key, PENDING))
                self.end_of_call()  # nobody is in line yet
            elif new and (self.is_full(key, new) or not self._make_room(key, new)):
                if asked_all or not self.of(None, PENDING):
                    self.settle()
                    return NONE, [], 0
                asked_own = asked_all = True
                self.ask(self.of(None, PENDING))
                self.shed()  # what is idle for a moment only is there for who wants it, whatever `max_idle` says
            elif all([self._passes(thing) for thing in own]):  # noqa: C419 - each is looked at
                return self._take(key, own, new)
            else:
                # Several at once keep their place in line, and ask no more before they need to.
                asked_own = asked_own or batch

    def _make_room(self, key: str, new: int) -> bool:
        """Let others go, just as many as have to; none if all wouldn't do."""
        others = [one for one in self.idle if one.key != key]
        for count in range(len(others) + 1):
            if self.fits(key, new, others[:count]):
                for thing in others[:count]:
                    self.destroy(thing, "evicted")
                return self.fits(key, new, []) or self._make_room(key, new)
        return False

    def _passes(self, thing: Thing) -> bool:
        """Tell whether an idle one is still good; one that isn't goes."""
        reason = self.overdue(thing)
        if reason is None and self.validates and thing.valid != "yes":
            reason = "invalid"
            if thing.valid == "error":
                self.count(thing.key, "errors of validate")
        if reason is not None:
            self.destroy(thing, reason)
        return reason is None

    def _take(self, key: str, own: list[Thing], new: int) -> tuple[str | None, list[Thing], int]:
        for thing in own:
            self.idle.remove(thing)
            thing.state = HELD
        made = self.create(key, new)
        if made < new:
            return FAILED, own, made
        for thing in own:
            self.hand_out(thing)
        self.settle()
        return None, own, made

    def put_back(self, own: list[Thing], made: list[Thing]) -> None:
        """These were had in vain, since a create failed.  In which order they come back is the pool's choice: this is its."""
        looked_at = self.validates or self.limits.timed
        for thing in reversed([*(own[::-1] if looked_at else own), *made]):
            self.lie_down(thing)

    def create(self, key: str, number: int) -> int:
        """Up to so many are created; give how many until one fails."""
        for made in range(number):
            if self.creates and self.creates.pop(0) != "good":
                self.count(key, "errors of create")
                return made
            self.count(key, "created")
        return number

    def hand_out(self, thing: Thing) -> None:
        """Somebody has it now."""
        self.count(thing.key, "acquired")
        if thing.uses:
            self.count(thing.key, "reused")
        thing.uses += 1
        thing.state = HELD

    # -- management ------------------------------------------------------------------------------------

    def clear(self, key: str | None) -> int:
        """Idle ones go now, the others when they come back."""
        idle = [one for one in self.idle if key in {None, one.key}]
        for thing in self.of(key):
            thing.old = True
        for thing in idle:
            self.destroy(thing, "cleared")
        self.settle()
        return len(idle)

    def forget(self, key: str) -> int:
        """All of a key are left behind: now, but for those that somebody holds."""
        now = self.of(key, IDLE, PENDING, STUCK, KEPT)
        for thing in self.of(key):
            thing.forgotten = True
        for thing in now:
            self.leave(thing, "abandoned")
        return len(now)

    def reap(self) -> int:
        """All are asked that are not free yet, and what is overdue goes; give how many of these."""
        for thing in self.of(None, STUCK):
            thing.state = PENDING
        self.ask(self.of(None, PENDING))
        self.settle()
        overdue = [(one, reason) for one in self.idle if (reason := self.overdue(one))]
        for thing, reason in overdue:
            self.destroy(thing, reason)
        self.settle()
        return len(overdue)

    def resize(self, limits: Limits) -> None:
        """Other limits are in force."""
        old, self.limits = self.limits, limits
        if limits.timed and not old.timed:  # nobody has looked at the clock
            for thing in self.things:
                thing.since = self.now
                thing.born = thing.born or self.now
        self.settle()

    def close(self) -> bool:
        """It's closed; tell whether everything has come back, but for what nobody can free."""
        self.closed = True
        for thing in self.idle.copy():
            self.destroy(thing, "closed")
        self.ask(self.of(None, PENDING))
        return not self.of(None, HELD, PENDING)
