"""Everything at once: all that a pool can do, by several threads, with failing hooks, leaks, forks, resizes and interrupts (G2, G3, G6, G8).

RESPOOL_STORM asks for more than CI does: the number of interrupts in each storm.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolError, PoolLimits, PoolObserver, PoolTimeoutError, ResourcePool
from tests.helpers.forks import in_child
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.resources import Factory
from tests.helpers.storms import Target, fire_at
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Thing

pytestmark = pytest.mark.usefixtures("bear")

ROOMS = 4
CALM = PoolLimits(max_size=ROOMS, max_per_key=3)
NARROW = PoolLimits(max_size=2, max_per_key=2, max_idle=1)
WIDE = PoolLimits(max_size=ROOMS + 2, max_per_key=4, max_cost=ROOMS + 2)
INTERRUPTS = int(os.environ.get("RESPOOL_STORM", "3000"))
WORKERS = 4


class Busy:
    """Something that uses a thing after its holder has let go of it, until it has been asked three times."""

    def __init__(self, thing: Thing) -> None:
        self.thing = thing
        self.asked = 0
        thing.busy = True

    def is_done(self) -> bool:
        """Be a `when`."""
        self.asked += 1
        if self.asked < 3:
            return False
        self.thing.busy = False
        return True


class Crowd:
    """What each worker does and holds, so that a thing in two hands is seen, or one that is in use yet, or dead."""

    def __init__(self, pool: ResourcePool[Any, Thing], factory: Factory) -> None:
        self.pool = pool
        self.factory = factory
        self.holding: list[tuple[Thing, ...]] = [()] * WORKERS
        self.wrong: list[str] = []

    def use(self, me: int, *things: Thing) -> None:
        """Hold things for a moment."""
        try:
            self.holding[me] = things
            self._look_at(things)
        finally:
            self.holding[me] = ()

    def _look_at(self, things: tuple[Thing, ...]) -> None:
        # From Python 3.12 on a loop's jump back isn't inside the `try` around it.
        for thing in things:
            if not thing.alive:
                self.wrong.append(f"{thing} is dead")
            if thing.busy:
                self.wrong.append(f"{thing} is in use yet")
            if sum(thing is other for held in self.holding for other in held) != 1:
                self.wrong.append(f"{thing} is held twice")

    def round(self, me: int, number: int) -> None:
        """Do one of all the things that can be done, whatever the hooks do to it."""
        key = "AB"[(me + number) % 2]
        work = WORKS[(number * 7 + me) % len(WORKS)]
        try:
            work(self, me, key)
        except (OSError, PoolError):
            pass  # a hook was to fail; a limit had shrunk

    def lease(self, me: int, key: str) -> None:
        """Lease in a block."""
        with self.pool.lease(key, timeout=30) as thing:
            self.use(me, thing)

    def several(self, me: int, key: str) -> None:
        """Lease two at once."""
        with self.pool.lease_many(2, key, timeout=30) as things:
            self.use(me, *things)

    def defer(self, me: int, key: str) -> None:
        """Give back what isn't free yet."""
        lease = self.pool.lease(key, timeout=30)
        self.use(me, lease.resource)
        lease.release(Busy(lease.resource).is_done)

    def discard(self, me: int, key: str) -> None:
        """Throw one away."""
        lease = self.pool.lease(key, timeout=30)
        self.use(me, lease.resource)
        lease.discard()

    def leak(self, me: int, key: str) -> None:
        """Forget a lease."""
        lease = self.pool.lease(key, timeout=30)
        self.use(me, lease.resource)

    def hurry(self, me: int, key: str) -> None:
        """Don't wait, or not for long."""
        lease = self.pool.try_lease(key)
        if lease is not None:
            lease.release()
        try:
            self.pool.bind(key).lease(timeout=0.0005).release()
        except PoolTimeoutError:
            pass

    def tidy(self, me: int, key: str) -> None:
        """Clear and reap."""
        self.pool.clear(key)
        self.pool.reap()

    def fill(self, me: int, key: str) -> None:
        """Fill up."""
        self.pool.prefill(2, key)


WORKS: list[Callable[[Crowd, int, str], None]] = [
    Crowd.lease,
    Crowd.several,
    Crowd.defer,
    Crowd.discard,
    Crowd.leak,
    Crowd.hurry,
    Crowd.tidy,
    Crowd.lease,
    Crowd.fill,
    Crowd.defer,
    Crowd.several,
]


def new_pool(factory: Factory, **options: Any) -> ResourcePool[Any, Thing]:
    """Make a pool with all hooks; silent, since the logging module itself is not proof against interrupts."""
    return ResourcePool(
        factory.create,
        factory.destroy,
        factory.validate,
        reset=factory.reset,
        limits=CALM,
        observer=PoolObserver(),
        **options,
    )


def let_hooks_fail(factory: Factory) -> None:
    """Let each hook fail now and then."""
    for hook, every in (("create", 5), ("destroy", 7), ("validate", 11), ("reset", 13)):
        factory.errors[hook] = [OSError(hook) if number % every == 0 else None for number in range(20_000)]


def assert_whole(pool: ResourcePool[Any, Thing], factory: Factory, crowd: Crowd) -> None:
    """Check that nothing was ever wrong, and that all rooms can be had again."""
    assert crowd.wrong == []
    assert factory.misuse == []
    factory.errors.clear()
    # A hook's error may be in a cycle of the hook's making (it is, in Factory), and its traceback then
    # keeps the frames of a call that was cut short: what they hold comes back with the collector.
    gc.collect()
    pool.resize(CALM)
    wait_until(lambda: pool.reap() == 0 and not pool.stats().pending, "the end of all that is pending")
    pool.clear()
    leases = [pool.lease(key, timeout=30) for key in "AAAB"]
    assert pool.try_lease("B") is None
    crowd.use(0, *(lease.resource for lease in leases))
    for lease in leases:
        lease.release()
    with pool.lease_many(3, "B", timeout=30) as things:
        crowd.use(0, *things)
    assert crowd.wrong == []
    wait_until(lambda: not pool.stats().destroying, "the end of all that is being destroyed")
    assert_quiet(pool, keys="AB", leased=0)
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    assert factory.misuse == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("destroy_in", ["caller", "background"])
@pytest.mark.parametrize("fails", [False, True], ids=["good", "failing"])
def test_a_storm_over_everything(destroy_in: str, fails: bool) -> None:  # noqa: FBT001
    """G3, G8: exceptions sent into four threads that use all of a pool cost no room, and no use is ever cut short."""
    factory = Factory()
    pool = new_pool(factory, destroy_in=destroy_in)
    crowd = Crowd(pool, factory)
    if fails:
        let_hooks_fail(factory)
    stop = threading.Event()
    targets = [Target() for _ in range(WORKERS)]

    def worker(me: int) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            targets[me].exposed(partial(crowd.round, me, number))

    with pool:
        with Threads() as threads:
            workers = [threads.start(worker, me) for me in range(WORKERS)]
            sent = fire_at(targets, INTERRUPTS, until=lambda: any(task.ended for task in workers))
            stop.set()
        assert sent == INTERRUPTS
        assert sum(target.hits for target in targets) > INTERRUPTS // 20
        assert_whole(pool, factory, crowd)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("interval", [0.005, 1e-6])
@pytest.mark.parametrize("destroy_in", ["caller", "background"])
def test_everything_under_load(interval: float, destroy_in: str) -> None:
    """G2, G10, P62, P74: failing hooks, leaks, deferred releases, batches, resizes and forks at once, on long and short switch intervals."""
    factory = Factory()
    let_hooks_fail(factory)
    pool = new_pool(factory, destroy_in=destroy_in)
    crowd = Crowd(pool, factory)
    sys.setswitchinterval(interval)  # `weather` puts it back

    def worker(me: int) -> None:
        for number in range(1500):
            crowd.round(me, number)

    def child() -> tuple[int, int]:
        factory.renew()
        factory.errors.clear()
        found = pool.stats().size
        with pool.lease_many(2, "A", timeout=10) as things:
            return found, len(set(things))

    with pool:
        with Threads() as threads:
            workers = [threads.start(worker, me) for me in range(WORKERS)]
            while not all(task.ended for task in workers):
                for limits in (NARROW, WIDE, CALM):
                    pool.resize(limits)
                    assert_within(pool.stats(), WIDE)
                assert in_child(child) == (0, 2)
        assert_whole(pool, factory, crowd)
