"""Who asks whether pending resources are free: how many, in what order, one thread at a time, outside all locks (G8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, run_together, wait_until_queued
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.resources import MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

MOST = 4
"""How many pending ones of a key a miss asks; where it would have to wait, it asks so many once more, of all keys."""


def fail(pool: ResourcePool[Any, Thing], key: str = "A") -> None:
    """Ask for one in vain."""
    assert pool.try_lease(key) is None


def assert_used_well(*whens: When) -> None:
    """Check that none was ever asked by two at once, nor after its yes."""
    for when in whens:
        assert when.misuse == []


# -- how many, and in what order -----------------------------------------------------------------------------


def test_a_miss_asks_a_bounded_number(make_pool: MakePool) -> None:
    """G8: an acquire that finds nothing idle asks a few pending ones of its key, however many there are, then makes a new one."""
    pool = make_pool()
    whens = [When() for _ in range(50)]
    hand_in(pool, *whens)
    lease = pool.lease("A")
    assert lease.resource.number == 51
    assert sum(when.asked - 1 for when in whens) == MOST
    lease.release()
    lease = pool.lease("A")  # a hit asks nobody
    assert sum(when.asked - 1 for when in whens) == MOST
    lease.release()


@pytest.mark.parametrize("call", ["try_lease", "try_acquire", "lease"])
def test_a_miss_of_a_full_pool_asks_a_bounded_number(make_pool: MakePool, call: str) -> None:
    """G8: where there's no room it asks a few more, of all keys, and gives up then if it may not wait."""
    pool = make_pool(max_size=50)
    whens = [When() for _ in range(50)]
    hand_in(pool, *whens[:25])
    hand_in(pool, *whens[25:], key="B")
    for number in range(1, 4):
        if call == "lease":
            with pytest.raises(PoolTimeoutError):
                pool.lease("A", timeout=0)
        else:
            assert getattr(pool, call)("A") is None
        assert number * MOST <= sum(when.asked - 1 for when in whens) <= number * 2 * MOST


@pytest.mark.parametrize("place", range(MOST))
def test_an_unfinished_one_does_not_stop_the_search(make_pool: MakePool, place: int) -> None:
    """G8: a single miss looks past pending ones that aren't free for one that is."""
    pool = make_pool(max_size=MOST)
    whens = [When() for _ in range(MOST)]
    things = hand_in(pool, *whens)
    whens[place].free = True
    with pool.lease("A", timeout=0) as thing:
        assert thing is things[place]
    assert_used_well(*whens)


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize("keys", ["one key", "many keys"])
def test_those_that_never_end_hide_nobody(make_pool: MakePool, place: int, keys: str) -> None:
    """G8: pending ones are asked in turn: among ten, any that is free is found within a few misses."""
    pool = make_pool(max_size=10)
    whens = [When() for _ in range(10)]
    things = [
        hand_in(pool, when, key="A" if keys == "one key" else f"key {number}")[0]
        for number, when in enumerate(whens)
    ]
    for _ in range(5):
        fail(pool)
    assert all(when.asked > 1 for when in whens)
    whens[place].free = True
    misses = 0
    while (lease := pool.try_lease(things[place].key)) is None:
        misses += 1
        assert misses < 3
    assert lease.resource is things[place]
    lease.release()
    assert_used_well(*whens)


@pytest.mark.parametrize("own", [1, MOST, 3 * MOST])
def test_own_ones_that_never_end_hide_no_other_key_s(make_pool: MakePool, own: int) -> None:
    """G8: a full pool's miss looks at other keys too, however many unfinished ones its own key has: their room is as good."""
    pool = make_pool(max_size=own + 1)
    hand_in(pool, *[When() for _ in range(own)])
    when = When()
    hand_in(pool, when, key="B")
    when.free = True
    misses = 0
    while (lease := pool.try_lease("A")) is None:
        misses += 1
        assert misses < 5
    assert lease.resource.number == own + 2  # B's has made room
    assert pool.stats().destroyed_for["evicted"] == 1
    lease.release()
    assert_used_well(when)


def test_its_own_key_comes_first(make_pool: MakePool) -> None:
    """G8: a miss asks its own key's pending ones before others': nothing is destroyed where one of its own is free."""
    pool = make_pool(max_size=12)
    mine, others = When(), [When() for _ in range(11)]
    hand_in(pool, *others, key="B")
    (thing,) = hand_in(pool, mine)
    mine.free = True
    for when in others:
        when.free = True
    with pool.lease("A", timeout=0) as got:
        assert got is thing
    assert [when.asked for when in others] == [1] * 11
    assert pool.stats().destroyed == 0


@pytest.mark.parametrize("call", ["reap", "close"])
@pytest.mark.parametrize("yes", range(4))
def test_all_are_asked_whoever_says_yes(make_pool: MakePool, call: str, yes: int) -> None:
    """G8: reap and close ask all that is pending, of all keys, once each: one that is free on the way has no other asked twice."""
    pool = make_pool()
    whens = [When() for _ in range(4)]
    for key, own in (("A", whens[:1]), ("B", whens[1:])):
        hand_in(pool, *own, key=key)
    whens[yes].free = True
    before = [when.asked for when in whens]
    if call == "reap":
        pool.reap()
    else:
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=0)
    assert [when.asked - earlier for when, earlier in zip(whens, before, strict=True)] == [1] * 4
    assert_used_well(*whens)


def test_a_hit_asks_nobody(make_pool: MakePool) -> None:
    """G8: as long as something is idle, nobody is asked; nor by release, stats, or a look at the pool."""
    pool = make_pool(max_size=3)
    idle = pool.lease("A")
    when = When()
    hand_in(pool, when)
    idle.release()
    for _ in range(3):
        pool.lease("A").release()
        pool.release(pool.acquire("A", timeout=1))
        pool.stats()
        pool.stats("A")
        repr(pool)
    assert when.asked == 1


# -- one thread at a time ------------------------------------------------------------------------------------


def test_no_two_threads_ask_the_same(make_pool: MakePool) -> None:
    """G8: while one thread is inside a `when`, no other asks it; what it frees goes to who has come first."""
    pool = make_pool(max_size=1)
    gate, when = Gate(), When()
    (thing,) = hand_in(pool, when)
    when.before = gate.stop
    with Threads() as threads:
        asking = threads.start(pool.try_lease, "A")
        gate.wait_arrived(1)
        fail(pool)
        pool.reap()
        with pytest.raises(PoolTimeoutError) as caught:
            pool.lease("A", timeout=0.05)
        assert caught.value.pending == pool.stats().pending == 1
        waiting = threads.start(pool.lease, "A")
        wait_until_queued(pool, 1)
        assert (gate.arrived, when.asked) == (1, 2)
        when.free = True
        gate.open()
        lease = waiting.result()
        assert lease.resource is thing
        assert asking.result() is None  # it had not come into line yet
        lease.release()
    assert_used_well(when)
    assert_quiet(pool, leased=0, idle=1)


def test_the_when_of_a_group_is_asked_by_one_thread_at_a_time(make_pool: MakePool) -> None:
    """G8: although a group's `when` stands behind several pending resources, no two threads ask it at once."""
    pool = make_pool(max_size=4)
    gate, when = Gate(), When()
    pool.lease_many(4, "A").release(when)
    when.before = gate.stop
    with Threads() as threads:
        asking = threads.start(pool.reap)
        gate.wait_arrived(1)
        fail(pool)
        assert when.asked == 2
        gate.open()
        asking.result()
    when.before = None
    when.after = when.asked + 30

    def take() -> list[Any]:
        return [pool.lease("A", timeout=20) for _ in range(2)]

    leases = [lease for got in run_together(take, take) for lease in got]
    assert len({lease.resource for lease in leases}) == 4
    assert_used_well(when)
    for lease in leases:
        lease.release()
    assert_quiet(pool, leased=0, idle=4)


@pytest.mark.parametrize("call", ["reap", "try_lease", "lease"])
def test_a_slow_when_hides_no_other(make_pool: MakePool, call: str) -> None:
    """G1, G8: while one `when` takes its time, whoever asks it, others are asked all the same, of its key and of others."""
    pool = make_pool(max_size=5)
    gate, slow = Gate(), When()
    whens = [When() for _ in range(4)]
    things = hand_in(pool, slow, *whens[:2]) + hand_in(pool, *whens[2:], key="B")
    slow.before = gate.stop
    calls: dict[str, Callable[[], Any]] = {
        "reap": pool.reap,
        "try_lease": lambda: pool.try_lease("A"),
        "lease": lambda: pool.lease("A", timeout=20),
    }
    with Threads() as threads:
        asking = threads.start(calls[call])
        gate.wait_arrived(1)
        for when in whens:
            when.free = True
        # Those that have been asked already, by the one who is inside the slow one, are asked anew.
        leases = [pool.lease("B", timeout=20), pool.lease("B", timeout=20)]
        assert {lease.resource for lease in leases} == set(things[3:])
        if call != "lease":  # which waits for A itself
            leases += [pool.lease("A", timeout=20), pool.lease("A", timeout=20)]
            assert {lease.resource for lease in leases} == set(things[1:])
        assert gate.inside == 1
        gate.open()
        got = asking.result()
        for lease in [*leases, *([got] if call == "lease" else [])]:
            lease.release()
    assert_used_well(slow, *whens)


# -- outside all locks ---------------------------------------------------------------------------------------


def use_the_pool(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Do what needs each of a pool's locks, here and in another thread."""
    assert pool.stats().size >= 1
    assert pool.stats("A").size >= 1
    with pool.lease("other", timeout=5):
        pass
    spare.release()
    with Threads() as threads:
        threads.start(lambda: pool.lease("third", timeout=5).release())
        threads.start(pool.stats)


def poll(pool: ResourcePool[Any, Thing]) -> None:
    """Wait until it's free."""
    pool.lease("A", timeout=20).release()


def miss(pool: ResourcePool[Any, Thing]) -> None:
    """Ask for one."""
    lease = pool.try_lease("A")
    assert lease is not None
    lease.release()


def reap(pool: ResourcePool[Any, Thing]) -> None:
    """Ask all."""
    pool.reap()


@pytest.mark.parametrize("way", WAYS)
def test_release_asks_outside_locks(make_pool: MakePool, way: str) -> None:
    """G1, G8: a `when` asked in release may use the pool in any way, and other threads may meanwhile."""
    pool = make_pool(max_size=5)
    spare = pool.lease("spare")
    held, when = hold(pool, way), When()
    when.before = lambda: use_the_pool(pool, spare)
    held.release(when)
    when.before = None
    assert spare.released
    stats = assert_quiet(pool, leased=0)
    assert stats.pending == len(held.things)


@pytest.mark.parametrize("call", [miss, reap, poll])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_asked_outside_locks(
    make_pool: MakePool, way: str, call: Callable[[ResourcePool[Any, Thing]], None]
) -> None:
    """G1, G8: so may one that is asked later, by whomever."""
    pool = make_pool(max_size=5, max_per_key=2)
    spare = pool.lease("spare")
    held, when = hold(pool, way), When()
    rest = [pool.lease("A") for _ in range(2 - len(held.things))]
    held.release(when)
    asked: list[bool] = []

    def before() -> None:
        if not asked:
            asked.append(True)
            use_the_pool(pool, spare)

    when.before = before
    when.after = 10 if call is poll else 2
    call(pool)
    assert asked == [True]
    assert spare.released
    assert_used_well(when)
    for lease in rest:
        lease.release()
    assert_quiet(pool, leased=0)


def test_close_asks_outside_locks(make_pool: MakePool) -> None:
    """G1, G8: so may one that is asked by a close that waits, as far as a closed pool can be used."""
    pool = make_pool(max_size=5)
    spare = pool.lease("spare")
    when = When()
    hand_in(pool, when)
    seen: list[Any] = []

    def before() -> None:
        if not seen:
            seen.append(pool.stats().pending)
            spare.release()
            with Threads() as threads:
                threads.start(pool.stats)
            pool.clear()

    when.before = before
    when.after = 3
    pool.close()
    assert seen == [1]
    assert_used_well(when)
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.pending, stats.size) == (0, 0)
