"""Thousands of real signals and asynchronous exceptions over a pool at its limits (P78, P79, G3)."""

from __future__ import annotations

import gc
import itertools
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolLimits, PoolObserver, PoolTimeoutError, ResourcePool
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.resources import Factory
from tests.helpers.storms import Shield, SignalStorm, Target, fire_at, weather
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Thing


def assert_whole(pool: ResourcePool[Any, Thing], rooms: int, *keys: str) -> None:
    """Check that all rooms can be had, again and again, for each key."""
    for key in keys:
        leases = [pool.lease(key, timeout=10) for _ in range(rooms)]
        assert all(lease.resource.alive for lease in leases)
        assert len({id(lease.resource) for lease in leases}) == rooms
        assert pool.try_lease(key) is None
        for lease in leases:
            lease.release()
    assert_quiet(pool, leased=0, idle=rooms)


class Hands:
    """What each user holds now, so that a resource in two hands is seen."""

    def __init__(self, users: int) -> None:
        self._holding: list[Thing | None] = [None] * users
        self.errors: list[str] = []

    def use(self, me: int, thing: Thing) -> None:
        """Hold a thing for a moment; note when it is dead or somebody else holds it too."""
        try:
            self._holding[me] = thing
            if not thing.alive:
                self.errors.append(f"{thing} is dead")
            if sum(other is thing for other in self._holding) != 1:
                self.errors.append(f"{thing} is held twice")
        finally:
            self._holding[me] = None


class MainUser:
    """What the main thread does in a storm; ``mine`` is what it may still have when interrupted."""

    def __init__(self, pool: ResourcePool[Any, Thing], hands: Hands) -> None:
        self.pool = pool
        self.hands = hands
        self.mine: list[Thing] = []

    def fast(self) -> None:
        """Use the fast tier, with a key that nobody else uses."""
        self.mine.append(self.pool.acquire("mine", timeout=10))
        self.hands.use(0, self.mine[0])
        self.pool.release(self.mine[0])
        self.mine.clear()

    def leases(self) -> None:
        """Use leases, with a key that others use too."""
        with self.pool.lease("shared", timeout=10) as thing:
            self.hands.use(0, thing)
        self.pool.lease("shared", timeout=10).discard()

    def others(self) -> None:
        """Leak, clear, look."""
        self.pool.try_lease("shared")
        self.pool.clear("mine")
        self.pool.stats()

    def give_back(self) -> None:
        """Give back once more: with this key a second release is told apart from a first one."""
        while self.mine:
            try:
                self.pool.release(self.mine[-1])
            except InvalidReleaseError:
                pass
            self.mine.pop()


@pytest.mark.slow
@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("hooked", [False, True], ids=["bare", "hooked"])
def test_a_storm_of_signals(hooked: bool) -> None:  # noqa: FBT001
    """G3, P78: 3000 interrupts in a main thread that uses both tiers, against a thread that competes."""
    factory, shield, hands = Factory(), Shield(), Hands(2)
    # A silent observer: the logging module itself is not proof against interrupts.
    options: dict[str, Any] = {"observer": PoolObserver()}
    if hooked:
        options |= {"validate": factory.validate, "reset": factory.reset}
    pool = ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=2), **options)
    user = MainUser(pool, hands)
    with weather(), pool:
        with Threads() as threads, SignalStorm(shield.handler, times=3000) as storm:

            def compete() -> None:
                while storm.blowing:
                    with pool.lease("shared", timeout=30) as thing:
                        hands.use(1, thing)

            threads.start(compete)
            while storm.blowing:
                for work in (user.fast, user.leases, user.others):
                    shield.exposed(work)
                    user.give_back()
                assert_within(pool.stats(), pool.limits)
        assert shield.hits > 100
        assert hands.errors == []
        assert factory.misuse == []
        assert_whole(pool, 2, "mine", "shared")


def stormy(pool: ResourcePool[Any, Thing], hands: Hands, me: int, *, fails: bool) -> Callable[[int], None]:
    """Return a worker's round: a bit of everything that leases can do."""
    key = "AB"[me % 2]

    def work(number: int) -> None:
        try:
            once(number)
        except OSError:
            assert fails

    def once(number: int) -> None:
        with pool.lease(key, timeout=30) as thing:
            hands.use(me, thing)
        lease = pool.lease("BA"[me % 2], timeout=30)
        hands.use(me, lease.resource)
        if number % 4 == 0:
            lease.discard()
        elif number % 9:
            lease.release()
        # else it is a leak
        del lease
        if number % 16 == 0:
            pool.clear(key)
        try:
            pool.bind(key).lease(timeout=0.0005).release()
        except PoolTimeoutError:
            pass

    return work


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bare", "hooked", "failing"])
def test_a_storm_of_asynchronous_exceptions(kind: str) -> None:
    """G3: 3000 exceptions sent into four threads that fight for three resources of two keys."""
    factory, hands = Factory(), Hands(4)
    options: dict[str, Any] = {"observer": PoolObserver()}
    if kind != "bare":
        options |= {"validate": factory.validate, "reset": factory.reset}
    if kind == "failing":
        for hook, every in (("create", 5), ("destroy", 7), ("validate", 11), ("reset", 13)):
            factory.errors[hook] = [
                OSError(hook) if number % every == 0 else None for number in range(20_000)
            ]
    pool = ResourcePool(
        factory.create, factory.destroy, limits=PoolLimits(max_size=3, max_per_key=2), **options
    )
    stop = threading.Event()
    targets = [Target() for _ in range(4)]

    def worker(me: int) -> None:
        work = stormy(pool, hands, me, fails=kind == "failing")
        for number in itertools.count():
            if stop.is_set():
                return
            targets[me].exposed(partial(work, number))

    with weather(), pool:
        with Threads() as threads:
            workers = [threads.start(worker, me) for me in range(4)]
            sent = fire_at(targets, 3000, until=lambda: any(task.ended for task in workers))
            stop.set()
        assert sent == 3000
        assert sum(target.hits for target in targets) > 100
        assert hands.errors == []
        assert factory.misuse == []
        factory.errors.clear()
        assert_within(pool.stats(), pool.limits)
        # A hook's error may be in a cycle of the hook's making (it is, in Factory), and its traceback then
        # keeps the frames of a call that was cut short: what they hold comes back with the collector.
        gc.collect()
        pool.clear()
        leases = [pool.lease(key, timeout=10) for key in "AAB"]
        assert pool.try_lease("B") is None
        for lease in leases:
            lease.release()
        assert_quiet(pool, keys="AB", leased=0, idle=3)
    assert_quiet(pool, leased=0, idle=0)
