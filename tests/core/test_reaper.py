"""The thread that looks after time: one for all pools that need it, and only as long as they do (P57, P60, P109).

Time limits are small and real here, and what is waited for is what is seen to happen.
"""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from respool import PoolLimits, ResourcePool, _reaper
from respool._threads import Starter
from tests.helpers.background import REAPER, named, no_new_threads, wait_ended
from tests.helpers.checkpoints import every_checkpoint
from tests.helpers.clocks import fill
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import HANG_GUARD, Threads, run_together, wait_asleep, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

Reapers: TypeAlias = "Callable[[], list[threading.Thread]]"

SOON = 0.02
LONG = 3600.0


@pytest.fixture(autouse=True)
def reapers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reapers]:
    """Begin without the thread that looks after pools of other tests; give the list of those there are now."""
    earlier = named(REAPER)
    monkeypatch.setattr(_reaper, "_reaper", _reaper._Reaper())
    yield lambda: [thread for thread in named(REAPER) if thread not in earlier]
    gc.collect()


@pytest.mark.parametrize("limit", ["idle_timeout", "max_lifetime"])
def test_it_destroys_what_nobody_asks_for(
    make_pool: MakePool, factory: Factory, recorder: Recorder, limit: str, reapers: Reapers
) -> None:
    """P57: what has expired goes although nobody calls the pool; in the reaper's thread, each once, with its reason."""
    where = []
    factory.before["destroy"] = lambda key, thing: where.append(threading.current_thread().name)
    pool = make_pool(observer=recorder, **{limit: SOON})
    leases = [pool.lease(key) for key in "AAB"]
    held = pool.lease("held")
    for lease in leases:
        lease.release()
    recorder.wait_for("destroyed", 3)
    assert where == ["respool-reaper"] * 3
    assert recorder.details("destroyed") == ["idle" if limit == "idle_timeout" else "lifetime"] * 3
    assert held.resource.alive
    [thread] = reapers()
    assert thread.daemon
    held.discard()


def test_it_reaps_again_and_again(make_pool: MakePool, recorder: Recorder, reapers: Reapers) -> None:
    """P57: each resource in its turn, also those that come into a pool that was empty."""
    pool = make_pool(observer=recorder, idle_timeout=SOON)
    for turn in range(1, 6):
        pool.lease(turn).release()
        recorder.wait_for("destroyed", turn)
    assert_quiet(pool, leased=0, idle=0)
    assert len(reapers()) == 1


def test_what_others_do_is_not_its_matter(make_pool: MakePool, recorder: Recorder) -> None:
    """P59: it leaves pools without time limits alone, and what is young or in use in others."""
    other = make_pool()
    old = make_pool(idle_timeout=LONG)
    fill(other, 2)
    fill(old, 2)
    pool = make_pool(observer=recorder, idle_timeout=SOON)
    fill(pool, 1)
    recorder.wait_for("destroyed")
    assert_quiet(other, leased=0, idle=2)
    assert_quiet(old, leased=0, idle=2)


def test_a_pool_with_a_shorter_limit_is_heard(
    make_pool: MakePool, recorder: Recorder, reapers: Reapers
) -> None:
    """P57: one that sleeps for an hour on behalf of one pool comes in time for another."""
    slow = make_pool(idle_timeout=LONG)
    fill(slow, 1)
    wait_asleep(reapers())
    pool = make_pool(observer=recorder, max_lifetime=SOON)
    fill(pool, 1)
    recorder.wait_for("destroyed")
    assert len(reapers()) == 1
    assert_quiet(slow, leased=0, idle=1)


def test_a_slow_destroy_is_in_nobodys_way(make_pool: MakePool, factory: Factory) -> None:
    """P33: while it's in a destroy hook, everybody takes, gives back and asks as ever."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    pool = make_pool(max_size=2, idle_timeout=SOON)
    fill(pool, 1)
    gate.wait_arrived()
    assert pool.stats().destroying == 1
    lease = pool.lease("A", timeout=0)
    assert pool.try_lease("B") is None
    assert pool.reap() == 0
    lease.detach()
    gate.open()
    pool.close()
    assert_quiet(pool, leased=0, idle=0)


# -- its life -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "drop"])
def test_it_ends_with_the_last_pool(end: str, reapers: Reapers) -> None:
    """P60: it ends when no pool with time limits is left, closed or dropped; a dropped one is collected, and runs no hook."""
    destroyed: list[object] = []
    pools = [
        ResourcePool(
            lambda key: object(),
            lambda key, thing: destroyed.append(thing),
            limits=PoolLimits(idle_timeout=seconds),
        )
        for seconds in (SOON * 100, LONG, LONG)
    ]
    for pool in pools[1:]:
        pool.lease().release()
    wait_asleep(reapers())
    references = [weakref.ref(pool) for pool in pools]
    cores = [weakref.ref(pool._core) for pool in pools]
    if end == "close":
        for pool in pools:
            pool.close()
        assert len(destroyed) == 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        pools.clear()
        gc.collect()
    assert len(caught) == (0 if end == "close" else 2)
    caught.clear()  # a warning refers to its pool
    gc.collect()
    assert not any(reference() for reference in references)
    assert not any(core() for core in cores)
    wait_ended(reapers)
    assert len(destroyed) == (2 if end == "close" else 0)


def test_a_pool_is_dropped_while_it_destroys(reapers: Reapers) -> None:
    """P60: a pool that is dropped while the reaper is in its destroy hook is collected when that has ended, as is the thread."""
    gate = Gate()
    pool = ResourcePool(
        lambda key: object(), lambda key, thing: gate.stop(), limits=PoolLimits(idle_timeout=SOON)
    )
    core = weakref.ref(pool._core)
    pool.lease().release()
    gate.wait_arrived()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del pool
        gc.collect()
    gate.open()
    wait_ended(reapers)
    gc.collect()
    assert core() is None
    assert gate.arrived == 1


def test_it_comes_back(make_pool: MakePool, recorder: Recorder, reapers: Reapers) -> None:
    """P60: after it has ended, the next pool that needs one has one."""
    for turn in range(1, 4):
        pool = make_pool(observer=recorder, idle_timeout=SOON)
        fill(pool, 1)
        recorder.wait_for("destroyed", turn)
        assert len(reapers()) == 1
        pool.close()
        wait_ended(reapers)


@pytest.mark.slow
def test_many_begin_at_once(reapers: Reapers) -> None:
    """P109: threads that use their new pools, or one, for the first time at once start one reaper, and all are looked after."""
    for turn in range(40):
        recorder = Recorder()
        limits = PoolLimits(idle_timeout=SOON)
        pools = [ResourcePool(lambda key: object(), limits=limits, observer=recorder) for _ in range(3)]
        run_together(*(lambda pool=pool: pool.lease().release() for pool in [*pools, *pools]))
        assert len(reapers()) == 1, turn
        recorder.wait_for("destroyed", len(recorder.of("created")))
        for pool in pools:
            pool.close()
        wait_ended(reapers)


@pytest.mark.slow
def test_it_is_about_to_end_when_a_pool_comes(make_pool: MakePool, reapers: Reapers) -> None:
    """P109: a pool that comes at any place of the reaper's last steps is looked after, by it or by a new one."""
    for visit in every_checkpoint():
        reaper = _reaper._Reaper()
        seen, came = threading.Event(), threading.Event()
        first, second = (
            ResourcePool(
                lambda key: object(),
                lambda key, thing, seen=seen: seen.set(),
                limits=PoolLimits(idle_timeout=SOON),
            )  # type: ignore[misc]
            for _ in range(2)
        )
        for pool in (first, second):
            pool._core.watched = True  # but not by the one of the process
            pool.lease().release()
        first.close()
        seen.clear()
        with Threads() as threads, visit:

            def come(
                reaper: Any = reaper, core: Any = second._core, came: Any = came, start: Any = threads.start
            ) -> None:
                locked = reaper.lock.locked()
                task = start(reaper.watch, core)
                if not locked:
                    task.wait()
                came.set()

            def run(reaper: Any = reaper, core: Any = first._core) -> None:
                reaper.thread = threading.current_thread()
                reaper.inbox.put(weakref.ref(core, reaper.inbox.put))
                reaper.run()

            running = threads.start(visit.run, run, come)
            wait_until(lambda r=running, c=came: r.ended or c.is_set(), "the visit")  # type: ignore[misc]
            assert not visit.reached or seen.wait(HANG_GUARD), "nobody looks after the second pool"
            second.close()
        wait_ended(reapers)


# -- trouble --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [OSError("gone"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr
)
def test_a_hook_raises(  # noqa: PLR0917 - fixtures
    make_pool: MakePool,
    factory: Factory,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    reapers: Reapers,
) -> None:
    """P28: whatever a destroy hook raises in the reaper, the rest goes on: this pool, the others, and the thread; it's counted, and not printed."""
    monkeypatch.setattr(_reaper, "_TROUBLED", SOON)
    factory.errors["destroy"] = [error, None, error]
    pool = make_pool(max_size=2, idle_timeout=SOON, observer=recorder)
    other = make_pool(max_size=2, idle_timeout=SOON * 2, observer=recorder)
    for turn in range(1, 4):
        fill(pool, 2)
        fill(other, 2)
        recorder.wait_for("destroyed", 4 * turn)
    assert len(reapers()) == 1
    for one in (pool, other):
        one.close()
        stats = assert_quiet(one, leased=0, idle=0)
        assert stats.destroyed_for["idle"] == 6
    assert pool.stats().hook_errors["destroy"] + other.stats().hook_errors["destroy"] == 2
    assert capfd.readouterr().err == ""


def test_no_thread_can_be_had(
    make_pool: MakePool, factory: Factory, monkeypatch: pytest.MonkeyPatch, reapers: Reapers
) -> None:
    """P59: where no thread can be started, acquire, release and reap see to time limits, and nothing fails."""
    no_new_threads(monkeypatch)
    pool = make_pool(max_size=2, idle_timeout=1e-9, max_lifetime=LONG)
    for number in range(1, 5):
        with pool.lease("A") as thing:
            assert thing.number == number
    assert factory.numbers_destroyed() == [1, 2, 3]
    assert pool.reap() == 1
    assert reapers() == []
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["idle"] == 4


def test_a_thread_can_be_had_later(make_pool: MakePool, recorder: Recorder) -> None:
    """P59: a pool that got no thread when it began has one when it next makes a resource and threads can be started again."""
    pool = make_pool(idle_timeout=SOON, observer=recorder)
    with pytest.MonkeyPatch.context() as patch:
        no_new_threads(patch)
        fill(pool, 1)
    pool.lease("B").release()
    recorder.wait_for("destroyed", 2)
    assert_quiet(pool, leased=0, idle=0)


def test_an_interrupt_while_it_begins(make_pool: MakePool, recorder: Recorder, reapers: Reapers) -> None:
    """G3: an acquire that is interrupted while it starts the reaper leaves the room, and a pool that is looked after by one thread."""
    pool = make_pool(max_size=1, idle_timeout=SOON, observer=recorder)
    start = Starter.start

    def interrupted(starter: Starter, *arguments: Any) -> bool:
        start(starter, *arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Starter, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.lease("A")
    for turn in range(1, 3):
        pool.lease("A", timeout=5).release()
        recorder.wait_for("destroyed", turn)
    other = make_pool(idle_timeout=SOON)
    fill(other, 1)
    wait_until(lambda: len(reapers()) == 1, "one reaper")
    pool.close()
    other.close()
    wait_ended(reapers)


@pytest.mark.slow
def test_a_handler_uses_another_pool_while_one_begins() -> None:
    """P81: a signal handler or finaliser that begins to use a pool with time limits, at any place where another one begins, doesn't hang."""
    for visit in every_checkpoint():
        limits = PoolLimits(idle_timeout=LONG)
        pool = ResourcePool(lambda key: object(), limits=limits)
        other = ResourcePool(lambda key: object(), limits=limits)
        with visit, pool, other:
            visit.run(lambda p=pool: p.lease().release(), lambda o=other: o.lease().release())
            assert_quiet(pool, leased=0, idle=1)
            assert_quiet(other, leased=0, idle=1 if visit.reached else 0)


def test_a_handler_uses_another_pool_while_the_thread_starts(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, reapers: Reapers
) -> None:
    """P81: nor does one that comes while the thread of the first pool is being started, in Python's own code."""
    pool, other = make_pool(idle_timeout=LONG), make_pool(idle_timeout=LONG)
    start = Starter.start

    def start_and_handle(starter: Starter, *arguments: Any) -> bool:
        started = start(starter, *arguments)
        other.lease("B").release()
        return started

    monkeypatch.setattr(Starter, "start", start_and_handle)
    with Threads() as threads:
        threads.start(lambda: pool.lease("A").release()).result()
    assert_quiet(pool, keys="A", leased=0, idle=1)
    assert_quiet(other, keys="B", leased=0, idle=1)
    assert len(reapers()) == 1


def test_resize_to_time_limits_and_back(make_pool: MakePool, recorder: Recorder, reapers: Reapers) -> None:
    """P57: a pool that is given time limits later is looked after from then on; one that is relieved of them isn't any more."""
    pool = make_pool(observer=recorder)
    fill(pool, 2)
    assert reapers() == []
    pool.resize(PoolLimits(idle_timeout=SOON))
    recorder.wait_for("destroyed", 2)
    pool.resize(PoolLimits())
    fill(pool, 2)
    wait_ended(reapers)
    assert_quiet(pool, leased=0, idle=2)


def test_a_hook_in_the_reaper_uses_its_pool(
    make_pool: MakePool, factory: Factory, recorder: Recorder
) -> None:
    """P81: a destroy hook that runs in the reaper may read stats, lease, reap and even close its pool."""
    seen: list[Any] = []

    def use(key: object, thing: Thing) -> None:
        if key == "A":
            seen.append(pool.stats().destroying)
            with pool.lease("B"):
                seen.append(pool.reap())
            pool.close()

    factory.before["destroy"] = use
    pool = make_pool(idle_timeout=SOON, observer=recorder)
    fill(pool, 1)
    recorder.wait_for("destroyed", 2)
    pool.close()
    assert seen == [1, 0]
    assert_quiet(pool, leased=0, idle=0)
    wait_until(lambda: sorted(recorder.details("destroyed")) == ["closed", "idle"], "both reasons")
