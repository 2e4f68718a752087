"""A `when` that uses its own pool, and hooks that give back with a `when` (G8, G12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolClosedError, PoolLimits, PoolReentrancyError
from tests.helpers.invariants import assert_quiet
from tests.helpers.nested import Nested
from tests.helpers.recorder import Recorder
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

each_way = pytest.mark.parametrize("way", WAYS)


def cap(key: str) -> int | None:
    """Give the limit of a key."""
    return 2 if key == "A" else None


def take(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Take another key's, for which there's room, and give it back."""
    pool.release(pool.acquire("other"))


def release(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Give back another lease."""
    spare.release()


def release_with_when(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Give back another lease that isn't free yet either."""
    answers = [False, True]
    spare.release(lambda: answers.pop(0))
    pool.reap()


def reap(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Ask all others."""
    pool.reap()


def look(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Look at it."""
    assert pool.stats("A").size == 2
    assert pool.stats().size >= 3
    assert repr(pool)


def resize(pool: ResourcePool[Any, Thing], spare: Any) -> None:
    """Put other limits in force."""
    pool.resize(PoolLimits(max_size=7, max_per_key=cap))


INNER = [take, release, release_with_when, reap, look, resize]


@each_way
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("at", ["release", "miss", "reap", "poll"])
def test_a_when_uses_its_own_pool(
    make_pool: MakePool, way: str, inner: Callable[[ResourcePool[Any, Thing], Any], None], at: str
) -> None:
    """G1, G12: a `when` may use its own pool, whoever asks it: there's room, and it isn't asked once more by that."""
    pool = make_pool(max_size=6, max_per_key=cap)
    spare = pool.lease("spare")
    held = hold(pool, way)
    rest = [pool.lease("A") for _ in range(2 - len(held.things))]
    when = When(after={"release": 1, "miss": 2, "reap": 2, "poll": 10}[at])
    nested = Nested(lambda: inner(pool, spare))
    if at == "release":
        when.before = nested
    held.release(when)
    when.before = nested
    if at == "reap":
        pool.reap()
    elif at == "miss":
        rest.append(pool.lease("A", timeout=0))
    elif at == "poll":
        rest.append(pool.lease("A", timeout=20))
    assert nested.outcomes == [None]
    pool.reap()
    assert when.misuse == []
    for lease in [spare, *rest]:
        lease.release()
    stats = assert_quiet(pool, leased=0)
    assert (stats.pending, stats.quarantined, stats.hook_errors["when"]) == (0, 0, 0)


@each_way
def test_a_when_that_closes_its_pool_in_release(make_pool: MakePool, factory: Factory, way: str) -> None:
    """G8, G9: close() called by a `when` that release asks returns at once; the resource is destroyed once it's free."""
    for free in (True, False):
        pool = make_pool(max_size=4)
        held, when = hold(pool, way), When(free=free)
        nested = Nested(pool.close)
        when.before = nested
        held.release(when)
        assert nested.outcomes == [None]
        assert pool.closed
        assert pool.stats().pending == (0 if free else len(held.things))
        when.free = True
        pool.close()
        assert factory.alive == 0
        assert when.misuse == []


@each_way
def test_a_when_that_closes_its_pool_later(make_pool: MakePool, factory: Factory, way: str) -> None:
    """G8, G9: so does close() called by a `when` that an acquire asks, which gets PoolClosedError then."""
    for free in (True, False):
        pool = make_pool(max_size=2)
        held, when = hold(pool, way), When()
        rest = [pool.lease("B") for _ in range(2 - len(held.things))]
        held.release(when)
        nested = Nested(pool.close)
        when.before = nested
        when.free = free
        with pytest.raises(PoolClosedError):
            pool.lease("A", timeout=20)
        assert nested.outcomes == [None]
        for lease in rest:
            lease.release()
        assert pool.stats().pending == (0 if free else len(held.things))
        when.free = True
        pool.close()
        assert factory.alive == 0
        assert when.misuse == []


@each_way
def test_a_when_that_waits_for_its_own_resource_in_release(make_pool: MakePool, way: str) -> None:
    """G12: a `when` that acquires from its own full pool gets PoolReentrancyError, not a deadlock; here its caller gets it, and still holds."""
    pool = make_pool(max_size=2 if way == "group" else 1)
    first = hold(pool, way)
    with pytest.raises(PoolReentrancyError):
        first.release(lambda: bool(pool.lease("A")))
    assert_quiet(pool, leased=len(first.things))
    first.release()
    assert_quiet(pool, leased=0, idle=len(first.things))


def test_a_when_that_waits_for_its_own_resource_later(make_pool: MakePool) -> None:
    """G12: asked later it gets the same error, and has raised then: the resource is quarantined."""
    recorder = Recorder()
    pool = make_pool(max_size=1, observer=recorder)
    answers: list[Callable[[], object]] = [lambda: False, lambda: pool.lease("A")]
    pool.lease("A").release(lambda: answers.pop(0)() if answers else True)
    assert pool.try_lease("A") is None
    assert pool.stats().quarantined == 1
    (event,) = recorder.of("hook_failed")
    assert isinstance(event.detail[1], PoolReentrancyError)
    pool.reap()
    assert_quiet(pool, leased=0, idle=1)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("inner_free", [True, False, None])
@each_way
def test_a_when_that_gives_back_its_own_lease(
    make_pool: MakePool,
    way: str,
    free: bool,  # noqa: FBT001
    inner_free: bool | None,  # noqa: FBT001
) -> None:
    """G6, G8: a `when` that itself gives back what it's asked about has done it: nothing is given back twice."""
    pool = make_pool(max_size=2)
    held, inner = hold(pool, way), When(free=bool(inner_free))
    rest = [hold(pool, "lease") for _ in range(2 - len(held.things))]

    def when() -> bool:
        if inner_free is None:
            held.release()
        else:
            held.release(inner)
        return free

    if way in {"lease", "group"}:
        held.release(when)
    else:
        with pytest.raises(InvalidReleaseError):
            held.release(when)
    stats = assert_quiet(pool, leased=len(rest))
    assert stats.pending == (len(held.things) if inner_free is False else 0)
    assert stats.idle + stats.pending == len(held.things)
    inner.free = True
    got = [pool.lease("A", timeout=0) for _ in held.things]
    assert {lease.resource for lease in got} == set(held.things)
    assert pool.try_lease("A") is None
    assert inner.misuse == []
    for lease in got + rest:
        lease.release()


@pytest.mark.parametrize("hook", ["create", "destroy", "validate", "reset", "observer"])
@each_way
def test_hooks_give_back_with_a_when(make_pool: MakePool, factory: Factory, hook: str, way: str) -> None:
    """G12: a hook or an observer may give back what isn't free yet."""
    recorder = Recorder()
    pool = make_pool(max_size=4, validate=factory.validate, reset=factory.reset, observer=recorder)
    held, when = hold(pool, way), When()
    nested = Nested(lambda: held.release(when))
    if hook == "observer":
        recorder.on["created"] = nested
    else:
        factory.before[hook] = nested
    pool.lease("B").release()
    pool.lease("B").discard()
    assert nested.outcomes == [None]
    assert when.asked == 1
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.pending == len(held.things)
    when.free = True
    pool.reap()
    assert_quiet(pool, leased=0, idle=len(held.things))
    assert when.misuse == []


def test_a_when_that_forgets_or_clears_its_key(make_pool: MakePool, factory: Factory) -> None:
    """G8: a `when` that clears or forgets its own key is heard: its resource is destroyed or left behind once it's free."""
    pool = make_pool(max_size=1)
    for call, counter in ((pool.clear, "destroyed"), (pool.forget, "abandoned")):
        when = When()
        hand_in(pool, when)
        before = getattr(pool.stats(), counter)
        when.before = Nested(lambda call=call: call("A"))
        when.after = 2
        lease = pool.lease("A", timeout=5)
        assert getattr(pool.stats(), counter) == before + 1
        assert when.misuse == []
        lease.discard()
    assert_quiet(pool, leased=0, idle=0)


def clear(pool: ResourcePool[Any, Thing]) -> None:
    """Clear, and ask."""
    pool.clear()
    pool.reap()


@pytest.mark.parametrize(
    "end",
    [
        lambda pool: pool.forget("A"),
        lambda pool: pool.reap(),
        lambda pool: pool.lease("A", timeout=0).release(),
        clear,
        lambda pool: pool.close(),
    ],
    ids=["forget", "reap", "lease", "clear", "close"],
)
@pytest.mark.parametrize("count", [1, 2])
def test_the_end_of_a_when_runs_outside_locks(
    make_pool: MakePool, end: Callable[[ResourcePool[Any, Thing]], object], count: int
) -> None:
    """G8: the last reference to a `when` is let go without the lock: its finaliser may use the pool."""
    pool = make_pool(max_size=count)
    seen: list[object] = []

    class Last:
        asked = False

        def __call__(self) -> bool:
            free, self.asked = self.asked, True
            return free

        def __del__(self) -> None:
            try:
                seen.append(pool.stats().size)
            except PoolReentrancyError as error:
                seen.append(error)

    for lease in [pool.lease("A") for _ in range(count)]:
        lease.release(Last())
        del lease
    assert seen == []
    end(pool)
    pool.close()
    assert len(seen) == count
    assert all(isinstance(size, int) for size in seen), seen
