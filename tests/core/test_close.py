"""close(): who is woken, what is destroyed and when, and what it waits for (P67 to P72, G9)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolClosedError, PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.threads import Threads, wait_asleep, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_close_destroys_the_idle(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P71: idle resources are destroyed before close returns, for that reason, once."""
    pool = make_pool(observer=recorder)
    assert not pool.closed
    for lease in [pool.lease(key) for key in "AAB"]:
        lease.release()
    pool.close()
    assert pool.closed
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3]
    assert recorder.details("destroyed") == ["closed"] * 3
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.destroyed_for["closed"]) == (0, 3)
    pool.close()
    pool.close(timeout=0)
    assert len(factory.destroyed) == 3


REFUSED: dict[str, Callable[[ResourcePool[Any, Any]], object]] = {
    "lease": lambda pool: pool.lease("k"),
    "try_lease": lambda pool: pool.try_lease("k"),
    "acquire": lambda pool: pool.acquire("k"),
    "try_acquire": lambda pool: pool.try_acquire("k"),
    "timeout=0": lambda pool: pool.acquire("k", timeout=0),
    "unknown key": lambda pool: pool.lease("never seen"),
    "bound lease": lambda pool: pool.bind("k").lease(),
    "bound try_lease": lambda pool: pool.bind("k").try_lease(),
    "bound acquire": lambda pool: pool.bind("k").acquire(),
    "bound try_acquire": lambda pool: pool.bind("k").try_acquire(),
}


@pytest.mark.parametrize("call", REFUSED)
def test_a_closed_pool_hands_out_nothing(make_pool: MakePool, factory: Factory, call: str) -> None:
    """G9: every way to acquire raises PoolClosedError; clear, stats, release and close still work."""
    pool = make_pool(name="things")
    held = pool.acquire("k")
    pool.lease("k").release()
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0)
    for _ in range(2):
        with pytest.raises(PoolClosedError, match="things"):
            REFUSED[call](pool)
    assert pool.clear() == 0
    assert pool.clear("k") == 0
    assert pool.stats("k").leased == 1
    pool.release(held)
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    assert len(factory.destroyed) == 2


def test_a_bound_pool_made_before_closes_with_its_pool(make_pool: MakePool) -> None:
    """G9: a bound pool has no life of its own."""
    pool = make_pool()
    bound = pool.bind("k")
    bound.lease().release()
    pool.close()
    for call in (bound.lease, bound.acquire, bound.try_lease, bound.try_acquire):
        with pytest.raises(PoolClosedError):
            call()
    assert bound.stats().idle == 0


def test_close_wakes_all_waiters_at_once(make_pool: MakePool, recorder: Recorder) -> None:
    """P67: everybody who waits, whatever for and however long, gets PoolClosedError while leases are out."""
    pool = make_pool(max_size=2, max_per_key=1, observer=recorder)
    leases = [pool.lease("A"), pool.lease("B")]
    with Threads() as threads:
        waiting = [threads.start(pool.lease, key) for key in "AABBC"]
        waiting += [threads.start(pool.lease, "A", timeout=3600.0)]
        wait_until_queued(pool, 6)
        closing = threads.start(pool.close)
        for task in waiting:
            assert isinstance(task.error(), PoolClosedError)
        assert pool.stats().waiters == 0
        assert not closing.ended
        for lease in leases:
            lease.release()
        woken(closing)
    assert sorted(recorder.details("waited", 1)) == ["closed"] * 6
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.waits, stats.timeouts) == (6, 0)


@pytest.mark.parametrize("end", ["release", "discard", "with", "fast release", "fast discard"])
def test_what_comes_back_after_close_is_destroyed(
    make_pool: MakePool, factory: Factory, recorder: Recorder, end: str
) -> None:
    """P68: a resource returned to a closed pool is destroyed once, and its holder sees no error."""
    pool = make_pool(observer=recorder)
    if end.startswith("fast"):
        thing = pool.acquire()
        pool_end = getattr(pool, end.split()[1])
        with pool:
            pass
        pool_end(thing)
        with pytest.raises(InvalidReleaseError):
            pool_end(thing)
    else:
        lease = pool.lease()
        thing = lease.resource
        with pool:
            pass
        if end == "with":
            with lease as same:
                assert same is thing
        else:
            getattr(lease, end)()
        lease.release()
    assert factory.destroyed == [thing]
    assert recorder.details("destroyed") == ["discarded" if "discard" in end else "closed"]
    assert_quiet(pool, leased=0, idle=0)
    pool.close()


def test_close_gives_up_and_may_be_called_again(make_pool: MakePool, factory: Factory) -> None:
    """P69: with one still out, close raises after its timeout, saying so; a second call goes on waiting."""
    pool = make_pool(name="things")
    lease = pool.lease("forgotten-key")
    pool.lease("other").release()
    begun = time.monotonic()
    with pytest.raises(PoolTimeoutError, match="leased") as caught:
        pool.close(timeout=0.05)
    assert time.monotonic() - begun >= 0.05
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.leased == 1
    assert caught.value.limits == pool.limits
    assert pool.closed
    assert factory.numbers_destroyed() == [2]
    with Threads() as threads:
        closing = threads.start(pool.close)
        assert not closing.ended
        lease.release()
        woken(closing)
    assert factory.numbers_destroyed() == [2, 1]


def test_close_names_who_is_out(make_pool: MakePool) -> None:
    """P69: with track_leases the error tells where what is out was acquired."""
    pool = make_pool(track_leases=True)

    def take() -> Any:
        return pool.lease("k")

    lease = take()
    with pytest.raises(PoolTimeoutError) as caught:
        pool.close(timeout=0)
    text = str(caught.value)
    assert "in take" in text
    assert "test_close.py" in text
    assert str(take.__code__.co_firstlineno + 1) in text
    lease.release()
    pool.close()


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, True, "1"], ids=repr)
def test_a_senseless_timeout_is_refused(make_pool: MakePool, timeout: Any) -> None:
    """P08: close() takes the timeouts that acquire takes, and refuses before it closes."""
    pool = make_pool()
    with pytest.raises((ValueError, TypeError)):
        pool.close(timeout=timeout)
    assert not pool.closed
    pool.lease().release()
    pool.close(timeout=math.inf)


def test_leaving_a_pool_s_block_closes_without_waiting(make_pool: MakePool, factory: Factory) -> None:
    """G9: a with-block on the pool ends in close, and neither waits for leases nor raises."""
    with make_pool() as pool:
        lease = pool.lease()
        pool.lease().release()
        assert not pool.closed
    assert pool.closed
    assert factory.numbers_destroyed() == [2]
    assert pool.stats().leased == 1
    lease.release()
    assert factory.numbers_destroyed() == [2, 1]
    assert_quiet(pool, leased=0, idle=0)


def test_an_error_in_a_pool_s_block_leaves_unchanged(make_pool: MakePool, factory: Factory) -> None:
    """G9: the body's exception comes out as it was, also when destroying fails as well."""
    error = KeyError("body")
    factory.errors["destroy"] = [RuntimeError("destroy")]
    with pytest.raises(KeyError) as caught, make_pool() as pool:  # noqa: PT012 - the body fails at its end
        pool.lease().release()
        lease = pool.lease("held")
        raise error
    assert caught.value is error
    assert pool.closed
    assert factory.numbers_destroyed() == [1]
    lease.release()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.hook_errors["destroy"] == 1


def test_close_waits_for_the_fast_tier(make_pool: MakePool) -> None:
    """G9: a bare resource that is out is waited for like a lease."""
    pool = make_pool()
    thing = pool.acquire()
    with pytest.raises(PoolTimeoutError):
        pool.close(timeout=0.01)
    with Threads() as threads:
        closing = threads.start(pool.close)
        pool.release(thing)
        woken(closing)
    assert not thing.alive


def test_close_waits_for_a_destroy_that_others_run(make_pool: MakePool, factory: Factory) -> None:
    """G9, G2: close returns only when the last destroy hook has, whoever runs it."""
    gate = Gate()
    pool = make_pool()
    lease = pool.lease()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        discarding = threads.start(lease.discard)
        gate.wait_arrived(1)
        closing = threads.start(pool.close)
        wait_asleep([closing.thread])
        assert not closing.ended
        gate.open()
        closing.result()
        assert factory.alive == 0
        discarding.result()
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_from_destroy_in_close(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """G3: close may raise what interrupted a destroy hook; closing again ends what it had left."""
    pool = make_pool()
    for lease in [pool.lease() for _ in range(4)]:
        lease.release()
    factory.errors["destroy"] = [None, kind("destroy")]
    try:
        pool.close()
    except kind:
        assert pool.closed
        pool.close()
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 4]
    assert_quiet(pool, leased=0, idle=0)
