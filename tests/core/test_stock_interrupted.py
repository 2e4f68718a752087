"""Interrupts at every place of lease_many, adopt, prefill, forget and resize (G3).

An interrupt may cost the resources that were in hand, never their rooms.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    LeaseReleasedError,
    PoolClosedError,
    PoolExhaustedError,
    PoolLimits,
    PoolObserver,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.invariants import assert_quiet
from tests.helpers.promptly import woken
from tests.helpers.recorder import Recorder
from tests.helpers.resources import Factory, Thing
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.usefixtures("no_backstop", "bear"), pytest.mark.slow]

ROOMS = 3
SILENT = PoolObserver()

Pool = ResourcePool[Any, Thing]


def assert_whole(pool: Pool, factory: Factory) -> None:
    """Check that all rooms can be had, for distinct living resources, and that the pool is calm then."""
    pool.reap()
    group = pool.lease_many(ROOMS, "A", 5)
    assert all(thing.alive for thing in group.resources)
    assert len({id(thing) for thing in group.resources}) == ROOMS
    assert pool.try_lease("A") is None
    group.release()
    assert_quiet(pool, keys="A", leased=0, idle=ROOMS)
    singles = [pool.lease("A", 0) for _ in range(ROOMS)]
    for lease in singles:
        lease.release()
    row = pool._core.known_lane("A")
    assert row is not None
    if not (pool._core.slow_acquire or pool._core.slow_release):
        assert not row.gate
        assert not row.due
    pool.close()
    assert_quiet(pool, leased=0, idle=0)
    assert factory.misuse == []


def many_hit(pool: Pool, hand: list[Any]) -> None:
    """Take what is idle, and give it back."""
    hand.append(pool.lease_many(2, "A"))
    hand[0].release()


def many_hit_in_line(pool: Pool, hand: list[Any]) -> None:
    """Take what is idle the slow way, in a block."""
    with pool.lease_many(2, "A", 5):
        pass


def many_mixed(pool: Pool, hand: list[Any]) -> None:
    """Take what is idle, and create the third."""
    hand.append(pool.lease_many(3, "A"))
    hand[0].release()


def many_new(pool: Pool, hand: list[Any]) -> None:
    """Evict, create, destroy."""
    hand.append(pool.lease_many(3, "B"))
    hand[0].discard()


def many_refused(pool: Pool, hand: list[Any]) -> None:
    """Wait in vain."""
    hand.append(pool.lease("A"))
    for timeout in (0, 0.001):
        with contextlib.suppress(PoolTimeoutError):
            pool.lease_many(3, "A", timeout)


def many_impossible(pool: Pool, hand: list[Any]) -> None:
    """Ask for too many."""
    with contextlib.suppress(PoolExhaustedError):
        pool.lease_many(ROOMS + 1, "A")


def many_failing(pool: Pool, hand: list[Any]) -> None:
    """Have the second create fail."""
    with contextlib.suppress(KeyError):
        pool.lease_many(3, "failing")


def many_deferred(pool: Pool, hand: list[Any]) -> None:
    """Give back what isn't free yet, and take it again."""
    free: list[int] = []
    hand.append(pool.lease_many(2, "A"))
    hand[0].release(lambda: len(free) > 0 or free.append(1))
    pool.lease_many(3, "A", 5).release()


def adopt(pool: Pool, hand: list[Any]) -> None:
    """Take one in, and use it."""
    pool.adopt(Thing("A", 100), "A")
    pool.lease("A").release()


def prefill(pool: Pool, hand: list[Any]) -> None:
    """Fill up what there's room for."""
    pool.prefill(5, "A")


def forget(pool: Pool, hand: list[Any]) -> None:
    """Leave behind an idle one at once, and leased ones when they come back."""
    hand.append(pool.lease("A"))
    hand.append(pool.lease_many(1, "B"))
    pool.forget("A")
    pool.forget("B")
    hand[0].release()
    hand[1].release()


def forget_pending(pool: Pool, hand: list[Any]) -> None:
    """Leave behind what isn't free."""
    pool.lease("A").release(lambda: False)
    pool.forget("A")


def resize(pool: Pool, hand: list[Any]) -> None:
    """Shrink below what is idle and leased, then grow again."""
    hand.append(pool.lease("A"))
    pool.resize(PoolLimits(max_size=1, max_per_key=lambda key: 1, max_idle=1))
    hand[0].release()
    pool.resize(PoolLimits(max_size=ROOMS))


USES: list[Callable[[Pool, list[Any]], None]] = [
    many_hit,
    many_hit_in_line,
    many_mixed,
    many_new,
    many_refused,
    many_impossible,
    many_failing,
    many_deferred,
    adopt,
    prefill,
    forget,
    forget_pending,
]


class Failing(Factory):
    """Creates nothing but the first of the key "failing"."""

    def create(self, key: Any) -> Thing:
        """Make a thing, or fail."""
        if key == "failing" and any(thing.key == key for thing in self.made):
            raise KeyError(key)
        return super().create(key)


@pytest.mark.parametrize(
    ("use", "hooked"),
    [
        *((use, False) for use in USES),
        (resize, False),
        *((use, True) for use in USES if use.__name__.startswith("many")),
    ],
    ids=lambda value: value.__name__ if callable(value) else "hooked" if value else "bare",
)
def test_an_interrupt_at_every_place(use: Callable[..., None], hooked: bool) -> None:  # noqa: FBT001
    """G3: wherever a call is interrupted, all rooms are back afterwards, and nobody has what somebody else has."""
    for visit in every_checkpoint():
        factory = Failing()
        options = {"validate": factory.validate, "reset": factory.reset} if hooked else {}
        pool = ResourcePool(
            factory.create,
            factory.destroy,
            limits=PoolLimits(max_size=ROOMS),
            observer=SILENT,
            **options,  # type: ignore[arg-type]  # which of them is which is clear here
        )
        pool.lease_many(2, "A").release()
        hand: list[Any] = []
        with visit, pool:
            try:
                visit.run(lambda p=pool, h=hand: use(p, h), interrupt)
            except Interrupt:
                assert visit.reached
            for held in hand:
                held.release()
            hand.clear()
            if use is resize and pool.limits.max_size != ROOMS:
                pool.resize(PoolLimits(max_size=ROOMS))
            elif use in {forget, forget_pending}:  # what was cut short may be done again
                pool.forget("A")
                pool.forget("B")
            assert_whole(pool, factory)


@pytest.mark.parametrize("outcome", ["served", "new", "timeout", "closed", "impossible", "invalid"])
def test_an_interrupt_at_every_place_of_a_wait(outcome: str) -> None:
    """P79, G3: a batch interrupted while it queues, waits, collects or is just served leaves no trace in the line."""
    for visit in every_checkpoint():
        factory, recorder = Factory(), Recorder()
        pool = ResourcePool(
            factory.create,
            factory.destroy,
            factory.validate if outcome == "invalid" else None,
            limits=PoolLimits(max_size=ROOMS),
            observer=recorder,
        )
        held = [pool.lease("A"), pool.lease("A")]
        if outcome in {"served", "invalid"}:
            recorder.on["queued"] = lambda *args, held=held: [lease.release() for lease in held]
            held[0].resource.healthy = outcome != "invalid"
        elif outcome == "new":
            recorder.on["queued"] = lambda *args, held=held: [lease.discard() for lease in held]
        elif outcome == "closed":
            recorder.on["queued"] = lambda p, *args: close_at_once(p)
        elif outcome == "impossible":
            recorder.on["queued"] = lambda p, *args: p.resize(PoolLimits(max_size=2))

        def use(pool: Pool = pool) -> None:
            with contextlib.suppress(PoolTimeoutError, PoolClosedError, PoolExhaustedError):
                pool.lease_many(3, "A", 0.001 if outcome == "timeout" else 5).release()

        with visit, pool:
            try:
                visit.run(use, interrupt)
            except Interrupt:
                assert visit.reached
            assert pool.stats().waiters == 0
            recorder.on.clear()
            for lease in held:
                with contextlib.suppress(LeaseReleasedError):
                    lease.release()
            if pool.closed:
                pool.close()
                assert_quiet(pool, leased=0, idle=0)
            else:
                pool.resize(PoolLimits(max_size=ROOMS))
                assert_whole(pool, factory)


def close_at_once(pool: Pool) -> None:
    """Close without waiting for what is out."""
    with contextlib.suppress(PoolTimeoutError):
        pool.close(timeout=0)


def make_room(pool: Pool, use: str, hand: list[Any]) -> None:
    """Let a batch that waits for all rooms have them."""
    if use == "forget":
        pool.forget("A")
    elif use == "grow":
        pool.resize(PoolLimits(max_size=2 * ROOMS))
    elif use == "leak":
        hand.clear()
    else:
        getattr(hand[0], use)()


@pytest.mark.parametrize("use", ["release", "discard", "leak", "forget", "grow"])
def test_an_interrupt_at_every_place_of_a_hand_over(use: str) -> None:
    """G3: whoever makes room for a batch is interrupted: it's served although nobody calls the pool again."""
    for visit in every_checkpoint():
        factory = Factory()
        limits = PoolLimits(max_size=ROOMS)
        pool = ResourcePool(factory.create, factory.destroy, limits=limits, observer=SILENT)
        hand: list[Any] = [pool.lease_many(ROOMS, "A")]
        if use == "forget":
            hand.pop().release(lambda: False)
        with visit, pool, Threads() as threads:
            waiting = threads.start(pool.lease_many, ROOMS, "A")
            wait_until_queued(pool, 1)
            try:
                visit.run(lambda p=pool, h=hand: make_room(p, use, h), interrupt)
            except Interrupt:
                if use in {"grow", "forget"}:  # a call that was cut short may be made again
                    make_room(pool, use, hand)
            for held in hand if use != "grow" else []:
                held.release()  # once more does no harm
            group = woken(waiting)
            assert all(thing.alive for thing in group.resources)
            for held in [group, *hand]:
                held.release()
            hand.clear()
            pool.resize(limits)
            assert_whole(pool, factory)
        if use == "leak" and not visit.place:
            return  # dropping a group may run no Python code of the pool at all
