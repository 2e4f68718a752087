"""Every hook times everything it can raise: the rooms are right afterwards (P25, P30 to P32, P27, G3)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolObserver
from tests.helpers.gates import RemoteHook
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.recorder import Recorder
from tests.helpers.storms import weather
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

KINDS = [RuntimeError, KeyboardInterrupt, SystemExit, asyncio.CancelledError]

ACQUIRES: dict[str, Callable[[ResourcePool[Any, Any]], object]] = {
    "lease": lambda pool: pool.lease("A"),
    "try_lease": lambda pool: pool.try_lease("A"),
    "acquire": lambda pool: pool.acquire("A"),
    "try_acquire": lambda pool: pool.try_acquire("A"),
    "timeout=0": lambda pool: pool.lease("A", timeout=0),
    "bound": lambda pool: pool.bind("A").acquire(timeout=1),
}


def assert_whole(pool: ResourcePool[Any, Thing], rooms: int = 2) -> None:
    """Check that nothing is out and that all rooms can be had, for good resources."""
    assert_quiet(pool, leased=0)
    leases = [pool.lease("A", timeout=5) for _ in range(rooms)]
    assert all(lease.resource.alive for lease in leases)
    assert len({id(lease.resource) for lease in leases}) == rooms
    assert pool.try_lease("A") is None
    for lease in leases:
        lease.release()
    assert_quiet(pool, leased=0, idle=rooms)


def let_out(error: BaseException, call: Callable[[], object]) -> None:
    """Run a call that keeps an Exception to itself, and may let an interrupt out, but nothing else."""
    raised: list[BaseException] = []
    try:
        call()
    except BaseException as other:
        raised.append(other)
    assert raised in ([], [error])
    assert raised == [] or not isinstance(error, Exception)


@pytest.mark.parametrize("call", ACQUIRES)
@pytest.mark.parametrize("kind", KINDS)
def test_create_raises(make_pool: MakePool, factory: Factory, kind: type[BaseException], call: str) -> None:
    """P25: what create raises reaches the caller as it is, through every door; slot and cost are back."""
    pool = make_pool(max_size=2, max_cost=14, cost=lambda key: 7)
    error = kind("create")
    factory.errors["create"] = [error]
    with pytest.raises(kind) as caught:
        ACQUIRES[call](pool)
    assert caught.value is error
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.cost, stats.created) == (0, 0, 0)
    if kind is RuntimeError:
        assert stats.hook_errors["create"] == 1
    assert_whole(pool)


@pytest.mark.parametrize("kind", KINDS)
def test_create_raises_while_others_wait(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """P20, P25: the next waiter, and the one behind it, are served by the room that came back."""
    create: RemoteHook[None] = RemoteHook()
    factory.before["create"] = create
    pool = make_pool(max_size=1)
    error = kind("create")
    with Threads() as threads:
        first = threads.start(pool.lease, "A")
        call = create.next_call()
        others = [threads.start(lambda key=key: pool.lease(key).release()) for key in "AB"]
        wait_until_queued(pool, 2)
        call.raises(error)
        assert first.error() is error
        for _ in others:
            create.next_call().returns(None)
    factory.before.clear()
    pool.clear()
    assert_whole(pool, 1)


@pytest.mark.parametrize("call", ACQUIRES)
@pytest.mark.parametrize("kind", KINDS)
def test_validate_raises(make_pool: MakePool, factory: Factory, kind: type[BaseException], call: str) -> None:
    """P30, P31: an Exception means invalid and the next one is tried; an interrupt reaches the caller."""
    pool = make_pool(max_size=2, validate=factory.validate)
    for lease in [pool.lease("A"), pool.lease("A")]:
        lease.release()
    error = kind("validate")
    factory.errors["validate"] = [error]
    if kind is RuntimeError:
        got: Any = ACQUIRES[call](pool)
        thing = got.resource if "lease" in call or call == "timeout=0" else got
        assert thing is factory.made[0]
        got.release() if thing is not got else pool.release(got)
        assert factory.numbers_destroyed() == [2]
        stats = assert_quiet(pool, leased=0, idle=1)
        assert (stats.destroyed_for["invalid"], stats.hook_errors["validate"]) == (1, 1)
    else:
        with pytest.raises(kind) as caught:
            ACQUIRES[call](pool)
        assert caught.value is error
        stats = assert_quiet(pool, leased=0)
        assert stats.idle + stats.destroyed == 2
    assert_whole(pool)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_validate_is_interrupted_while_others_wait(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """P31: the resource that was in validation, or its room, serves the next waiter."""
    validate: RemoteHook[None] = RemoteHook()
    pool = make_pool(max_size=1, validate=factory.validate)
    pool.lease("A").release()
    factory.before["validate"] = validate
    with Threads() as threads:
        first = threads.start(pool.lease, "A")
        call = validate.next_call()
        second = threads.start(pool.lease, "B")
        wait_until_queued(pool, 1)
        call.raises(kind("validate"))
        assert isinstance(first.error(), kind)
        woken(second).release()
    factory.before.clear()
    assert_whole(pool, 1)


@pytest.mark.parametrize("tier", ["lease", "with", "fast"])
@pytest.mark.parametrize("kind", KINDS)
def test_reset_raises(make_pool: MakePool, factory: Factory, kind: type[BaseException], tier: str) -> None:
    """P32, P48: the resource is destroyed as invalid and its room serves the waiter; no Exception is raised."""
    recorder = Recorder()
    pool = make_pool(max_size=1, reset=factory.reset, observer=recorder)
    error = kind("reset")
    with Threads() as threads:
        if tier == "fast":
            thing = pool.acquire("A")
        else:
            lease = pool.lease("A")
            thing = lease.resource
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        factory.errors["reset"] = [error]
        if tier == "fast":
            let_out(error, lambda: pool.release(thing))
        elif tier == "with":
            let_out(error, lambda: lease.__exit__(None, None, None))
        else:
            let_out(error, lease.release)
        assert woken(waiting).resource.number == 2
        waiting.result().release()
    assert factory.destroyed == [thing]
    assert recorder.details("destroyed") == ["invalid"]
    assert pool.stats().hook_errors["reset"] == 1
    assert_whole(pool, 1)


def end_discard(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by a lease's discard."""
    pool.lease("A").discard()


def end_fast_discard(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by the fast tier's discard."""
    pool.discard(pool.acquire("A"))


def end_clear(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by clear."""
    pool.lease("A").release()
    pool.clear()


def end_cleared_lease(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by releasing what was leased while the pool was cleared."""
    lease = pool.lease("A")
    pool.clear()
    lease.release()


def end_evict(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by taking the room for another key."""
    leases = [pool.lease("A"), pool.lease("A")]
    leases[0].release()
    try:
        pool.lease("B", timeout=5).release()
    finally:
        leases[1].release()


def end_invalid(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by a failed validation."""
    with pool.lease("A") as thing:
        thing.healthy = False
    pool.lease("A", timeout=5).release()


def end_leak(pool: ResourcePool[Any, Thing]) -> None:
    """Destroy by forgetting a lease."""
    pool.lease("A")
    pool.lease("A", timeout=5).release()


ENDS = [end_discard, end_fast_discard, end_clear, end_cleared_lease, end_evict, end_invalid, end_leak]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_destroy_raises(
    make_pool: MakePool,
    factory: Factory,
    kind: type[BaseException],
    end: Callable[[ResourcePool[Any, Thing]], None],
) -> None:
    """P27, G3: whatever destroy raises and why ever it ran, the resource is gone and the room is free."""
    recorder = Recorder()
    pool = make_pool(max_size=2, validate=factory.validate, observer=recorder)
    error = kind("destroy")
    factory.errors["destroy"] = [error]
    with weather():
        let_out(error, lambda: end(pool))
        pool.clear()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.hook_errors["destroy"]) == (0, 1)
    assert ("destroy", error) in [event.detail for event in recorder.of("hook_failed")]
    assert len(recorder.of("destroyed")) == stats.destroyed == len(factory.destroyed)
    assert_whole(pool)


@pytest.mark.parametrize("kind", KINDS)
def test_destroy_raises_while_others_wait(
    make_pool: MakePool, factory: Factory, kind: type[BaseException]
) -> None:
    """P19, P27: the waiter gets the room of a resource whose destroy failed."""
    pool = make_pool(max_size=1)
    lease = pool.lease("A")
    error = kind("destroy")
    factory.errors["destroy"] = [error]
    with Threads() as threads:
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        let_out(error, lease.discard)
        woken(waiting).release()
    assert_whole(pool, 1)


@pytest.mark.parametrize("asked", ["cost", "max_per_key"])
@pytest.mark.parametrize("kind", KINDS)
def test_cost_or_max_per_key_raises(
    make_pool: MakePool, factory: Factory, kind: type[BaseException], asked: str
) -> None:
    """P94, G3: what these raise reaches the acquirer as it is; nothing is created or held."""
    error = kind(asked)
    errors = [error]

    def ask(key: object) -> int:
        if errors:
            raise errors.pop()
        return 2

    pool = make_pool(max_size=2, **{asked: ask})
    with pytest.raises(kind) as caught:
        pool.lease("A")
    assert caught.value is error
    assert factory.calls["create"] == 0
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.size, stats.cost) == (0, 0)
    if kind is RuntimeError:
        assert stats.hook_errors[asked] == 1
    assert_whole(pool)


class Raiser(PoolObserver):
    """An observer that raises once, at one event, and may do something before."""

    def __init__(self, event: str, error: BaseException) -> None:
        self.left = [error]
        self.when_queued: Callable[[], object] = int
        self._event = event

    def _tell(self, event: str) -> None:
        if event == "queued":
            self.when_queued()
        if event == self._event and self.left:
            raise self.left.pop()


for name in ("created", "destroyed", "queued", "waited", "leaked", "hook_failed"):
    setattr(Raiser, name, lambda self, *args, event=name: self._tell(event))


def provoke(event: str, pool: ResourcePool[Any, Thing], factory: Factory, raiser: Raiser) -> None:
    """Do what this event is told of."""
    if event == "destroyed":
        pool.lease("A").discard()
    elif event == "leaked":
        pool.lease("A")
        pool.lease("A", timeout=5).release()
    elif event == "hook_failed":
        factory.errors["reset"] = [RuntimeError("reset")]
        pool.lease("A").release()
    elif event in {"queued", "waited"}:
        held = [pool.lease("A"), pool.lease("A")]
        raiser.when_queued = held[0].release  # so the wait is served before it sleeps
        try:
            pool.lease("A", timeout=5).release()
        finally:
            for lease in held:
                lease.release()
    else:
        pool.lease("A").release()


@pytest.mark.parametrize("event", ["created", "destroyed", "queued", "waited", "leaked", "hook_failed"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_observer_raises(
    make_pool: MakePool,
    factory: Factory,
    caplog: pytest.LogCaptureFixture,
    kind: type[BaseException],
    event: str,
) -> None:
    """P104, G3: an observer's Exception is swallowed, counted and logged; an interrupt costs no room."""
    error = kind("observer")
    raiser = Raiser(event, error)
    pool = make_pool(max_size=2, reset=factory.reset, observer=raiser)
    with weather(), caplog.at_level(logging.DEBUG, logger="respool"):
        let_out(error, lambda: provoke(event, pool, factory, raiser))
        pool.clear()
    assert raiser.left == []
    if kind is RuntimeError:
        assert pool.stats().hook_errors["observer"] == 1
        assert any("observer" in record.getMessage() for record in caplog.records)
    assert_whole(pool)
