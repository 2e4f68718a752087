"""Hooks that fail: the room is given back, nothing is lost, the next one is served (P24 to P32)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from respool import PoolError, PoolLimits, Quarantine, ResourcePool
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Thing
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")

#: Not subclasses of Exception: what a careless ``except Exception`` lets through.
INTERRUPTS = [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit]


def test_an_error_of_create_reaches_the_caller(
    make_pool: MakePool, factory: Factory, recorder: Recorder
) -> None:
    """P24: the very same exception comes out, room and cost are given back, the next one can succeed."""
    pool = make_pool(max_size=1, max_cost=5, cost=lambda key: 5, observer=recorder)
    error = OSError("no")
    factory.errors["create"] = [error, error]
    with pytest.raises(OSError, match="no") as caught:
        pool.lease("A")
    assert caught.value is error
    with pytest.raises(OSError, match="no") as caught:
        pool.try_acquire("A")
    assert caught.value is error
    stats = assert_quiet(pool, keys=["A"], leased=0, idle=0)
    assert (stats.size, stats.cost, stats.created, stats.acquired) == (0, 0, 0, 0)
    assert stats.hook_errors["create"] == 2
    assert [event.detail for event in recorder.of("hook_failed")] == [("create", error)] * 2
    with pool.lease("A") as thing:
        assert thing.number == 1
    assert_quiet(pool, keys=["A"], leased=0, idle=1)


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_an_interrupt_in_create_gives_the_room_back(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """P25: KeyboardInterrupt, SystemExit and the like come out unchanged, and cost no room."""
    pool = make_pool(max_size=1)
    error = kind("now")
    factory.errors["create"] = [error]
    with pytest.raises(kind) as caught:
        pool.acquire("A")
    assert caught.value is error
    stats = assert_quiet(pool, keys=["A"], leased=0, idle=0)
    assert stats.size == 0
    pool.lease("A", timeout=0).release()


@pytest.mark.parametrize(
    ("held", "key"), [("leased", "A"), ("leased", "B"), ("acquired", "A"), ("acquired", "B"), ("idle", "B")]
)
def test_create_must_give_a_fresh_object(make_pool: MakePool, held: str, key: str) -> None:
    """P26: an object that the pool holds already keeps its one record; its second maker gets PoolError."""
    only = Thing("A", 1)
    destroyed: list[Thing] = []
    pool = make_pool(create=lambda key: only, destroy=lambda key, thing: destroyed.append(thing), max_size=3)
    lease = pool.lease("A") if held == "leased" else None
    if lease is None:
        pool.acquire("A")
    if held == "idle":
        pool.release(only)
    with pytest.raises(PoolError, match="Thing 1") as caught:
        pool.lease(key)
    assert type(caught.value) is PoolError
    stats = pool.stats()
    assert (stats.size, stats.cost, stats.creating) == (1, 1, 0)
    assert destroyed == []
    if lease is not None:
        lease.release()
    elif held == "acquired":
        pool.release(only)
    with pool.lease("A", timeout=0) as thing:
        assert thing is only
    assert_quiet(pool, keys=["A", "B"], leased=0, idle=1)
    assert destroyed == []


def test_after_destruction_an_object_may_come_again(make_pool: MakePool) -> None:
    """P26: only what the pool holds now counts: what it has destroyed or handed out for good may return."""
    only = Thing("A", 1)
    pool = make_pool(create=lambda key: only, destroy=lambda key, thing: None)
    pool.lease("A").discard()
    assert pool.lease("A").detach() is only
    with pool.lease("A") as thing:
        assert thing is only
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_a_failing_destroy_in_discard(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P27: destroy raises in discard: the resource is gone, the room free, the caller goes on."""
    pool = make_pool(max_size=1, observer=recorder)
    errors = [OSError("lease"), OSError("fast")]
    factory.errors["destroy"] = [*errors]
    pool.lease("A").discard()
    pool.discard(pool.acquire("A"))
    stats = assert_quiet(pool, keys="A", leased=0, idle=0)
    assert (stats.size, stats.destroyed, stats.hook_errors["destroy"]) == (0, 2, 2)
    assert [event.detail for event in recorder.of("hook_failed")] == [("destroy", e) for e in errors]
    pool.lease("A", timeout=0).release()


def test_a_failing_destroy_in_eviction(make_pool: MakePool, factory: Factory) -> None:
    """P27: destroy raises for the evicted one: the caller who needed the room is served."""
    pool = make_pool(max_size=1)
    factory.errors["destroy"] = [OSError("no")]
    pool.lease("A").release()
    with pool.lease("B", timeout=0) as thing:
        assert thing.key == "B"
    stats = assert_quiet(pool, keys="AB", leased=0, idle=1)
    assert (stats.destroyed_for["evicted"], stats.hook_errors["destroy"]) == (1, 1)


def test_a_failing_destroy_in_release_and_clear(make_pool: MakePool, factory: Factory) -> None:
    """P27: destroy raises for a surplus one, and in clear."""
    pool = make_pool(max_idle=1)
    factory.errors["destroy"] = [OSError("surplus"), OSError("clear")]
    leases = [pool.lease("A"), pool.lease("A")]
    for lease in leases:
        lease.release()
    assert pool.clear() == 1
    stats = assert_quiet(pool, keys="A", leased=0, idle=0)
    assert (stats.destroyed, stats.hook_errors["destroy"], stats.size) == (2, 2, 0)


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("step", ["discard", "surplus", "evict", "clear"])
def test_an_interrupt_in_destroy_gives_the_room_back(
    make_pool: MakePool, factory: Factory, kind: type[BaseException], step: str
) -> None:
    """G3: whatever destroy raises, the resource is gone and its room is free."""
    pool = make_pool(max_size=1, max_idle=0 if step == "surplus" else None)
    lease = pool.lease("A")
    factory.errors["destroy"] = [kind("now")]
    with contextlib.suppress(kind):
        if step == "discard":
            lease.discard()
        else:
            lease.release()
        if step == "evict":
            pool.lease("B").release()
        if step == "clear":
            pool.clear()
    assert factory.calls["destroy"] == 1
    stats = assert_quiet(pool, keys="AB", leased=0)
    assert (stats.size, stats.destroyed) == (stats.idle, 1)
    pool.lease("B", timeout=0).release()


def test_quarantine_keeps_a_resource_counted(make_pool: MakePool, factory: Factory) -> None:
    """P27: destroy raises Quarantine: it can't be freed, so it counts against the limits for good."""
    pool = make_pool(max_size=2, max_cost=6, cost=lambda key: 3)
    factory.errors["destroy"] = [Quarantine("the device still writes to it")]
    pool.lease("A").discard()
    stats = assert_quiet(pool, keys="A", leased=0, idle=0)
    assert (stats.size, stats.quarantined, stats.cost, stats.destroyed) == (1, 1, 3, 0)
    with pool.lease("A") as thing:
        assert thing.number == 2
        assert pool.try_lease("A") is None
    pool.clear()
    pool.close()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.quarantined) == (1, 1)
    assert factory.calls["destroy"] == 2


def test_a_failing_destroy_does_not_stop_close(make_pool: MakePool, factory: Factory) -> None:
    """P28: destroy raises for the second of five: the others are destroyed, and the pool is closed."""
    pool = make_pool()
    leases = [pool.lease(key) for key in "AABBC"]
    for lease in leases:
        lease.release()
    factory.errors["destroy"] = [None, OSError("no")]
    pool.close()
    assert pool.closed
    assert sorted(factory.numbers_destroyed()) == [1, 2, 3, 4, 5]
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.destroyed_for["closed"], stats.hook_errors["destroy"]) == (0, 5, 1)


def test_invalid_idle_ones_are_destroyed(make_pool: MakePool, factory: Factory) -> None:
    """P29: two of three idle ones prove invalid: they are destroyed, the good one is given."""
    pool = make_pool(validate=factory.validate)
    leases = [pool.lease("A") for _ in range(3)]
    for lease in leases:
        lease.release()
    factory.made[1].healthy = factory.made[2].healthy = False
    with pool.lease("A") as thing:
        assert thing.number == 1
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["invalid"] == 2
    assert sorted(factory.numbers_destroyed()) == [2, 3]
    assert (stats.created, stats.reused, stats.acquired, stats.hook_errors["validate"]) == (3, 1, 4, 0)


def test_when_all_are_invalid_one_is_created(make_pool: MakePool, factory: Factory) -> None:
    """P29: with no good one left a new one is made, in the same call, try_ calls included."""
    pool = make_pool(max_size=2, validate=factory.validate)
    leases = [pool.lease("A") for _ in range(2)]
    for lease in leases:
        lease.resource.healthy = False
        lease.release()
    thing = pool.try_acquire("A")
    assert thing is not None
    assert thing.number == 3
    pool.release(thing)
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["invalid"] == 2
    assert factory.most_alive == 2


def test_a_new_resource_is_not_validated(make_pool: MakePool) -> None:
    """P29: validate judges what has lain idle: a bad verdict can't make an acquire create for ever."""
    pool = make_pool(validate=lambda key, thing: False)
    for number in (1, 2, 3):
        with pool.lease("A") as thing:
            assert thing.number == number
    stats = assert_quiet(pool, leased=0, idle=1)
    assert stats.destroyed_for["invalid"] == 2


def test_an_error_of_validate_is_a_verdict(make_pool: MakePool, factory: Factory, recorder: Recorder) -> None:
    """P30: validate raises: the resource is destroyed, the next one tried, the caller sees nothing."""
    pool = make_pool(validate=factory.validate, observer=recorder)
    leases = [pool.lease("A") for _ in range(2)]
    for lease in leases:
        lease.release()
    error = OSError("connection reset")
    factory.errors["validate"] = [error]
    with pool.lease("A") as thing:
        assert thing.alive
        assert thing.number == 1
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert (stats.hook_errors["validate"], stats.destroyed_for["invalid"]) == (1, 1)
    assert factory.numbers_destroyed() == [2]
    assert [event.detail for event in recorder.of("hook_failed")] == [("validate", error)]


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_an_interrupt_in_validate(make_pool: MakePool, factory: Factory, kind: type[BaseException]) -> None:
    """P31: it reaches the caller; the resource is idle or destroyed, never lost in `leased`."""
    pool = make_pool(max_size=1, validate=factory.validate)
    pool.lease("A").release()
    error = kind("now")
    factory.errors["validate"] = [error]
    with pytest.raises(kind) as caught:
        pool.lease("A")
    assert caught.value is error
    stats = assert_quiet(pool, keys="A", leased=0)
    assert stats.size == stats.idle
    pool.lease("A", timeout=0).release()


def test_an_interrupt_in_validate_serves_the_next_waiter(make_pool: MakePool, factory: Factory) -> None:
    """P31: and somebody waiting behind is served."""
    gate = Gate()
    pool = make_pool(max_size=1, validate=factory.validate)
    pool.lease("A").release()
    factory.before["validate"] = lambda key, thing: gate.stop()
    factory.errors["validate"] = [KeyboardInterrupt()]
    with Threads() as threads:
        first = threads.start(pool.lease, "A")
        gate.wait_arrived()
        second = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        gate.open()
        assert isinstance(first.error(), KeyboardInterrupt)
        second.result().release()
    assert_quiet(pool, keys="A", leased=0, idle=1)


@pytest.mark.parametrize("kind", [OSError, *INTERRUPTS])
@pytest.mark.parametrize("tier", ["lease", "fast"])
def test_a_failing_reset(
    make_pool: MakePool, factory: Factory, recorder: Recorder, kind: type[BaseException], tier: str
) -> None:
    """P32: reset raises: the resource is destroyed, its room goes to the waiter."""
    pool = make_pool(max_size=1, reset=factory.reset, observer=recorder)
    lease = pool.lease("A") if tier == "lease" else None
    thing = pool.acquire("A") if lease is None else lease.resource
    error = kind("no")
    factory.errors["reset"] = [error]
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        with contextlib.suppress(() if kind is OSError else kind):
            if lease is None:
                pool.release(thing)
            else:
                lease.release()
        assert waiting.result().resource.number == 2
        waiting.result().release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.destroyed_for["invalid"] == 1
    assert factory.numbers_destroyed() == [1]
    if kind is OSError:
        assert stats.hook_errors["reset"] == 1
        assert [event.detail for event in recorder.of("hook_failed")] == [("reset", error)]


def test_nobody_gets_a_resource_before_reset_has_run(make_pool: MakePool, factory: Factory) -> None:
    """G5: reset runs in the releaser, and only then can anyone else have the resource."""
    gate = Gate()
    pool = make_pool(max_size=1, reset=factory.reset)
    lease = pool.lease("A")
    factory.before["reset"] = lambda key, thing: gate.stop()
    with Threads() as threads:
        releasing = threads.start(lease.release)
        gate.wait_arrived()
        assert pool.try_lease("A") is None
        stats = pool.stats()
        assert (stats.size, stats.idle) == (1, 0)
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        gate.open()
        releasing.result()
        assert factory.reset_things == [waiting.result().resource]
        waiting.result().release()
    assert_quiet(pool, keys="A", leased=0, idle=1)


def test_reset_is_not_run_for_what_is_discarded(make_pool: MakePool, factory: Factory) -> None:
    """G5: what will not be used again needs no reset."""
    pool = make_pool(reset=factory.reset)
    pool.lease("A").discard()
    pool.discard(pool.acquire("A"))
    pool.lease("A").detach()
    assert factory.calls["reset"] == 0
    assert_quiet(pool, leased=0, idle=0)


def test_every_hook_gets_key_and_resource() -> None:
    """Hooks are called as the contract says: create(key), the others with key and resource."""
    calls: list[tuple[object, ...]] = []
    thing = object()

    def note(name: str, answer: object, *args: Hashable) -> object:
        calls.append((name, *args))
        return answer

    pool: ResourcePool[str, object] = ResourcePool(
        lambda *args: note("create", thing, *args),
        lambda *args: note("destroy", None, *args),
        lambda *args: note("validate", 1, *args),  # type: ignore[arg-type,return-value]
        reset=lambda *args: note("reset", None, *args),
        cost=lambda *args: note("cost", 7, *args),  # type: ignore[arg-type,return-value]
        limits=PoolLimits(max_per_key=lambda *args: note("max_per_key", 3, *args)),  # type: ignore[arg-type,return-value]
    )
    with pool:
        for _ in range(2):
            pool.lease("A").release()
        assert pool.stats().cost == 7
    assert sorted(calls[:3]) == [("cost", "A"), ("create", "A"), ("max_per_key", "A")]
    assert calls[3:] == [
        ("reset", "A", thing),
        ("validate", "A", thing),
        ("reset", "A", thing),
        ("destroy", "A", thing),
    ]


def test_without_destroy_a_resource_is_dropped() -> None:
    """A pool without a destroy hook counts a discarded resource as destroyed, and lets go of it."""
    with ResourcePool(lambda key: Thing(key, 1)) as pool:
        pool.lease("A").discard()
        stats = assert_quiet(pool, keys="A", leased=0, idle=0)
        assert (stats.destroyed, stats.size) == (1, 0)
