"""Calls that come close to the recursion limit (G3, G9).

A RecursionError strikes like no interrupt: it comes again in whatever is done about it, at the same depth.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import TYPE_CHECKING, TypeVar

import pytest

from respool import PoolLimits, PoolTimeoutError, ResourcePool
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.resources import Factory, MakePool

pytestmark = [
    pytest.mark.usefixtures("no_backstop"),
    # What is told at the limit may itself have too few frames.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning"),
]

R = TypeVar("R")


@contextlib.contextmanager
def few_frames(most: int) -> Iterator[None]:
    """Allow only so many more frames than there are now."""
    frame, depth = sys._getframe(), 0
    while frame:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    limit, hook = sys.getrecursionlimit(), sys.unraisablehook
    # Others' garbage isn't to end here, and what is told of what does needs frames, too.
    gc.disable()
    sys.unraisablehook = id  # type: ignore[assignment]
    sys.setrecursionlimit(depth + most)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        sys.unraisablehook = hook
        gc.enable()


def somewhere(call: Callable[[], R], frames: int) -> R | None:
    """Call with few frames left; None if they were too few."""
    try:
        with few_frames(frames):
            return call()
    except RecursionError:
        return None


CALLS: dict[str, Callable[[ResourcePool[str, object]], object]] = {
    "lease": lambda pool: pool.lease("A", 0).release(),
    "lease another": lambda pool: pool.lease("B", 0).release(),
    "lease_many": lambda pool: pool.lease_many(2, "A", 0).release(),
    "acquire": lambda pool: pool.release(pool.acquire("A", 0)),
    "discard": lambda pool: pool.discard(pool.acquire("A", 0)),
    "clear": lambda pool: pool.clear(),
    "reap": lambda pool: pool.reap(),
    "stats": lambda pool: pool.stats(),
    "prefill": lambda pool: pool.prefill(2, "B"),
    "deferred": lambda pool: pool.lease("A", 0).release(lambda: True),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_room_is_lost(call: str) -> None:
    """G3, G5: a call that has too few frames left, wherever it notices, leaves the pool as good as before."""
    # Without a destroy hook: one that had no frames left would leave its resource in existence, which is its own affair.
    pool = ResourcePool(lambda _key: object(), limits=PoolLimits(max_size=2))
    for frames in range(5, 60):
        pool.lease_many(2, "A", timeout=0).release()
        with contextlib.suppress(PoolTimeoutError):
            somewhere(lambda: CALLS[call](pool), frames)
        pool.reap()
        assert_quiet(pool, keys="AB", leased=0)
        pool.lease_many(2, "B", timeout=0).release()
    pool.close(timeout=HANG_GUARD)


@pytest.mark.parametrize("more", [0, 1])
def test_a_close_is_finished_by_the_next(make_pool: MakePool, factory: Factory, more: int) -> None:
    """G9, P71: after a close that had too few frames left, the next one destroys what is idle, as does any other call."""
    for frames in range(3, 60):
        pool = make_pool(max_size=2)
        pool.lease_many(2, "A", timeout=0).release()
        for _ in range(1 + more):
            somewhere(lambda pool=pool: pool.close(0), frames)  # type: ignore[misc]
        pool.close(timeout=HANG_GUARD)
        assert pool.stats().size == 0
        assert factory.alive == 0
