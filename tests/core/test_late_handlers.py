"""Signal handlers that run past the end of a wait (P08, P10, G9)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from respool import PoolLimits, PoolTimeoutError, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 0.2


def late_alarm(wait: Callable[[], object]) -> bool:
    """Wait, with a signal handler that begins before the end and ends after it; tell whether it ran."""
    ran: list[bool] = []

    def handler(*_: object) -> None:
        end = time.monotonic() + 2 * WAIT
        while time.monotonic() < end:
            pass
        ran.append(True)

    earlier = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, WAIT / 2)
    try:
        wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    return bool(ran)


@pytest.mark.timeout(60, method="thread")
def test_a_wait_ends_although_a_handler_ran_past_its_end() -> None:
    """P10: a timeout ends the wait also where a signal handler runs past it in the waiting thread."""
    pool: ResourcePool[None, object] = ResourcePool(lambda _: object(), limits=PoolLimits(max_size=1))

    def wait() -> None:
        with pytest.raises(PoolTimeoutError):
            pool.lease(timeout=WAIT)

    with pool.lease():
        assert late_alarm(wait)
    assert pool.stats().timeouts == 1
    pool.close()


@pytest.mark.timeout(60, method="thread")
def test_close_ends_although_a_handler_ran_past_its_end() -> None:
    """P69: the same for close, which waits for a lease."""
    pool: ResourcePool[None, object] = ResourcePool(lambda _: object())

    def wait() -> None:
        with pytest.raises(PoolTimeoutError):
            pool.close(timeout=WAIT)

    with pool.lease():
        assert late_alarm(wait)
    pool.close()
