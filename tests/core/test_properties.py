"""A pool against a naive one, over random steps of one thread: who gets what, and what goes for it.

The model keeps plain lists and looks through all of them at each step; the pool must do the same to
the same resources, and its counters must be those of the model.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from respool import (
    InvalidReleaseError,
    Lease,
    LeaseReleasedError,
    PoolExhaustedError,
    PoolLimits,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory, Thing

KEYS = ("a", "b", "c")
COST = {"a": 1, "b": 2, "c": 4}


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    """Give a limit that is often there, and mostly small."""
    return st.none() | st.integers(low, high)


class PoolMachine(RuleBasedStateMachine):
    """Steps of one thread on a pool with drawn limits."""

    leases = Bundle("leases")
    things = Bundle("things")
    spent = Bundle("spent")

    @initialize(
        max_size=optional(1, 5),
        max_per_key=optional(1, 4),
        max_idle=optional(0, 4),
        max_cost=optional(1, 12),
        validated=st.booleans(),
    )
    def make(
        self,
        max_size: int | None,
        max_per_key: int | None,
        max_idle: int | None,
        max_cost: int | None,
        *,
        validated: bool,
    ) -> None:
        """Make the pool and its model."""
        self.factory = Factory()
        self.limits = PoolLimits(
            max_size=max_size, max_per_key=max_per_key, max_idle=max_idle, max_cost=max_cost
        )
        self.pool: ResourcePool[str, Thing] = ResourcePool(
            self.factory.create,
            self.factory.destroy,
            self.factory.validate if validated else None,
            cost=COST.__getitem__,
            limits=self.limits,
        )
        self.validated = validated
        self.idle: list[Thing] = []  # the one unused for longest first
        self.out: list[Thing] = []
        self.open: list[Lease[str, Thing]] = []
        self.cleared: set[int] = set()
        self.gone: list[int] = []
        self.counts: Counter[str] = Counter()

    # What a naive pool would do.

    def _drop(self, thing: Thing, reason: str) -> None:
        self.gone.append(thing.number)
        self.counts[reason] += 1

    def _existing(self, key: str | None = None) -> list[Thing]:
        return [thing for thing in self.idle + self.out if key in {None, thing.key}]

    def _missing(self, key: str, without: list[Thing]) -> bool:
        existing = [thing for thing in self._existing() if thing not in without]
        size, cost = len(existing) + 1, sum(COST[thing.key] for thing in existing) + COST[key]
        over_size = self.limits.max_size is not None and size > self.limits.max_size
        return over_size or (self.limits.max_cost is not None and cost > self.limits.max_cost)

    def _model_acquire(self, key: str) -> Thing | str:
        """Give the expected thing, "new", "none" or "never"."""
        if self.limits.max_cost is not None and COST[key] > self.limits.max_cost:
            self.counts["rejected"] += 1
            return "never"
        own = [thing for thing in self.idle if thing.key == key]
        while own:
            thing = own.pop()
            self.idle.remove(thing)
            if self.validated and not thing.healthy:
                self._drop(thing, "invalid")
                continue
            self.out.append(thing)
            self.counts["reused"] += 1
            return thing
        if self.limits.max_per_key is not None and len(self._existing(key)) >= self.limits.max_per_key:
            return "none"
        evicted: list[Thing] = []
        for thing in [*self.idle, None]:
            if not self._missing(key, evicted):
                break
            if thing is None:
                return "none"
            evicted.append(thing)
        for thing in evicted:
            self.idle.remove(thing)
            self._drop(thing, "evicted")
        return "new"

    def _check_got(self, expected: Thing | str, got: Thing | None) -> None:
        if expected == "none":
            assert got is None
            return
        assert got is not None
        if expected == "new":
            assert got is self.factory.made[-1]
            self.out.append(got)
            self.counts["created"] += 1
        else:
            assert got is expected
        self.counts["acquired"] += 1

    def _model_release(self, thing: Thing) -> None:
        self.out.remove(thing)
        if thing.number in self.cleared:
            self._drop(thing, "cleared")
            return
        self.idle.append(thing)
        if self.limits.max_idle is not None and len(self.idle) > self.limits.max_idle:
            # Which one goes is the pool's choice: see which it was.
            (surplus,) = [it for it in self.idle if not it.alive]
            self.idle.remove(surplus)
            self._drop(surplus, "surplus")

    # The steps.

    @rule(target=leases, key=st.sampled_from(KEYS), way=st.sampled_from(["try", "zero", "bound"]))
    def lease(self, key: str, way: str) -> Lease[str, Thing] | None:
        """Lease without waiting."""
        expected = self._model_acquire(key)
        got: Lease[str, Thing] | None = None
        try:
            if way == "try":
                got = self.pool.try_lease(key)
            elif way == "bound":
                got = self.pool.bind(key).try_lease()
            else:
                got = self.pool.lease(key, timeout=0)
        except PoolExhaustedError:
            assert expected == "never"
            return None
        except PoolTimeoutError:
            assert (expected, way) == ("none", "zero")
            self.counts["timeouts"] += 1
        self._check_got(expected, got.resource if got else None)
        if got is not None:
            self.open.append(got)
        return got

    @rule(target=things, key=st.sampled_from(KEYS))
    def acquire(self, key: str) -> Thing | None:
        """Acquire without waiting."""
        expected = self._model_acquire(key)
        try:
            got = self.pool.try_acquire(key)
        except PoolExhaustedError:
            assert expected == "never"
            return None
        self._check_got(expected, got)
        return got

    @rule(target=spent, lease=consumes(leases), how=st.sampled_from(["release", "discard", "detach", "with"]))
    def end_lease(self, lease: Lease[str, Thing] | None, how: str) -> Lease[str, Thing] | None:
        """End a lease in one of its ways."""
        if lease is None:
            return None
        self.open.remove(lease)
        thing = lease.resource
        if how == "with":
            with lease as again:
                assert again is thing
        else:
            getattr(lease, how)()
        if how == "discard":
            self.out.remove(thing)
            self._drop(thing, "discarded")
        elif how == "detach":
            self.out.remove(thing)
            self.counts["detached"] += 1
        else:
            self._model_release(thing)
        return lease

    @rule(lease=spent)
    def use_a_spent_lease(self, lease: Lease[str, Thing] | None) -> None:
        """Do with a spent lease what one must not: nothing happens."""
        if lease is None:
            return
        assert lease.released
        lease.release()
        for call in (lambda: lease.resource, lease.discard, lease.detach, lease.__enter__):
            with pytest.raises(LeaseReleasedError):
                call()

    @rule(thing=consumes(things), discard=st.booleans())
    def release(self, thing: Thing | None, *, discard: bool) -> None:
        """Give back what was acquired, and then once more, which is refused."""
        if thing is None:
            return
        if discard:
            self.pool.discard(thing)
            self.out.remove(thing)
            self._drop(thing, "discarded")
        else:
            self.pool.release(thing)
            self._model_release(thing)
        for call in (self.pool.release, self.pool.discard):
            with pytest.raises(InvalidReleaseError):
                call(thing)

    @rule(key=st.sampled_from(KEYS))
    def clear_one(self, key: str) -> None:
        """Clear one key."""
        self._clear([thing for thing in self.idle if thing.key == key], self.pool.clear(key))
        self.cleared |= {thing.number for thing in self.out if thing.key == key}

    @rule()
    def clear_all(self) -> None:
        """Clear all keys."""
        self._clear(list(self.idle), self.pool.clear())
        self.cleared |= {thing.number for thing in self.out}

    def _clear(self, things: list[Thing], said: int) -> None:
        assert said == len(things)
        for thing in things:
            self.idle.remove(thing)
            self._drop(thing, "cleared")

    @rule(data=st.data())
    def one_goes_bad(self, data: st.DataObject) -> None:
        """Let an idle one break: validate will say so when it is asked for."""
        if self.idle:
            data.draw(st.sampled_from(self.idle)).healthy = False

    # What must be so after each step.

    @invariant()
    def all_agrees(self) -> None:
        """Compare all that the pool, the factory and the model count."""
        if not hasattr(self, "pool"):
            return
        stats = assert_quiet(self.pool, keys=KEYS, leased=len(self.out), idle=len(self.idle))
        assert self.factory.misuse == []
        assert sorted(self.factory.numbers_destroyed()) == sorted(self.gone)
        seen: dict[str, Any] = {name: getattr(stats, name) for name in ("acquired", "created", "reused")}
        seen |= {name: getattr(stats, name) for name in ("timeouts", "rejected", "detached")}
        seen |= stats.destroyed_for
        assert {name: count for name, count in seen.items() if count} == +self.counts
        assert stats.cost == sum(COST[thing.key] for thing in self._existing())
        assert stats.waits == 0
        for key in KEYS:
            part = self.pool.stats(key)
            assert part.idle == sum(thing.key == key for thing in self.idle)
            assert part.leased == sum(thing.key == key for thing in self.out)

    def teardown(self) -> None:
        """Close the pool, give all back, and find everything destroyed once."""
        if not hasattr(self, "pool"):
            return
        with self.pool:
            pass
        assert self.pool.stats().idle == 0
        leased = {lease.resource.number for lease in self.open}
        for lease in self.open:
            lease.release()
        for thing in self.out:
            if thing.number not in leased:
                self.pool.release(thing)
        assert_quiet(self.pool, leased=0, idle=0)
        assert self.factory.misuse == []
        assert self.factory.alive == self.counts["detached"]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
