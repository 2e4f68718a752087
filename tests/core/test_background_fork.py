"""A fork while background threads are at work: the child has its own, the parent's go on (P73, P74, P76, G10)."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import _reaper
from tests.helpers.background import REAPER, destroyers, named, wait_ended
from tests.helpers.clocks import fill
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_asleep, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool import ResourcePool
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

SOON = 0.02
LONG = 3600.0


@pytest.fixture(autouse=True)
def own_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a reaper of its own."""
    monkeypatch.setattr(_reaper, "_reaper", _reaper._Reaper())


@pytest.fixture
def gate(factory: Factory) -> Iterator[Gate]:
    """Give the gate at which the destroy of "slow" ones stops, in this process, opened at the end of the test."""
    gate = Gate()
    parent = os.getpid()

    def stop(key: object, thing: Thing) -> None:
        if key == "slow" and os.getpid() == parent:
            gate.stop()

    factory.before["destroy"] = stop
    yield gate
    gate.open()


def works_in_child(pool: ResourcePool[Any, Thing], factory: Factory, inherited: int) -> None:
    """Check a background pool in a child: empty, all its rooms, and a thread of its own that destroys."""
    assert pool.stats().size == pool.stats().destroying == pool.stats().destroyed == 0
    assert threading.active_count() == 1
    where: list[str] = []
    factory.before["destroy"] = lambda key, thing: where.append(threading.current_thread().name)
    rooms = pool.limits.max_size or 2
    leases = [pool.lease("slow", timeout=0) for _ in range(rooms)]
    assert pool.try_lease("slow") is None
    for lease in leases:
        lease.discard()
    with pool.lease("A", timeout=10) as thing:  # waits for the thread
        assert thing.number > inherited
    wait_until(lambda: pool.stats().destroyed == rooms, "the child's thread")
    assert set(where) == {f"respool-destroyer-{pool.name}"}
    assert len(destroyers(pool)) == 1
    pool.close(timeout=10)
    assert_quiet(pool, leased=0, idle=0)
    wait_ended(lambda: destroyers(pool))


def is_reaped_in_child(pool: ResourcePool[Any, Thing], recorder: Recorder, factory: Factory) -> None:
    """Check a pool with a time limit in a child: empty, and reaped by a thread of its own."""
    assert pool.stats().size == 0
    assert named(REAPER) == []
    done = len(factory.destroyed)
    told = len(recorder.of("destroyed"))
    fill(pool, 1)
    recorder.wait_for("destroyed", told + 1)
    assert len(named(REAPER)) == 1
    assert len(factory.destroyed) == done + 1
    pool.close(timeout=10)
    assert_quiet(pool, leased=0, idle=0)


@pytest.mark.parametrize("moment", ["asleep", "in a hook", "with a queue"])
def test_a_fork_with_a_destroyer(make_pool: MakePool, factory: Factory, gate: Gate, moment: str) -> None:
    """P73, P74: the child destroys nothing of the parent's, and has a thread of its own on first need; the parent's goes on."""
    pool = make_pool(max_size=3, destroy_in="background")
    leases = [pool.lease("slow") for _ in range(2)]
    fill(pool, 1)
    if moment != "asleep":
        leases[0].discard()
        gate.wait_arrived()
    if moment == "with a queue":
        leases[1].discard()
    wait_asleep(destroyers(pool))
    [thread] = destroyers(pool)
    destroyed = len(factory.destroyed)

    def child() -> None:
        works_in_child(pool, factory, inherited=3)
        for lease in leases:
            lease.release()
        assert len(factory.destroyed) == destroyed + 4
        assert not any(thing.number <= 3 for thing in factory.destroyed[destroyed:])

    in_child(child)
    in_child(child)  # once more: the first left the parent as it was
    assert pool.stats().leased + pool.stats().destroying == 2
    gate.open()
    for lease in leases:
        if not lease.released:
            lease.discard()
    wait_until(lambda: pool.stats().destroyed == 2, "the parent's thread")
    assert destroyers(pool) == [thread]
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("moment", ["asleep", "in a hook"])
def test_a_fork_with_a_reaper(
    make_pool: MakePool, factory: Factory, gate: Gate, recorder: Recorder, moment: str
) -> None:
    """P73, P74: the child's pool has a reaper of its own on first need, and the parent's goes on."""
    pool = make_pool(max_size=3, idle_timeout=SOON, observer=recorder)
    held = pool.lease("A")
    if moment == "asleep":
        fill(pool, 1)
        recorder.wait_for("destroyed")
    else:
        fill(pool, 1, "slow")
        gate.wait_arrived()
    in_child(lambda: is_reaped_in_child(pool, recorder, factory))
    in_child(lambda: is_reaped_in_child(pool, recorder, factory))
    gate.open()
    recorder.wait_for("destroyed", 1)
    held.release()
    recorder.wait_for("destroyed", 2)
    assert_quiet(pool, leased=0, idle=0)


def test_a_fork_while_the_locks_are_held(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P74: a fork while other threads have the locks of the reaper, of the destroyer's start, and of the pools: the child's are free."""
    pool = make_pool(max_size=3, destroy_in="background", idle_timeout=LONG)
    timed = make_pool(max_size=3, idle_timeout=SOON, observer=recorder)
    pool.lease("A").release()
    held = timed.lease("A")
    destroyer: Any = pool._core.destroyer
    locks = [_reaper._reaper.lock, destroyer._starter._lock, pool._core.lock, timed._core.lock]
    let_go, have = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        have.set()
        let_go.wait(30)
        for lock in locks:
            lock.release()

    def child() -> None:
        is_reaped_in_child(timed, recorder, factory)
        factory.before.clear()
        works_in_child_too(pool)

    def works_in_child_too(pool: ResourcePool[Any, Thing]) -> None:
        pool.lease("B", timeout=10).discard()
        wait_until(lambda: pool.stats().destroyed == 1, "the child's thread")
        assert len(destroyers(pool)) == 1

    with Threads() as threads:
        threads.start(hold)
        have.wait(30)
        in_child(child)
        let_go.set()
    held.discard()
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_a_grandchild(make_pool: MakePool, factory: Factory, gate: Gate) -> None:
    """P73: a child's child has a thread of its own too."""
    pool = make_pool(max_size=2, destroy_in="background")
    fill(pool, 1)

    def child() -> None:
        pool.lease("slow").discard()
        wait_until(lambda: pool.stats().destroyed == 1, "the child's thread")
        in_child(lambda: works_in_child(pool, factory, inherited=2))
        pool.lease("slow").discard()
        wait_until(lambda: pool.stats().destroyed == 2, "the child's thread, still")

    in_child(child)
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12: "fork() with threads may deadlock"
@pytest.mark.parametrize("where", ["caller", "background"])
def test_a_hook_on_a_background_thread_forks(make_pool: MakePool, factory: Factory, where: str) -> None:
    """P73: a destroy hook that forks in the reaper or in the destroyer: the child's pool is empty and works; the parent's thread goes on."""
    status: list[int] = []

    def fork(key: object, thing: Thing) -> None:
        if key != "forks" or status:
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                factory.before.clear()
                with pool.lease("A", timeout=5), pool.lease("A", timeout=5):
                    code = 0 if pool.stats().leased == 2 and pool.try_lease("A") is None else 2
            finally:
                os._exit(code)
        status.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    factory.before["destroy"] = fork
    pool = make_pool(max_size=2, destroy_in=where, idle_timeout=SOON)
    pool.lease("forks").release()
    wait_until(lambda: pool.stats().destroyed == 1, "the destroy")
    assert status == [0]
    pool.lease("A").release()
    wait_until(lambda: pool.stats().destroyed == 2, "the thread, still")
    assert_quiet(pool, leased=0, idle=0)
