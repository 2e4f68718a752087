"""What manages a pool of handles: prefill, forget, resize."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pycurl
import pytest

from respool import PoolClosedError, PoolLimits
from respool.curl import Origin
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import RecordingServer


def test_prefill(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """P51: prefill makes handles of an origin within limits; they connect at their first transfer."""
    pool = make_pool(max_per_key=3)
    assert pool.prefill(2, server.url("/any")) == 2
    assert pool.bind(Origin.of(server.url())).prefill(5) == 1
    assert pool.prefill(1, server.url()) == 0
    assert server.connections == 0
    with pool.lease_many(3, server.url()) as handles:
        for easy in handles:
            assert easy.perform_rb() == b"fine"
    assert pool.stats().created == 3
    pool.close()
    with pytest.raises(PoolClosedError):
        pool.prefill(1, server.url())


def test_forget(pool: EasyHandlePool, server: RecordingServer) -> None:
    """G8: forget leaves an origin's handles to those who refer to them; nobody gets one again, other origins' stay."""
    held = pool.lease(server.url())
    easy = held.resource
    easy.perform_rb()
    pool.prefill(2, server.url())
    pool.prefill(1, "http://other.test/")
    assert pool.forget(server.url("/whatever")) == 2
    assert easy.perform_rb() == b"fine"
    held.release()
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.abandoned, stats.destroyed) == (3, 0)
    assert not easy.closed
    del easy, held
    gc.collect()
    assert server.wait_ended(1) == "closed"
    with pool.lease(server.url()) as new:
        new.perform_rb()
        assert new.getinfo(pycurl.NUM_CONNECTS) == 1


def test_resize(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """P62, P63, P64: more room serves who waits; less closes idle connections at once, and those in use when they come back."""
    pool = make_pool(max_size=1)
    held = pool.lease(server.url())
    held.resource.perform_rb()
    with Threads() as threads:
        waiting = threads.start(pool.lease, server.url())
        wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
        pool.resize(PoolLimits(max_size=3))
        other = waiting.result()
    other.resource.perform_rb()
    other.release()
    assert pool.limits == PoolLimits(max_size=3)
    pool.resize(PoolLimits(max_size=1, max_idle=0))
    assert server.wait_ended(2) == "closed"
    assert 1 not in server.ends
    held.release()
    assert server.wait_ended(1) == "closed"
    assert_quiet(pool, leased=0, idle=0)


def test_limits_on_time_may_come_later(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U18: an idle_timeout that is set while handles are idle closes these, too."""
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
    pool.resize(PoolLimits(idle_timeout=0.01))
    assert server.wait_ended(1) == "closed"
    wait_until(lambda: pool.stats().destroyed_for["idle"] == 1, "the count of it")
