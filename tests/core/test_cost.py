"""A budget of bytes, or of whatever cost() counts (P91 to P98)."""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseLeakWarning, PoolExhaustedError, PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


class Charge:
    """A cost function for keys of the form ("name", cost), with a watch over what exists by its books."""

    def __init__(self, factory: Factory) -> None:
        self._lock = threading.Lock()
        self.alive = 0
        self.most_alive = 0
        factory.before["create"] = self._came
        factory.before["destroy"] = self._went

    def __call__(self, key: tuple[str, int]) -> int:
        """Give the cost of a key."""
        return key[1]

    def _came(self, key: tuple[str, int]) -> None:
        with self._lock:
            self.alive += key[1]
            self.most_alive = max(self.most_alive, self.alive)

    def _went(self, key: tuple[str, int], thing: Thing) -> None:
        with self._lock:
            self.alive -= key[1]


def fill(pool: ResourcePool[tuple[str, int], Thing], *keys: tuple[str, int]) -> None:
    """Make the keys' resources exist at the same time, idle, the first one unused for longest."""
    leases = [pool.lease(key) for key in keys]
    for lease in leases:
        lease.release()


def test_idle_ones_make_room_in_the_budget(make_pool: MakePool, factory: Factory) -> None:
    """P91: idle resources are destroyed, least recently used first, just until the request fits."""
    charge = Charge(factory)
    pool = make_pool(max_cost=100, cost=charge)
    fill(pool, ("a", 20), ("b", 10), ("c", 50))
    with pool.lease(("d", 50)):
        assert [thing.key[0] for thing in factory.destroyed] == ["a", "b"]
        assert pool.stats().cost == 100
    stats = assert_quiet(pool, keys=[("c", 50), ("d", 50)], leased=0, idle=2)
    assert stats.destroyed_for["evicted"] == 2
    assert charge.most_alive == 100


def test_no_more_than_needed_is_destroyed(make_pool: MakePool, factory: Factory) -> None:
    """P91: what fits destroys nothing; what lacks little destroys one."""
    pool = make_pool(max_cost=100, cost=Charge(factory))
    fill(pool, ("a", 30), ("b", 30), ("c", 30))
    pool.lease(("d", 10)).release()
    assert factory.destroyed == []
    pool.lease(("e", 1)).release()
    assert [thing.key[0] for thing in factory.destroyed] == ["a"]


def test_nothing_is_destroyed_in_vain(make_pool: MakePool, factory: Factory) -> None:
    """P91: when all idle ones together are not enough, none is destroyed, and the caller waits."""
    pool = make_pool(max_cost=100, cost=Charge(factory))
    held = pool.lease(("a", 60))
    fill(pool, ("b", 20), ("c", 20))
    assert pool.try_lease(("d", 50)) is None
    with pytest.raises(PoolTimeoutError):
        pool.lease(("d", 50), timeout=0)
    with Threads() as threads:
        waiting = threads.start(pool.lease, ("d", 50))
        wait_until_queued(pool, 1)
        assert factory.destroyed == []
        held.release()
        waiting.result().release()
    stats = assert_quiet(pool, leased=0)
    assert stats.cost <= 100


@pytest.mark.parametrize("hold", [True, False])
def test_more_than_the_budget_is_refused(make_pool: MakePool, factory: Factory, *, hold: bool) -> None:
    """P92: a request above the budget is refused at once, destroys nothing, and blocks nobody."""
    pool = make_pool(max_cost=100, cost=Charge(factory))
    fill(pool, ("a", 50), ("b", 50))
    held = [pool.lease(("a", 50)), pool.lease(("b", 50))] if hold else []
    for _ in range(2):
        with pytest.raises(PoolExhaustedError, match="101"):
            pool.lease(("d", 101))
    with pytest.raises(PoolExhaustedError):
        pool.try_acquire(("d", 101))
    with pytest.raises(PoolExhaustedError):
        pool.lease(("d", 101), timeout=0)
    stats = pool.stats()
    assert (stats.waits, stats.waiters, stats.rejected, stats.timeouts, stats.size) == (0, 0, 4, 0, 2)
    for lease in held:
        lease.release()
    pool.lease(("c", 100)).release()
    assert_quiet(pool, keys=[("c", 100)], leased=0, idle=1)


def test_a_big_request_is_served_in_turn(make_pool: MakePool, factory: Factory) -> None:
    """P93: while a big request waits, small ones that would fit wait behind it."""
    pool = make_pool(max_cost=10, cost=Charge(factory))
    held = pool.lease(("held", 6))
    small_key = ("small", 2)
    served: list[str] = []
    gate = Gate()

    def use(name: str, key: tuple[str, int]) -> None:
        with pool.lease(key):
            served.append(name)
            gate.stop()

    with Threads() as threads:
        threads.start(use, "big", ("big", 9))
        wait_until_queued(pool, 1)
        for n in range(3):
            threads.start(use, "small", small_key)
            wait_until_queued(pool, 2 + n)
            assert pool.try_lease(small_key) is None
        assert served == []
        held.release()
        gate.wait_arrived(1)
        assert served == ["big"]
        assert pool.stats().waiters == 3
        gate.open()
    assert served == ["big", "small", "small", "small"]
    assert_quiet(pool, leased=0)


@pytest.mark.parametrize("bad", [-1, math.nan, True, 1.5, 2.0, "3", None, float("inf")])
def test_a_cost_that_is_none(make_pool: MakePool, factory: Factory, bad: object) -> None:
    """P94: a cost that is negative, NaN, bool or no int is refused, with its value; the books stay right."""
    pool = make_pool(max_cost=10, cost=lambda key: bad if key == "bad" else 4)
    held = pool.lease("good")
    for call in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
        with pytest.raises((TypeError, ValueError)) as caught:
            call("bad")
        if bad == -1:
            assert isinstance(caught.value, ValueError)
        assert repr(bad) in str(caught.value)
    assert factory.calls["create"] == 1
    held.release()
    stats = assert_quiet(pool, keys=["good", "bad"], leased=0, idle=1)
    assert (stats.cost, stats.size, stats.waits) == (4, 1, 0)


def test_an_error_of_cost_reaches_the_caller(make_pool: MakePool) -> None:
    """P94: what cost raises comes out unchanged, is counted, and takes no room."""
    errors: list[BaseException] = [LookupError("no"), KeyboardInterrupt()]

    def cost(key: str) -> int:
        if errors:
            raise errors[0]
        return 5

    pool = make_pool(max_size=1, max_cost=5, cost=cost)
    with pytest.raises(LookupError) as caught:
        pool.lease("A")
    assert caught.value is errors.pop(0)
    assert pool.stats().hook_errors["cost"] == 1
    with pytest.raises(KeyboardInterrupt):
        pool.try_lease("A")
    errors.clear()
    pool.lease("A", timeout=0).release()
    assert_quiet(pool, keys=["A"], leased=0, idle=1)


def test_what_was_charged_is_given_back(make_pool: MakePool, factory: Factory) -> None:
    """P95: the cost asked at creation is the one given back, whatever cost would say later."""
    answers = itertools.count(10)
    pool = make_pool(max_cost=1000, cost=lambda key: next(answers))
    leases = [pool.lease("A") for _ in range(3)]
    assert pool.stats("A").cost == 10 + 11 + 12
    leases[0].discard()
    assert pool.stats().cost == 11 + 12
    leases[1].detach()
    assert pool.stats().cost == 12
    leases[2].release()
    for _ in range(5):
        pool.lease("A").release()
    assert pool.stats().cost == 12
    assert next(answers) == 13, "cost is asked once for each creation, and not for a hit"
    pool.clear()
    stats = assert_quiet(pool, keys=["A"], leased=0, idle=0)
    assert stats.cost == 0


@pytest.mark.parametrize(
    "more", [{"max_idle": 5}, {"idle_timeout": 1e3}, {"validate": lambda _key, _thing: True}], ids=list
)
def test_a_hit_of_a_watched_pool_does_not_ask(make_pool: MakePool, more: dict[str, Any]) -> None:
    """P95: nor is cost asked for a hit where idle resources are counted, timed or validated."""
    asked: list[str] = []
    pool = make_pool(cost=lambda key: asked.append(key) or 1, **more)
    for _ in range(5):
        pool.lease("A").release()
        lease = pool.try_lease("A")
        assert lease is not None
        lease.release()
        pool.release(pool.acquire("A"))
    assert asked == ["A"]
    stats = assert_quiet(pool, keys=["A"], leased=0, idle=1)
    assert (stats.acquired, stats.created) == (15, 1)


@pytest.mark.parametrize(("idle_cost", "idle_count", "gone"), [(1, 16, 8), (4, 4, 2), (16, 1, 1)])
def test_many_threads_destroy_only_what_is_needed(
    make_pool: MakePool, factory: Factory, idle_cost: int, idle_count: int, gone: int
) -> None:
    """P96: eight threads find the budget full at the same time, and together free just enough."""
    charge = Charge(factory)
    pool = make_pool(max_cost=16, cost=charge)
    fill(pool, *[("idle", idle_cost)] * idle_count)
    all_served = threading.Barrier(8)

    def use(n: int) -> None:
        with pool.lease((f"new {n}", 1)):
            all_served.wait(30)

    run_together(*[lambda n=n: use(n) for n in range(8)])  # type: ignore[misc]
    stats = assert_quiet(pool, leased=0)
    assert stats.destroyed == stats.destroyed_for["evicted"] == gone
    assert stats.cost == 16 - gone * idle_cost + 8
    assert charge.most_alive <= 16


def test_sizes_out_of_use_give_way(make_pool: MakePool, factory: Factory) -> None:
    """P97: a budget full of sizes that nobody asks for any more serves the sizes in use."""
    charge = Charge(factory)
    pool = make_pool(max_cost=100, cost=charge)
    fill(pool, *[("old", 10)] * 10)
    for _ in range(10):
        leases = [pool.lease(("new", 7), timeout=0) for _ in range(14)]
        assert_within(pool.stats(), pool.limits)
        for lease in leases:
            lease.release()
    stats = assert_quiet(pool, keys=[("new", 7)], leased=0, idle=14)
    assert (stats.destroyed_for["evicted"], stats.created, stats.cost) == (10, 24, 98)
    assert charge.most_alive <= 100


def test_a_leak_gives_its_cost_back(make_pool: MakePool) -> None:
    """P98: the bytes of a dropped lease come back with its slot."""
    pool = make_pool(max_cost=10, cost=lambda key: 8)

    def leak() -> None:
        pool.lease("A")
        pool.lease("B", timeout=0).release()

    with pytest.warns(LeaseLeakWarning):
        leak()
    stats = assert_quiet(pool, keys=["A", "B"], leased=0, idle=1)
    assert (stats.cost, stats.leaked, stats.destroyed_for["leaked"]) == (8, 1, 1)


def test_free_resources_cost_nothing(make_pool: MakePool) -> None:
    """A cost of 0 is one: such resources are limited by the other limits only."""
    pool = make_pool(max_cost=1, cost=len)
    leases = [pool.lease(key) for key in ("", "", "x", "")]
    assert pool.try_lease("y") is None
    assert pool.stats().cost == 1
    for lease in leases:
        lease.release()
    assert_quiet(pool, keys=["", "x"], leased=0, idle=4)


def test_without_cost_each_one_costs_one(make_pool: MakePool) -> None:
    """Without a cost function each resource counts 1 against max_cost."""
    pool = make_pool(max_cost=2)
    leases = [pool.lease("A"), pool.lease("B")]
    assert pool.stats().cost == 2
    assert pool.try_lease("A") is None
    for lease in leases:
        lease.release()
    assert_quiet(pool, keys="AB", leased=0, idle=2)
