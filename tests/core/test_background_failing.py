"""destroy_in="background" and acquires that fail, and threads that begin, die or can't be had (G3, G5, P109)."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolObserver, PoolTimeoutError, ResourcePool
from respool._threads import Starter
from tests.helpers.background import destroyers, named, no_new_threads, settle, wait_ended
from tests.helpers.clocks import Clock, fill
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, run_together, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def error_of(call: Callable[[], object]) -> BaseException:
    """Return what a call raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it went well")


@pytest.mark.parametrize("how", ["late", "cost", "interrupt", "late batch"])
def test_an_acquire_that_fails_does_not_destroy(
    make_background: MakePool, factory: Factory, clock: Clock, destroy_gate: Gate, how: str
) -> None:
    """G5: nor does an acquire that meets an invalid resource and then fails: it ends without waiting for the slow destroy."""
    costs = iter([1])

    def cost(key: object) -> int:
        return next(costs) if "cost" in how else 1

    pool = make_background(max_size=3, idle_timeout=60, cost=cost)
    [thing] = fill(pool, 1)
    thing.healthy = False
    if "late" in how:
        factory.before["validate"] = lambda key, thing: clock.advance(10)
    elif how == "interrupt":
        factory.errors["validate"] = [KeyboardInterrupt()]
    errors = {"late": PoolTimeoutError, "cost": StopIteration, "interrupt": KeyboardInterrupt}
    with Threads() as threads:
        call = (
            (lambda: pool.lease_many(1, "A", timeout=5))
            if "batch" in how
            else (lambda: pool.lease("A", timeout=5))
        )
        task = threads.start(error_of, call)
        destroy_gate.wait_arrived()
        assert isinstance(woken(task), errors[how.split(maxsplit=1)[0]])
        destroy_gate.open()
    settle(pool)
    factory.before.clear()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed, stats.destroyed_for["invalid"]) == (1, 1)


def test_threads_begin_at_once(make_pool: MakePool) -> None:
    """P109: threads that use a new pool for the first time at once start one thread for it; another pool has one of its own."""
    for turn in range(30):
        pool, other = (make_pool(destroy_in="background", name=f"{turn}-{which}") for which in "ab")
        run_together(*[lambda p=pool: p.lease("A").discard()] * 4, lambda o=other: o.lease("A").discard())
        assert len(destroyers(pool)) <= 1
        pool.lease("A").release()
        other.lease("A").release()
        assert len(destroyers(pool)) == len(destroyers(other)) == 1
        pool.close()
        other.close()
        wait_ended(lambda p=pool, o=other: destroyers(p) + destroyers(o))
        assert pool.stats().destroyed == 5


def test_no_thread_before_the_first_resource(make_pool: MakePool, factory: Factory) -> None:
    """P59: the thread is started when the first resource comes in, however that comes."""
    for number, way in enumerate(["lease", "prefill", "adopt"]):
        pool = make_pool(destroy_in="background", name=f"first-{number}")
        pool.stats()
        pool.clear()
        pool.bind("A")
        assert destroyers(pool) == []
        if way == "lease":
            pool.lease("A").release()
        elif way == "prefill":
            pool.prefill(1, "A")
        else:
            pool.adopt(factory.create("A"), "A")
        assert len(destroyers(pool)) == 1


def test_no_thread_can_be_had(make_pool: MakePool, factory: Factory) -> None:
    """P59: where no thread can be started, callers destroy for themselves and nothing is lost; later there's a thread again."""
    where: list[str] = []
    factory.before["destroy"] = lambda key, thing: where.append(threading.current_thread().name)
    pool = make_pool(max_size=1, destroy_in="background")
    me = threading.current_thread().name
    with pytest.MonkeyPatch.context() as patch:
        no_new_threads(patch)
        pool.lease("A").discard()
        fill(pool, 1, "A")
        with pool.lease("B", timeout=1):  # evicts
            pass
        assert pool.clear() == 1
        assert_quiet(pool, leased=0, idle=0)
        assert (where, destroyers(pool)) == ([me] * 3, [])
    pool.lease("A").discard()
    settle(pool)
    assert where[3:] == [f"respool-destroyer-{pool.name}"]
    assert pool.stats().destroyed == 4


def test_an_interrupt_while_it_begins(make_pool: MakePool) -> None:
    """G3: an acquire that is interrupted while it starts the thread leaves the room, one thread, and none after close."""
    pool = make_pool(max_size=1, destroy_in="background")
    start = Starter.start

    def interrupted(starter: Starter, *arguments: Any) -> bool:
        start(starter, *arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Starter, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.lease("A")
    for _ in range(3):
        pool.lease("A", timeout=5).discard()
    settle(pool)
    assert_quiet(pool, leased=0, idle=0)
    wait_until(lambda: len(destroyers(pool)) == 1, "one thread")
    pool.close()
    wait_ended(lambda: destroyers(pool))


def test_a_dropped_pools_thread_ends() -> None:
    """P60: a pool that is dropped without close is collected, its thread ends, and no hook runs."""
    destroyed: list[object] = []
    pool = ResourcePool(
        lambda key: object(),
        lambda key, thing: destroyed.append(thing),
        destroy_in="background",
        name="dropped",
    )
    fill(pool, 3)
    core = weakref.ref(pool._core)
    assert len(named("respool-destroyer-dropped")) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        gc.collect()
    assert [str(warning.message) for warning in caught] == [
        "pool dropped was dropped without close(), with 3 resources"
    ]
    caught.clear()
    wait_ended(lambda: named("respool-destroyer-dropped"))
    gc.collect()
    assert core() is None
    assert destroyed == []


def test_a_pool_is_dropped_while_it_destroys() -> None:
    """P60: a pool dropped while its thread is in the destroy hook is collected when that has ended; what is idle is left alone."""
    gate = Gate()
    pool = ResourcePool(
        lambda key: object(), lambda key, thing: gate.stop(), destroy_in="background", name="dropped busy"
    )
    fill(pool, 2)
    pool.lease("A").discard()
    gate.wait_arrived()
    core = weakref.ref(pool._core)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del pool
        gc.collect()
    gate.open()
    wait_ended(lambda: named("respool-destroyer-dropped busy"))
    gc.collect()
    assert core() is None
    assert gate.arrived == 1


def test_what_comes_after_the_end(make_pool: MakePool, factory: Factory) -> None:
    """G9: what can be freed only after a close had nothing else to wait for is destroyed, also if the thread is about to end then."""
    gate = Gate()

    class Slow(PoolObserver):
        def destroyed(self, pool: object, key: object, reason: str) -> None:
            if key == "A":
                gate.stop()

    answers: list[Any] = [False, OSError("no answer"), True]

    def when() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    pool = make_pool(destroy_in="background", observer=Slow())
    lease = pool.lease("A")
    pool.lease("B").release(when=when)
    pool.reap()
    assert pool.stats().quarantined == 1
    lease.discard()
    gate.wait_arrived()  # the thread has destroyed, and is telling so
    pool.close(timeout=0)
    assert (pool.stats().size, pool.stats().quarantined) == (1, 1)
    pool.reap()
    gate.open()
    wait_until(lambda: not pool.stats().size, "the end of what is free now")
    assert sorted(factory.numbers_destroyed()) == [1, 2]


def test_a_closed_pool_does_not_grow(make_pool: MakePool) -> None:
    """P61: calls of a closed pool leave nothing behind, however many there are."""
    pool = make_pool(destroy_in="background")
    pool.lease("A").release()
    pool.close()
    wait_ended(lambda: destroyers(pool))
    for _ in range(1000):
        pool.stats()
        pool.reap()
    destroyer = pool._core.destroyer
    assert destroyer is not None
    assert destroyer._inbox.qsize() < 10
