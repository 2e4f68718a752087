"""No hook runs under a pool lock, and a slow one delays nobody else (P33, P34, P105)."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import pytest

from respool import LeaseLeakWarning, PoolLimits, ResourcePool
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Thing
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.recorder import Recorder
    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


class Probe:
    """Has another thread ask the pool while a hook of this thread is running.

    Put it where the hook comes by; it lets pass until ``run`` arms it, and then asks once.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask
        self.armed = False
        self.answers = 0
        self.failures: list[BaseException] = []

    def __call__(self, *_: object) -> None:
        """Ask, when armed."""
        if not self.armed:
            return
        self.armed = False
        # An error raised here might be swallowed by the pool, as an observer's are: keep it.
        try:
            with Threads() as threads:
                threads.start(self.ask)
        except BaseException as error:
            self.failures.append(error)
        else:
            self.answers += 1

    def run(self, call: Callable[[], object]) -> None:
        """Make the call with the probe armed; it must have asked, and been answered."""
        self.armed = True
        call()
        self.armed = False
        assert self.failures == []
        assert self.answers == 1


def ask_everything(pool: ResourcePool[Any, Any]) -> Callable[[], None]:
    """Return what a probe asks of a pool that has room: a hit, a miss, a discard, stats and so on."""
    pool.lease("idle").release()

    def ask() -> None:
        pool.stats()
        pool.stats("idle")
        pool.lease("idle", timeout=0).release()
        pool.release(pool.acquire("new", timeout=0))
        pool.lease("new", timeout=0).discard()
        pool.clear("new")
        repr(pool)

    return ask


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset"])
def test_resource_hooks_run_outside_locks(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """P33: while create, destroy, validate or reset runs, others lease, release, clear and ask for stats."""
    pool = make_pool(validate=factory.validate, reset=factory.reset)
    probe = Probe(ask_everything(pool))
    if hook != "create":
        pool.lease("probed").release()
    factory.before[hook] = probe
    if hook == "destroy":
        probe.run(lambda: pool.lease("probed").discard())
    else:
        probe.run(lambda: pool.lease("probed").release())
    assert_quiet(pool, keys=["idle", "new", "probed"], leased=0)


@pytest.mark.parametrize("reason", ["surplus", "cleared", "cleared late", "invalid", "leaked"])
def test_destroy_runs_outside_locks_whatever_the_reason(
    make_pool: MakePool, factory: Factory, reason: str
) -> None:
    """P33: destroy runs without a lock for every reason that leaves the pool room."""
    pool = make_pool(max_idle=2 if reason == "surplus" else None, validate=factory.validate)
    probe = Probe(ask_everything(pool))
    leases = [pool.lease("probed") for _ in range(2)]
    leases.pop().release()
    factory.before["destroy"] = probe
    if reason == "surplus":
        probe.run(leases.pop().release)
    elif reason == "cleared":
        probe.run(pool.clear)
        leases.pop().release()
    elif reason == "cleared late":
        pool.clear()
        pool.lease("idle").release()
        probe.run(leases.pop().release)
    elif reason == "invalid":
        leases.pop().release()
        factory.made[1].healthy = False
        probe.run(lambda: pool.lease("probed").release())
    else:

        def leak() -> None:
            leases.pop()
            pool.lease("other").release()

        with pytest.warns(LeaseLeakWarning):
            probe.run(leak)
    assert pool.stats().destroyed_for[reason.removesuffix(" late")] >= 1
    assert_quiet(pool, keys=["idle", "new", "probed", "other"], leased=0)


def test_destroy_for_eviction_runs_outside_locks(make_pool: MakePool, factory: Factory) -> None:
    """P33: while one is destroyed to make room, others release, wait and ask for stats."""
    pool = make_pool(max_size=2)
    lease = pool.lease("held")
    pool.lease("old").release()

    def ask() -> None:
        assert pool.stats().destroying == 1
        lease.release()
        assert pool.try_lease("third") is None

    probe = Probe(ask)
    factory.before["destroy"] = probe
    probe.run(lambda: pool.lease("new").release())
    assert_quiet(pool, keys=["held", "new"], leased=0, idle=2)


def test_destroy_in_close_runs_outside_locks(make_pool: MakePool, factory: Factory) -> None:
    """P33: while close destroys, stats and releases by others go on."""
    pool = make_pool()
    lease = pool.lease("A")
    pool.lease("A").release()

    def ask() -> None:
        assert pool.closed
        pool.stats()
        lease.release()

    probe = Probe(ask)
    factory.before["destroy"] = probe
    probe.run(pool.close)
    assert_quiet(pool, leased=0, idle=0)


def test_cost_and_max_per_key_run_outside_locks() -> None:
    """P33: the functions that answer for a key run without a lock too."""
    probes: dict[str, Probe] = {}

    def answer(name: str, key: str) -> int:
        if key == "probed" and name in probes:
            probes[name]()
        return 5

    with ResourcePool(
        lambda key: Thing(key, 0),
        cost=lambda key: answer("cost", key),
        limits=PoolLimits(max_per_key=lambda key: answer("max_per_key", key), max_cost=1000),
    ) as pool:
        for name in ("cost", "max_per_key"):
            probes[name] = Probe(ask_everything(pool))
        probes["cost"].armed = True
        probes["max_per_key"].run(lambda: pool.lease("probed").release())
        assert (probes["cost"].answers, probes["cost"].failures) == (1, [])


def tell(recorder: Recorder, event: str, pool: ResourcePool[Any, Any]) -> Probe:
    """Let a probe ask when the observer is told of the event, and the observer itself too."""
    ask = ask_everything(pool)
    probe = Probe(ask)

    def told(*args: object) -> None:
        if probe.armed:
            probe()
            ask()

    recorder.on[event] = told
    return probe


@pytest.mark.parametrize("event", ["created", "destroyed", "hook_failed"])
def test_observers_run_outside_locks(
    make_pool: MakePool, factory: Factory, recorder: Recorder, event: str
) -> None:
    """P105: while an observer is told of a hook's work, others use the pool, and it may do so itself."""
    pool = make_pool(observer=recorder)
    probe = tell(recorder, event, pool)
    factory.errors["destroy"] = [OSError("no")]
    probe.run(lambda: pool.lease("probed").discard())
    assert pool.stats().hook_errors["observer"] == 0
    assert_quiet(pool, keys=["idle", "new"], leased=0)


@pytest.mark.parametrize("event", ["queued", "waited"])
def test_observers_of_waits_run_outside_locks(make_pool: MakePool, recorder: Recorder, event: str) -> None:
    """P105: the same when it is told that a wait begins or ends."""
    pool = make_pool(observer=recorder, max_per_key=1)
    probe = tell(recorder, event, pool)
    lease = pool.lease("probed")
    with Threads() as threads:
        waiting = threads.start(probe.run, lambda: pool.lease("probed").release())
        wait_until_queued(pool, 1)
        lease.release()
        waiting.result()
    assert pool.stats().hook_errors["observer"] == 0
    assert_quiet(pool, keys=["idle", "new", "probed"], leased=0)


def test_observers_of_leaks_run_outside_locks(make_pool: MakePool, recorder: Recorder) -> None:
    """P105: the same when it is told of a leak."""
    pool = make_pool(observer=recorder)
    probe = tell(recorder, "leaked", pool)

    def leak() -> None:
        pool.lease("probed")
        pool.lease("other").release()

    with pytest.warns(LeaseLeakWarning):
        probe.run(leak)
    assert pool.stats().hook_errors["observer"] == 0
    assert_quiet(pool, keys=["idle", "new", "probed", "other"], leased=0)


class Key:
    """A key that tells when it is hashed and compared."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.told = told

    def __hash__(self) -> int:
        self.told("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        self.told("eq")
        return isinstance(other, Key)


@pytest.mark.parametrize("method", ["hash", "eq"])
def test_keys_are_hashed_and_compared_outside_locks(make_pool: MakePool, method: str) -> None:
    """P33: a key's own methods run without a lock, in every call that takes a key."""
    pool = make_pool()
    ask = ask_everything(pool)
    told: list[Probe] = []

    def tell(name: str) -> None:
        if name == method:
            for probe in told:
                probe()

    calls: list[Callable[[], object]] = [
        lambda: pool.lease(Key(tell)).release(),
        lambda: pool.release(pool.acquire(Key(tell))),
        lambda: pool.try_lease(Key(tell)).release(),
        lambda: pool.bind(Key(tell)).lease().release(),
        lambda: pool.stats(Key(tell)),
        lambda: pool.clear(Key(tell)),
    ]
    pool.lease(Key(tell)).release()
    for call in calls:
        told[:] = [Probe(ask)]
        told[0].run(call)
    told.clear()


def test_a_resources_end_runs_outside_locks() -> None:
    """P33: the last reference to a resource is let go without a lock held."""
    probes: list[Probe] = []

    class Mortal:
        def __del__(self) -> None:
            for probe in probes:
                probe()

    with ResourcePool(lambda key: Mortal()) as pool:
        ask = ask_everything(pool)
        pool.lease("probed").release()
        for call in (
            lambda: pool.clear("probed"),
            lambda: pool.lease("probed").discard(),
            lambda: pool.discard(pool.acquire("probed")),
            lambda: pool.lease("probed").detach() and None,
        ):
            probes[:] = [Probe(ask)]
            probes[0].run(call)
            probes.clear()


def test_a_discarded_resource_is_let_go() -> None:
    """P33: what was destroyed or detached is not kept alive by the pool."""
    with ResourcePool(lambda key: Thing(key, 0)) as pool:
        ends = []
        for way in ("discard", "detach"):
            lease = pool.lease("A")
            ends.append(weakref.ref(lease.resource))
            getattr(lease, way)()
            del lease
        pool.lease("A").release()
        pool.clear()
        assert [end() for end in ends] == [None, None]


def test_a_slow_create_delays_nobody(make_pool: MakePool, factory: Factory) -> None:
    """P34: while a create of key A stands still, all else goes on, on A and on B."""
    gate = Gate()
    pool = make_pool(max_size=6)
    leases = [pool.lease(key) for key in "AABB"]
    factory.before["create"] = lambda key: gate.stop() if key == "A" else None
    idle = leases.pop()
    idle.release()
    held = [pool.lease("B")]
    with Threads() as threads:
        creating = threads.start(pool.lease, "A")
        gate.wait_arrived()
        for lease in (leases[0], leases[2]):
            lease.release()
            with pool.lease(lease.key) as thing:
                assert thing.alive
        held.append(pool.lease("B", timeout=0))
        held.append(pool.lease("B", timeout=0))
        assert pool.stats().creating == 1
        assert not creating.ended
        gate.open()
        held.append(creating.result())
    for lease in (*held, leases[1]):
        lease.release()
    assert_quiet(pool, keys="AB", leased=0)


def test_a_release_is_handed_on_while_a_create_runs(make_pool: MakePool, factory: Factory) -> None:
    """G1: a waiter gets what is released; it does not wait for the end of another's create."""
    gate = Gate()
    pool = make_pool(max_size=2)
    lease = pool.lease("A")
    factory.before["create"] = lambda key: gate.stop()
    with Threads() as threads:
        creating = threads.start(pool.lease, "A")
        gate.wait_arrived()
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        lease.release()
        assert waiting.result().resource.number == 1
        assert not creating.ended
        gate.open()
        creating.result().release()
        waiting.result().release()
    assert_quiet(pool, keys="A", leased=0, idle=2)


@pytest.mark.parametrize("hook", ["destroy", "validate", "reset"])
def test_a_slow_hook_on_one_key_delays_no_other(make_pool: MakePool, factory: Factory, hook: str) -> None:
    """P34: the same for the other hooks."""
    gate = Gate()
    pool = make_pool(validate=factory.validate, reset=factory.reset)
    for key in "AB":
        pool.lease(key).release()
    factory.before[hook] = lambda key, thing: gate.stop() if key == "A" else None
    with Threads() as threads:
        slow = threads.start(
            lambda: pool.discard(pool.acquire("A")) if hook == "destroy" else _use(pool, "A")
        )
        gate.wait_arrived()
        _use(pool, "B")
        pool.lease("B").discard()
        _use(pool, "B")
        _use(pool, "C")
        assert not slow.ended
        gate.open()
    assert_quiet(pool, keys="ABC", leased=0)


def _use(pool: ResourcePool[str, Thing], key: str) -> None:
    with pool.lease(key, timeout=0) as thing:
        assert thing.key == key
