"""Counters that fit together, and events that tell what happened (P103, P104, P106, P107)."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    ALL,
    LeaseLeakWarning,
    LoggingObserver,
    PoolClosedError,
    PoolExhaustedError,
    PoolObserver,
    PoolStats,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet, assert_within
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

REASONS = {"discarded", "invalid", "idle", "lifetime", "evicted", "surplus", "cleared", "closed", "leaked"}
HOOKS = {"create", "destroy", "validate", "reset", "cost", "max_per_key", "when", "observer"}


def _work(pool: ResourcePool[str, Thing], seed: int, steps: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secrets here
    for _ in range(steps):
        key = rng.choice("ABC")
        try:
            lease = pool.lease(key, timeout=rng.choice([None, 0, 1e-4]))
        except (PoolTimeoutError, OSError):
            continue
        if rng.random() < 0.8:
            lease.release()
        else:
            lease.discard()


def test_any_moment_under_load(make_pool: MakePool, factory: Factory) -> None:
    """P103: sampled under load no number is negative and no limit is passed; after it all adds up."""
    pool = make_pool(
        max_size=4,
        max_per_key=2,
        max_idle=3,
        max_cost=7,
        cost=lambda key: 1 + "ABC".index(key),
        validate=factory.validate,
        reset=factory.reset,
    )
    factory.errors["create"] = [OSError("no") if n % 9 == 8 else None for n in range(500)]
    factory.errors["destroy"] = [OSError("no") if n % 7 == 6 else None for n in range(500)]
    factory.errors["reset"] = [OSError("no") if n % 11 == 10 else None for n in range(500)]
    with Threads() as threads:
        tasks = [threads.start(_work, pool, seed, 1_000) for seed in range(5)]
        samples = 0
        while not all(task.ended for task in tasks):
            assert_within(pool.stats(), pool.limits)
            for key in "ABC":
                assert pool.stats(key).size <= 2
            samples += 1
    assert samples > 1
    stats = assert_quiet(pool, keys="ABC", leased=0)
    assert factory.most_alive <= 4
    assert stats.created == len(factory.made)
    assert stats.destroyed == len(factory.destroyed)
    assert stats.hook_errors["create"] == factory.calls["create"] - len(factory.made)


def test_counts_on_the_fast_path_are_exact(make_pool: MakePool) -> None:
    """P103: no acquire is missed or counted twice, from whatever threads."""
    pool = make_pool()
    bound = pool.bind("A")

    def use() -> None:
        for n in range(1_000):
            if n % 3 == 0:
                bound.release(bound.acquire())
            elif n % 3 == 1:
                pool.release(pool.acquire("A"))
            else:
                with pool.lease("A"):
                    pass

    with Threads() as threads:
        for _ in range(4):
            threads.start(use)
    stats = assert_quiet(pool, keys="A", leased=0)
    assert stats.acquired == 4_000
    assert stats.created + stats.reused == 4_000


def test_stats_are_a_frozen_snapshot(make_pool: MakePool) -> None:
    """P103: a snapshot doesn't change, by the pool or by its reader; it can be compared and pickled."""
    pool = make_pool()
    before = pool.stats()
    lease = pool.lease("A")
    during = pool.stats()
    assert before == PoolStats(destroyed_for=before.destroyed_for, hook_errors=before.hook_errors)
    assert (before.leased, during.leased) == (0, 1)
    assert set(before.destroyed_for) == REASONS
    assert set(before.hook_errors) == HOOKS
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.idle = 1  # type: ignore[misc]
    for mapping in (before.destroyed_for, before.hook_errors):
        with pytest.raises(TypeError):
            mapping["observer"] = 1  # type: ignore[index]
    assert pickle.loads(pickle.dumps(during)) == during  # noqa: S301 - made in this line
    lease.release()
    assert pool.stats(ALL) == pool.stats() != during


class Broken(PoolObserver):
    """To be subclassed with a method that is ``fail``."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.raised = 0

    def fail(self, *_: object) -> None:
        """Raise the error."""
        self.raised += 1
        raise self.error


def _broken(event: str, error: BaseException) -> Broken:
    kind: type[Broken] = type("BrokenIn" + event.title(), (Broken,), {event: Broken.fail})
    return kind(error)


def _let_all_events_happen(pool: ResourcePool[Any, Thing], factory: Factory) -> None:
    factory.errors["destroy"] = [OSError("no")]
    pool.lease("A").discard()
    lease = pool.lease("A")
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result().release()
    del lease, waiting, threads

    def leak() -> None:
        pool.lease("A")
        pool.lease("B").release()

    with pytest.warns(LeaseLeakWarning):
        leak()


@pytest.mark.parametrize("event", ["created", "destroyed", "queued", "waited", "leaked", "hook_failed"])
def test_a_broken_observer_breaks_nothing(
    make_pool: MakePool, factory: Factory, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    """P104: what an observer raises is swallowed, counted and logged; every operation goes on."""
    observer = _broken(event, ZeroDivisionError("in the observer"))
    pool = make_pool(observer=observer, max_per_key=1)
    _let_all_events_happen(pool, factory)
    assert observer.raised >= 1
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert stats.hook_errors["observer"] == observer.raised
    records = [record for record in caplog.records if record.name == "respool"]
    assert any("in the observer" in caplog.handler.format(record) for record in records)


@pytest.mark.parametrize("event", ["created", "destroyed", "queued", "waited"])
def test_an_interrupt_in_an_observer_loses_nothing(make_pool: MakePool, factory: Factory, event: str) -> None:
    """P104: an interrupt that hits while an observer runs may come out, but costs no room."""
    observer = _broken(event, KeyboardInterrupt())
    pool = make_pool(observer=observer, max_size=1)
    for _ in range(3):
        try:
            pool.lease("A", timeout=0).release()
            pool.lease("B", timeout=0).discard()
            lease = pool.lease("A")
            try:
                pool.lease("A", timeout=1e-3)
            except PoolTimeoutError:
                pass
            finally:
                lease.release()
        except KeyboardInterrupt:
            pass
        assert_quiet(pool, keys="AB", leased=0)
    assert observer.raised >= 1
    assert factory.most_alive == 1


def test_logging_observer_is_the_default(
    make_pool: MakePool, factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    """P104: without an observer, hook errors and leaks go to the logger ``respool``, with name and key."""
    caplog.set_level(logging.DEBUG, "respool")
    pool = make_pool(name="the pool's name", max_per_key=1)
    _let_all_events_happen(pool, factory)
    texts = [caplog.handler.format(r) for r in caplog.records if r.name == "respool"]
    assert len(texts) == 2
    assert all("the pool's name" in text and "'A'" in text for text in texts)
    assert any("destroy" in text and "OSError: no" in text for text in texts)
    assert any("release" in text for text in texts)


def test_an_observer_of_ones_own_replaces_it(
    make_pool: MakePool, factory: Factory, caplog: pytest.LogCaptureFixture, recorder: Recorder
) -> None:
    """P104: with an observer of one's own nothing is logged; a LoggingObserver can be subclassed."""
    caplog.set_level(logging.DEBUG, "respool")
    _let_all_events_happen(make_pool(observer=recorder, max_per_key=1), factory)
    assert caplog.records == []

    class Both(LoggingObserver):
        def hook_failed(self, pool: object, key: object, hook: str, error: BaseException) -> None:
            super().hook_failed(pool, key, hook, error)  # type: ignore[arg-type]
            told.append(hook)

    told: list[str] = []
    _let_all_events_happen(make_pool(observer=Both(), max_per_key=1), factory)
    assert told == ["destroy"]
    assert [record.name for record in caplog.records] == ["respool", "respool"]


def test_the_events_of_a_life(make_pool: MakePool, recorder: Recorder) -> None:
    """P107: create, reuse and end of a resource are told once each, with key, time and pool."""
    pools: list[object] = []
    recorder.on["created"] = recorder.on["destroyed"] = lambda pool, *args: pools.append(pool)
    pool = make_pool(observer=recorder)
    pool.lease("A").release()
    pool.lease("A").discard()
    assert [(event.kind, event.key) for event in recorder.events] == [("created", "A"), ("destroyed", "A")]
    assert recorder.details("created")[0] >= 0
    assert recorder.details("destroyed") == ["discarded"]
    assert pools == [pool, pool]


def test_waits_are_counted_by_their_ends(make_pool: MakePool, recorder: Recorder) -> None:
    """P106: served, timed out, refused, interrupted and closed waits each have their counter and outcome."""
    pool = make_pool(max_size=1, max_waiters=2, observer=recorder)
    lease = pool.lease("A")
    with Threads() as threads:
        served = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0.01)
        second = threads.start(pool.lease, "B", 60)
        wait_until_queued(pool, 2)
        with pytest.raises(PoolExhaustedError):
            pool.lease("A")
        assert pool.try_lease("A") is None
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0)
        lease.release()
        lease = served.result()
        threads.start(pool.close)
        assert isinstance(second.error(), PoolClosedError)
        lease.release()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.waits, stats.timeouts, stats.rejected, stats.cancelled) == (3, 2, 1, 0)
    assert sorted(recorder.details("waited", 1)) == ["closed", "served", "timeout"]
    assert len(recorder.of("queued")) == 3
    seconds = recorder.details("waited")
    assert all(number >= 0 for number in seconds)
    assert stats.wait_seconds == pytest.approx(sum(seconds), abs=0.05)
    assert stats.wait_seconds >= 0.01


def test_a_wait_that_ends_in_a_failure(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P106: a wait that ends in its own create's error counts as a wait, with the outcome `failed`."""
    pool = make_pool(max_size=1, observer=recorder)
    lease = pool.lease("A")
    factory.errors["create"] = [OSError("no")]
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        lease.discard()
        assert isinstance(waiting.error(), OSError)
    assert recorder.details("waited", 1) == ["failed"]
    assert assert_quiet(pool, leased=0, idle=0).waits == 1


def test_the_counters_of_one_key(make_pool: MakePool) -> None:
    """P106: stats(key) counts that key alone."""
    pool = make_pool(max_per_key=1)
    lease = pool.lease("A")
    pool.lease("B").release()
    with pytest.raises(PoolTimeoutError):
        pool.lease("A", timeout=0.25)
    stats = pool.stats("A")
    assert (stats.acquired, stats.leased, stats.timeouts, stats.waits) == (1, 1, 1, 1)
    assert stats.wait_seconds > 0  # its deadline began a little before its wait
    stats = pool.bind("B").stats()
    assert (stats.acquired, stats.idle, stats.timeouts, stats.waits, stats.wait_seconds) == (1, 1, 0, 0, 0)
    lease.release()


def test_each_destruction_names_its_reason(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P107: the event and the counter tell why a resource was destroyed."""
    pool = make_pool(
        max_size=3, max_idle=2, validate=factory.validate, reset=factory.reset, observer=recorder
    )
    pool.lease("discarded").discard()
    pool.discard(pool.acquire("discarded"))
    with pool.lease("invalid") as thing:
        thing.healthy = False
    pool.lease("invalid").release()
    factory.errors["reset"] = [OSError("no")]
    pool.lease("invalid").release()
    leases = [pool.lease("surplus") for _ in range(3)]
    for lease in leases:
        lease.release()
    held = pool.lease("cleared")
    pool.lease("cleared").release()
    assert pool.clear() >= 1
    held.release()

    def leak() -> None:
        pool.lease("leaked")
        pool.lease("closed").release()

    with pytest.warns(LeaseLeakWarning):
        leak()
    held = pool.lease("closed late")
    with Threads() as threads:
        threads.start(pool.close)
        wait_until(lambda: pool.closed, "closed")
        held.release()
    events = [(event.key, event.detail[0]) for event in recorder.of("destroyed")]
    for key in ("discarded", "invalid", "surplus", "cleared", "leaked"):
        reasons = {reason for its, reason in events if its == key}
        assert key in reasons, events
    assert [reason for key, reason in events if key.startswith("closed")] == ["closed", "closed"]
    stats = assert_quiet(pool, leased=0, idle=0)
    counts = {reason: sum(told == reason for _, told in events) for reason in REASONS}
    assert counts == dict(stats.destroyed_for)


def test_an_evicted_one_is_named_so(make_pool: MakePool, recorder: Recorder) -> None:
    """P107: what gives way to another key is `evicted`."""
    pool = make_pool(max_size=1, observer=recorder)
    pool.lease("A").release()
    pool.lease("B").release()
    assert [(event.key, event.detail) for event in recorder.of("destroyed")] == [("A", ("evicted",))]


def test_events_come_when_the_numbers_have_changed(make_pool: MakePool, recorder: Recorder) -> None:
    """P107: whoever asks for stats when told of a creation or destruction finds it counted."""
    seen: list[tuple[int, int]] = []

    def look(pool: ResourcePool[Any, Any], key: object, detail: object) -> None:
        stats = pool.stats()
        seen.append((stats.created, stats.destroyed))

    recorder.on["created"] = recorder.on["destroyed"] = look
    pool = make_pool(observer=recorder)
    pool.lease("A").discard()
    pool.lease("A").discard()
    assert seen == [(1, 0), (1, 1), (2, 1), (2, 2)]


def test_creating_and_destroying_are_seen(make_pool: MakePool, factory: Factory) -> None:
    """P103: what is under way in a hook is counted as such, for the pool and for its key."""
    gate = Gate()
    pool = make_pool(max_size=2)
    factory.before["create"] = lambda key: gate.stop()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    barrier = threading.Barrier(2)

    def use() -> None:
        lease = pool.lease("A")
        barrier.wait(30)
        lease.discard()

    with Threads() as threads:
        threads.start(use)
        gate.wait_arrived(1)
        for stats in (pool.stats(), pool.stats("A")):
            assert (stats.creating, stats.size, stats.leased, stats.created) == (1, 1, 0, 0)
        gate.let()
        barrier.wait(30)
        gate.wait_arrived(2)
        for stats in (pool.stats(), pool.stats("A")):
            assert (stats.destroying, stats.size, stats.leased, stats.destroyed) == (1, 1, 0, 0)
        gate.let()
    assert_quiet(pool, leased=0, idle=0)
