"""A real pool and the naive model of one, side by side: the hooks of the real one, who holds what, and the comparison.

What can be done with them is in `tests.core.test_pool_model`.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    LeaseReleasedError,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolLimits,
    PoolObserver,
    PoolTimeoutError,
    Quarantine,
    ResourcePool,
)
from tests.core import pool_model as model
from tests.core.pool_model import PoolModel
from tests.core.pool_things import DRAWN, GONE, PENDING, STUCK, Thing
from tests.helpers.clocks import without_reaper
from tests.helpers.invariants import NOW, SINCE_START, assert_balanced

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import PoolStats
    from tests.core.pool_things import Limits

KEYS = ("a", "b", "c", "d")


class HookError(Exception):
    """What a hook of this test raises."""


class Hold(NamedTuple):
    """What somebody holds, and by what: a lease, a group, or nothing, on the fast tier."""

    by: Any
    things: list[Thing]


class PoolTwin:
    """A pool twice: for real, with hooks that obey what they work on, and as a model."""

    def begin(self, limits: Limits, costs: dict[str, int], *, resets: bool, validates: bool) -> None:
        """Make both."""
        self.patch = pytest.MonkeyPatch()
        self.clock = without_reaper(self.patch)
        for name, module in list(sys.modules.items()):
            if name.startswith("respool._") and hasattr(module, "draw"):
                self.patch.setattr(module, "draw", lambda: DRAWN)
        self.model = PoolModel(limits, costs, resets=resets, validates=validates)
        self.model.now = self.clock.now
        self.limits = limits
        self.costs = costs
        self.alive: list[Thing] = []  # in the eyes of the hooks
        self.made: list[Thing] = []
        self.plan: list[str] = []  # what the next creates do
        self.broken = ""  # a hook that fails
        self.holds: list[Hold] = []
        self.most: dict[str | None, tuple[int, int]] = {}  # size and cost when last looked at
        self.sound = True
        self.tested: ResourcePool[str, Any] = ResourcePool(
            self.create,
            self.destroy,
            self.validate if validates else None,
            reset=self.reset if resets else None,
            cost=self.cost,
            limits=self.in_force(limits),
            observer=PoolObserver(),
        )

    @property
    def pool(self) -> ResourcePool[str, Any]:
        """The pool under test; whoever uses it may be the one who finds it wrong, until `compare` says no."""
        self.sound = False
        return self.tested

    def in_force(self, limits: Limits) -> PoolLimits:
        """Give the limits to the pool."""

        def cap(key: str) -> int | None:
            if self.broken == "cap":
                raise HookError
            return limits.caps[key]

        return PoolLimits(
            max_size=limits.max_size,
            max_cost=limits.max_cost,
            max_idle=limits.max_idle,
            max_per_key=cap,
            max_waiters=0,
            idle_timeout=limits.idle_timeout,
            max_lifetime=limits.max_lifetime,
            lifetime_jitter=limits.jitter,
        )

    # -- hooks -----------------------------------------------------------------------------------------

    def create(self, key: str) -> Thing | None:
        """Make one: it counts from here until its destroy is over."""
        limits = self.model.limits
        costs = [one.cost for one in self.alive if not one.left] + [self.costs[key]]
        cap = limits.caps[key]
        assert limits.max_size is None or len(costs) <= limits.max_size
        assert limits.max_cost is None or sum(costs) <= limits.max_cost
        assert cap is None or sum(one.key == key and not one.left for one in self.alive) < cap
        plan = self.plan.pop(0) if self.plan else "good"
        if plan == "error":
            raise HookError
        if plan == "held" and self.model.things:
            return next(one for one in self.alive if one.state is not GONE)
        if plan != "good":
            return None
        thing = self.thing(key)
        self.alive.append(thing)
        self.made.append(thing)
        return thing

    def thing(self, key: str) -> Thing:
        """Give a new one."""
        return Thing(key, self.costs[key], born=self.model.birth(), since=self.clock.now)

    def destroy(self, key: str, thing: Thing) -> None:
        """End one."""
        assert thing.key == key
        assert not self.holder_of(thing), "destroyed in somebody's hands"
        if thing.destroy == "quarantine":
            raise Quarantine
        self.alive.remove(thing)
        if thing.destroy == "error":
            raise HookError

    def validate(self, key: str, thing: Thing) -> bool:
        """Tell whether one is good."""
        assert thing.key == key
        assert thing in self.alive
        assert not self.holder_of(thing)
        if thing.valid == "error":
            raise HookError
        return thing.valid == "yes"

    def reset(self, key: str, thing: Thing) -> None:
        """Clean one."""
        assert thing.key == key
        assert thing in self.alive
        assert thing.when is None or thing.when.answer == "yes", "reset before it's free"
        if thing.reset == "error":
            raise HookError

    def cost(self, key: str) -> int:
        """Tell what one costs."""
        if self.broken == "cost":
            raise HookError
        return self.costs[key]

    def holder_of(self, thing: Thing) -> list[Hold]:
        """Give who holds one."""
        return [hold for hold in self.holds if thing in hold.things]

    # -- acquiring -----------------------------------------------------------------------------------

    def call(
        self,
        key: str,
        expected: tuple[str | None, list[Thing], int],
        way: Callable[[], Any],
        *,
        patient: bool,
    ) -> None:
        """Make a call, and see that it comes to what is expected."""
        failure, own, number = expected
        before = len(self.made)
        got: Any = None
        raised: Exception | None = None
        try:
            got = way()
        except (PoolError, HookError) as error:
            raised = error
        made = self.made[before:]
        assert len(made) == number
        assert self.plan == self.model.creates
        self.model.things += made
        if failure is None:
            assert raised is None
            things = own + made
            for thing in made:
                self.model.hand_out(thing)
            self._hold(got, things)
        elif failure is model.NONE and raised is None:
            assert got is None
        elif failure is model.NONE and patient:
            self.model.count(key, "rejected")
            assert type(raised) is PoolExhaustedError
        elif failure is model.NONE:
            self.model.count(key, "timeouts")
            assert type(raised) is PoolTimeoutError
        elif failure is model.FAILED:
            self.model.put_back(own, made)
            assert type(raised) in {HookError, PoolError}
        else:
            assert type(raised) is (PoolClosedError if failure is model.CLOSED else PoolExhaustedError)
        self.model.end_of_call()

    def _hold(self, got: Any, things: list[Thing]) -> None:
        for thing in things:
            assert not self.holder_of(thing), "two holders"
            assert thing in self.alive
            assert thing.when is None, "handed out before it was free"
            assert self.model.overdue(thing) != "lifetime"
        if isinstance(got, Thing):
            assert [got] == things
            self.holds.append(Hold(None, things))
        elif hasattr(got, "resources"):
            assert sorted(map(id, got.resources)) == sorted(map(id, things))
            self.holds.append(Hold(got, list(got.resources)))
        else:
            assert [got.resource] == things
            self.holds.append(Hold(got, things))

    def saying_yes(self) -> int:
        """Tell how many would say that they're free if they were asked."""
        pending = self.model.of(None, PENDING, STUCK)
        return sum(one.when is not None and one.when.answer == "yes" for one in pending)

    def order_as_the_pool(self) -> None:
        """Take over the order of idle ones of which several have come back in an order that is the pool's choice."""
        guards = [guard for row in self.pool._core.keys.all_locked() for guard in row.idle]
        guards.sort(key=lambda guard: guard.record.stamp)
        order: list[Thing] = [guard.record.resource for guard in guards]
        assert sorted(map(id, order)) == sorted(map(id, self.model.idle))
        self.model.idle = order

    # -- giving back ---------------------------------------------------------------------------------

    def take_back(self, hold: Hold) -> None:
        """Give back what somebody held, and see that it's spent."""
        self.model.give_back(self.in_order(hold))
        (self.pool.release if hold.by is None else type(hold.by).release)(hold.by or hold.things[0])
        self.is_spent(hold)
        self.model.end_of_call()

    def in_order(self, hold: Hold) -> list[Thing]:
        """Give the things of a hold in the order in which the pool takes them back: the last first, unless it's all one step."""
        limits = self.model.limits
        slowly = (
            limits.timed
            or self.model.resets
            or self.model.closed
            or limits.max_idle is not None
            or self.model.is_beyond_any()
            or any(thing.old or thing.forgotten for thing in hold.things)
        )
        return hold.things[::-1] if slowly else hold.things

    def is_spent(self, hold: Hold) -> None:
        """See that what has been given back can't be used any more, nor given back again."""
        if hold.by is None:
            for call in (self.pool.release, self.pool.discard):
                with pytest.raises(InvalidReleaseError):
                    call(hold.things[0])
            return
        assert hold.by.released
        hold.by.release()
        with pytest.raises(LeaseReleasedError):
            hold.by.discard()

    def leak(self, number: int) -> None:
        """Drop a lease or a group."""
        things = self.holds[number].things
        leaked = self.pool.stats().leaked
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            del self.holds[number]
            stats = self.pool.stats()
            assert (stats.leaked, stats.destroying) == (leaked + len(things), len(things)), "not seen at once"
            self.pool.clear("a key that nobody has")
        assert [warning.category for warning in told] == [LeaseLeakWarning] * len(things)
        for thing in things:
            self.model.leak(thing)
        self.model.end_of_call()

    # -- what must be so after each call -------------------------------------------------------------

    def compare(self) -> None:
        """Compare all numbers, in all and of each key; see that limits are kept, and that what exists is known."""
        total = self.pool.stats()
        parts = {key: self.pool.stats(key) for key in KEYS}
        assert flat(total) == self.model.stats()
        for key, part in parts.items():
            assert flat(part) == self.model.stats(key)
            assert_balanced(part)
        assert_balanced(total)
        for field in NOW:
            assert sum(getattr(part, field) for part in parts.values()) == getattr(total, field)
        limits = self.model.limits
        bounds = {key: (limits.caps[key], None) for key in KEYS} | {None: (limits.max_size, limits.max_cost)}
        for name, (most, cost) in bounds.items():
            stats = total if name is None else parts[name]
            before = self.most.get(name, (0, 0))
            assert most is None or stats.size <= max(most, before[0])
            assert cost is None or stats.cost <= max(cost, before[1])
            self.most[name] = (stats.size, stats.cost)
        assert limits.max_idle is None or total.idle <= limits.max_idle
        for hold in self.holds:
            assert all(thing in self.alive for thing in hold.things)
        known = [one for one in self.alive if one.state is not GONE]
        assert sorted(map(id, known)) == sorted(map(id, self.model.things))
        self.sound = True


def flat(stats: PoolStats) -> dict[str, Any]:
    """Give all numbers that aren't zero."""
    numbers = {name: getattr(stats, name) for name in NOW + SINCE_START}
    numbers |= {f"destroyed for {reason}": number for reason, number in stats.destroyed_for.items()}
    numbers |= {f"errors of {hook}": number for hook, number in stats.hook_errors.items()}
    return {name: number for name, number in numbers.items() if number}
