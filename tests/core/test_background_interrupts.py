"""Interrupts at every place in calls of pools with time limits or background destroy (G3).

An interrupt may cost the resource that was in hand, never its room; and nothing is destroyed twice.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import InvalidReleaseError, PoolTimeoutError, ResourcePool
from tests.helpers.background import ROOMS, assert_whole, close, destroyers, new_pool, wait_ended
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.clocks import Clock, fill, without_reaper
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Thing

pytestmark = [pytest.mark.usefixtures("no_backstop", "bear"), pytest.mark.slow]


def use_expired(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Meet expired ones."""
    clock.advance(60)
    hand.append(pool.lease("A", timeout=20))
    hand[0].release()


def use_old(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Give back what is too old."""
    hand.append(pool.lease("A"))
    hand.append(pool.acquire("A"))
    clock.advance(100)
    hand[0].release()
    pool.release(hand[1])


def use_reap(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Reap some and then all."""
    hand.append(pool.lease("A"))
    clock.advance(30)
    hand[0].release()
    clock.advance(30)
    pool.reap()
    clock.advance(30)
    pool.reap()


def use_discard(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Destroy from both tiers."""
    pool.lease("A").discard()
    hand.append(pool.acquire("A"))
    pool.discard(hand[0])


def use_clear(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Clear with one leased."""
    hand.append(pool.lease("A"))
    pool.clear()
    hand[0].release()


def use_evict(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Take the room of another key."""
    hand.append(pool.lease("B", timeout=20))
    hand[0].release()


def use_several(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Take several, of which some have expired."""
    clock.advance(60)
    hand.append(pool.lease_many(2, "A", timeout=20))
    hand[0].release()


def use_close(pool: ResourcePool[Any, Thing], hand: list[Any], clock: Clock) -> None:
    """Close with one leased."""
    hand.append(pool.lease("A"))
    with contextlib.suppress(PoolTimeoutError):
        pool.close(timeout=0)
    hand[0].release()


USES = [use_expired, use_old, use_reap, use_discard, use_clear, use_evict, use_several, use_close]


@pytest.mark.parametrize("where", ["caller", "background"])
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.timeout(300)
def test_an_interrupt_at_every_place(
    monkeypatch: pytest.MonkeyPatch, use: Callable[..., None], where: str
) -> None:
    """G3: wherever a call of a pool with time limits or background destroy is interrupted, all rooms come back; nothing goes twice."""
    clock = without_reaper(monkeypatch)
    for visit in every_checkpoint():
        factory = Factory()
        pool = new_pool(factory, where=where, idle_timeout=60, max_lifetime=100, lifetime_jitter=0)
        fill(pool, ROOMS)
        hand: list[Any] = []
        with visit, pool:
            try:
                visit.run(lambda p=pool, h=hand: use(p, h, clock), interrupt)
            except Interrupt:
                assert visit.reached
            for held in hand:
                if hasattr(held, "release"):
                    held.release()
                else:
                    with contextlib.suppress(InvalidReleaseError):
                        pool.release(held)
            hand.clear()
            if pool.closed:
                close(pool)
                assert_quiet(pool, leased=0, idle=0)
                assert factory.misuse == []
                assert 0 <= factory.alive <= 1
                wait_ended(lambda p=pool: destroyers(p))
            else:
                assert_whole(pool, factory, lost=1)
