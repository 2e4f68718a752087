"""Batches that compete: no deadlock, no starving, nothing lost (P100)."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolTimeoutError
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.storms import weather
from tests.helpers.threads import HANG_GUARD, Threads, run_together

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


class Holders:
    """Watches that nobody is given what somebody else has."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.twice: list[Thing] = []

    def use(self, things: tuple[Thing, ...], key: Hashable) -> None:
        """Have them for a moment."""
        me = threading.get_ident()
        for thing in things:
            if self.held.setdefault(id(thing), me) != me or not thing.alive or thing.key != key:
                self.twice.append(thing)
        for thing in things:
            self.held.pop(id(thing), None)


def test_two_who_want_all(make_pool: MakePool) -> None:
    """P100: two threads that want 2 each of 2, again and again, never lock each other out."""
    pool = make_pool(max_size=2)
    holders = Holders()

    def use() -> None:
        for _ in range(500):
            with pool.lease_many(2, "A") as things:
                assert len({id(thing) for thing in things}) == 2
                holders.use(things, "A")

    with weather():
        run_together(use, use)
    assert holders.twice == []
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert (stats.acquired, stats.created, stats.timeouts) == (2000, 2, 0)


def test_two_who_want_all_of_two_keys(make_pool: MakePool, factory: Factory) -> None:
    """P100: the same with two keys for one total: each makes room by evicting the other's."""
    pool = make_pool(max_size=2)

    def use(key: str) -> None:
        for _ in range(150):
            with pool.lease_many(2, key) as things:
                assert all(thing.alive and thing.key == key for thing in things)

    run_together(*(lambda key=key: use(key) for key in "AB"))
    assert_quiet(pool, keys="AB", leased=0, idle=2)
    assert factory.most_alive == 2


def test_two_who_want_all_and_some_are_invalid(make_pool: MakePool, factory: Factory) -> None:
    """P100: with every third validate saying no, nobody holds what is good while waiting for the rest."""
    count = itertools.count()

    def validate(key: Hashable, thing: Thing) -> bool:
        return next(count) % 3 > 0

    pool = make_pool(max_size=3, validate=validate)
    holders = Holders()

    def use(number: int) -> None:
        for _ in range(200):
            with pool.lease_many(number, "A") as things:
                holders.use(things, "A")

    with weather():
        run_together(lambda: use(2), lambda: use(2), lambda: use(3))
    assert holders.twice == []
    stats = assert_quiet(pool, keys="A", leased=0)
    assert stats.acquired == 1400
    assert stats.destroyed == stats.destroyed_for["invalid"] > 0
    assert factory.most_alive == 3


def stress(pool: ResourcePool[str, Thing], holders: Holders, seed: int, rounds: int) -> dict[str, int]:
    """Use a pool in all ways for a while, and count what came of it."""
    dice = random.Random(seed)  # noqa: S311 - a schedule, no secret
    done = dict.fromkeys(("acquired", "timeouts", "create"), 0)

    def end(group: Any) -> Callable[[], object]:
        return dice.choice([group.release, group.release, group.release, group.discard])  # type: ignore[no-any-return]

    for _ in range(rounds):
        key = dice.choice("ABC")
        try:
            if dice.random() < 0.6:
                number = dice.choice([1, 2, 3])
                group = pool.lease_many(number, key, dice.choice([None, HANG_GUARD, 0, 0.001]))
                done["acquired"] += number
                holders.use(group.resources, key)
                end(group)()
            elif dice.random() < 0.1:
                pool.prefill(2, key)
            elif dice.random() < 0.05:
                pool.clear(key)
            else:
                lease = pool.lease(key, dice.choice([None, 0.001]))
                done["acquired"] += 1
                holders.use((lease.resource,), key)
                answers = iter([False, False])
                lease.release(lambda answers=answers: next(answers, True))
        except PoolTimeoutError:
            done["timeouts"] += 1
        except OSError:
            done["create"] += 1
        assert_within(pool.stats(), pool.limits)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("interval", [None, 1e-6])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everything_at_once(make_pool: MakePool, factory: Factory, seed: int, interval: float | None) -> None:
    """P100, P108, G2, G3, G6: batches and single ones of several keys, hooks that fail: no deadlock, no limit passed, counts exact."""
    dice = random.Random(seed)  # noqa: S311 - a schedule, no secret

    def fail(key: str) -> None:
        if dice.random() < 0.1:
            raise OSError("no connection")

    def validate(key: Hashable, thing: Thing) -> bool:
        if dice.random() < 0.05:
            raise OSError("lost")
        return dice.random() < 0.9

    factory.before["create"] = fail
    pool = make_pool(max_size=6, max_per_key=4, max_idle=5, validate=validate, reset=factory.reset)
    holders = Holders()
    earlier = sys.getswitchinterval()
    try:
        sys.setswitchinterval(interval or earlier)
        with Threads() as threads:
            tasks = [threads.start(stress, pool, holders, seed * 100 + n, 200) for n in range(8)]
    finally:
        sys.setswitchinterval(earlier)
    pool.reap()
    pool.reap()
    assert holders.twice == []
    stats = assert_quiet(pool, keys="ABC", leased=0)
    assert factory.most_alive <= 6
    done = [task.result() for task in tasks]
    assert stats.acquired == sum(one["acquired"] for one in done)
    assert stats.timeouts == sum(one["timeouts"] for one in done)
    assert stats.hook_errors["create"] == sum(one["create"] for one in done)
    assert (stats.leaked, stats.cancelled, stats.rejected, stats.pending) == (0, 0, 0, 0)
    del factory.before["create"]
    pool.clear()
    pool.lease_many(4, "A", 0).discard()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
def test_dropped_groups_under_load(make_pool: MakePool) -> None:
    """P45, P47, P100: groups dropped by many threads cost no room, and each resource is counted."""
    pool = make_pool(max_size=4)

    def drop(number: int) -> None:
        for place in range(100):
            group = pool.lease_many(number, "A")
            if place % 2:
                group.release()
            del group

    run_together(*(lambda number=number: drop(number) for number in (1, 2, 3, 4)))
    pool.reap()
    stats = assert_quiet(pool, keys="A", leased=0)
    assert stats.leaked == 50 * 10 == stats.destroyed_for["leaked"]
    pool.lease_many(4, "A", 0).release()
