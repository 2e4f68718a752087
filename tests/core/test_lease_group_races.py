"""Ends of a LeaseGroup that meet: two threads, a signal handler, hooks that fail in the middle (G6)."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseGroup, LeaseReleasedError, PoolLimits, ResourcePool
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory
from tests.helpers.storms import weather
from tests.helpers.threads import Threads, run_together, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")


def take_idle(pool: ResourcePool[Any, Thing], n: int, key: str = "A") -> list[Thing]:
    """Take idle ones only; they must be distinct and alive."""
    with pool.lease_many(n, key, timeout=0) as things:
        assert len({id(thing) for thing in things}) == n
        assert all(thing.alive for thing in things)
        return list(things)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("ways", [("release", "release"), ("release", "discard"), ("discard", "discard")])
def test_ended_by_two_threads_at_once(make_pool: MakePool, ways: tuple[str, str], reset: bool) -> None:  # noqa: FBT001
    """G6: two threads that end one group at once end each resource once."""
    factory = Factory()
    options = {"reset": factory.reset} if reset else {}
    pool = make_pool(create=factory.create, destroy=factory.destroy, max_size=4, **options)

    def end(group: LeaseGroup[Any, Thing], way: str) -> None:
        try:
            getattr(group, way)()
        except LeaseReleasedError:
            assert way == "discard"

    with weather():
        for _ in range(150):
            group = pool.lease_many(4, "A", timeout=0)
            run_together(*(lambda g=group, w=way: end(g, w) for way in ways))
            assert group.released
            stats = assert_quiet(pool, keys="A", leased=0)
            take_idle(pool, stats.idle) if stats.idle else None
    assert factory.misuse == []
    assert pool.stats().leaked == 0


def test_release_while_another_thread_discards(make_pool: MakePool, factory: Factory) -> None:
    """G6: a release that comes while a discard is under way takes only what is left, and the discard none of that."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=3)
    group = pool.lease_many(3, "A")
    with Threads() as threads:
        discarding = threads.start(group.discard)
        gate.wait_arrived()
        group.release()
        assert group.released
        assert pool.stats().idle == 2
        with pool.lease_many(2, "A", timeout=0) as things:
            gate.open()
            discarding.result()
            assert all(thing.alive for thing in things)
    stats = assert_quiet(pool, keys="A", leased=0, idle=2)
    assert stats.destroyed_for["discarded"] == 1


def test_release_while_another_thread_releases_slowly(make_pool: MakePool, factory: Factory) -> None:
    """G6: one thread is in a reset hook, another releases the rest: each resource comes back once."""
    gate = Gate()
    factory.before["reset"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=3, reset=factory.reset)
    group = pool.lease_many(3, "A")
    with Threads() as threads:
        first = threads.start(group.release)
        gate.wait_arrived()
        second = threads.start(group.release)
        gate.wait_arrived(2)
        gate.open()
        first.result()
        second.result()
    assert_quiet(pool, keys="A", leased=0, idle=3)
    take_idle(pool, 3)
    assert len({id(thing) for thing in factory.reset_things[:3]}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("way", ["release", "discard", "release when"])
def test_release_from_a_handler_at_every_place(way: str, reset: bool) -> None:  # noqa: FBT001
    """P78, G5, G6: whatever place of a group's end a signal handler interrupts that releases it too, each comes back once."""
    for visit in every_checkpoint():
        factory = Factory()
        pool = ResourcePool(
            factory.create,
            factory.destroy,
            reset=factory.reset if reset else None,
            limits=PoolLimits(max_size=3),
        )
        group = pool.lease_many(3, "A")
        free: list[bool] = []

        def end(group: LeaseGroup[Any, Thing] = group, free: list[bool] = free) -> None:
            if way == "release when":
                group.release(lambda: bool(free))
            else:
                with contextlib.suppress(LeaseReleasedError):  # of a discard that comes too late
                    getattr(group, way)()

        with visit, pool:
            visit.run(end, group.release)
            free.append(True)
            assert group.released
            pool.reap()
            stats = assert_quiet(pool, leased=0)
            assert stats.idle == 3 or way == "discard"
            with pool.lease_many(3, "A", timeout=0) as things:
                assert len({id(thing) for thing in things}) == 3
                assert all(thing.alive for thing in things)
            assert factory.misuse == []
            assert pool.stats().leaked == 0


def test_release_in_a_signal_handler(make_pool: MakePool) -> None:
    """P78, G5: a handler releases a group while its thread waits in line: the waiter has its room."""
    pool = make_pool(max_size=3)
    group = pool.lease_many(3, "A")
    main = threading.get_ident()
    earlier = signal.signal(signal.SIGUSR1, lambda *args: group.release())
    try:
        with Threads() as threads:

            def send() -> None:
                wait_until_queued(pool, 1)
                signal.pthread_kill(main, signal.SIGUSR1)

            threads.start(send)
            with pool.lease_many(2, "A") as things:
                assert len(things) == 2
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert_quiet(pool, keys="A", leased=0, idle=3)


@pytest.mark.parametrize("hook", ["reset", "destroy"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_hook_fails_in_the_middle(
    make_pool: MakePool, factory: Factory, hook: str, error: type[BaseException]
) -> None:
    """P27, P32, G3: whatever a hook raises for one of the group, the others still go where they should."""
    pool = make_pool(max_size=3, reset=factory.reset)
    group = pool.lease_many(3, "A")
    factory.errors[hook] = [None, error("in the hook"), None]
    end: Callable[[], object] = group.release if hook == "reset" else group.discard
    if issubclass(error, Exception):
        end()
    else:
        with pytest.raises(error):
            end()
    assert group.released
    stats = assert_quiet(pool, leased=0, idle=2 if hook == "reset" else 0)
    assert stats.hook_errors[hook] == 1
    assert factory.calls[hook] == 3
    take_idle(pool, 3)
