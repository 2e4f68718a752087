"""Handles that are given back before their transfers are over: `release(when=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pycurl
import pytest

from respool import InvalidReleaseError, PoolTimeoutError
from tests.helpers.gates import Gate
from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet
from tests.helpers.recorder import Recorder
from tests.helpers.threads import Threads, wait_until_queued
from tests.helpers.whens import When

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from respool.curl._easy import EasyHandle
    from tests.helpers.http_servers import RecordingServer


class Held(NamedTuple):
    """Handles that somebody holds, and the way to give them back."""

    handles: tuple[EasyHandle, ...]
    release: Callable[..., None]


def hold(pool: EasyHandlePool, way: str, url: str) -> Held:
    """Take a handle, or as a group two."""
    if way == "lease":
        lease = pool.lease(url)
        return Held((lease.resource,), lease.release)
    if way == "group":
        group = pool.lease_many(2, url)
        return Held(group.resources, group.release)
    face: Any = pool if way == "fast" else pool.bind(url)
    easy = pool.acquire(url)
    return Held((easy,), lambda when=None: face.release(easy, when))


WAYS = ["lease", "fast", "bound", "group"]


def run(multi: pycurl.CurlMulti) -> None:
    """Drive a multi until all of its transfers are over."""
    while multi.perform()[1]:
        multi.select(0.05)


@pytest.mark.parametrize("way", WAYS)
def test_given_back_during_a_transfer(pool: EasyHandlePool, server: RecordingServer, way: str) -> None:
    """G8, U11: handles whose transfers run in a multi are pending until `when` says so, go on meanwhile, and come back clean."""
    bodies: list[bytes] = []
    multi = pycurl.CurlMulti()
    held = hold(pool, way, server.url())
    count = len(held.handles)
    for easy in held.handles:
        easy.setopt(pycurl.WRITEFUNCTION, bodies.append)
        easy.tag = object()
        multi.add_handle(easy)
    when = When()
    held.release(when)
    assert when.asked == 1
    assert (pool.stats().pending, pool.stats().leased) == (count, 0)
    run(multi)
    assert bodies == [b"fine"] * count
    assert pool.reap() == 0
    assert pool.stats().pending == count
    for easy in held.handles:
        multi.remove_handle(easy)
    when.free = True
    with pool.lease_many(count, server.url(), timeout=20) as again:
        assert set(again) == set(held.handles)
        for easy in again:
            assert not hasattr(easy, "tag")
            assert easy.perform_rb() == b"fine"
    assert when.misuse == []
    assert_quiet(pool, leased=0, idle=count)
    multi.close()


@pytest.mark.parametrize("way", WAYS)
def test_when_says_yes_too_early(pool: EasyHandlePool, server: RecordingServer, way: str) -> None:
    """G8, U11: while a handle still sits in its multi it isn't free, whatever `when` has said, which isn't asked again."""
    multi = pycurl.CurlMulti()
    held = hold(pool, way, server.url())
    count = len(held.handles)
    multi.add_handle(held.handles[-1])
    when = When()
    held.release(when)
    when.free = True
    for _ in range(3):
        pool.reap()
        assert pool.stats().pending == count
    with pytest.raises(PoolTimeoutError):
        pool.close(0)
    assert not held.handles[-1].closed
    multi.remove_handle(held.handles[-1])
    multi.close()
    pool.close()
    assert all(easy.closed for easy in held.handles)
    assert (when.misuse, when.said_yes) == ([], True)


@pytest.mark.parametrize("way", WAYS)
def test_free_at_once(pool: EasyHandlePool, server: RecordingServer, way: str) -> None:
    """G8, U12: where `when` says yes in release, the handle is looked at as ever: kept, destroyed, or refused while in use."""
    multi = pycurl.CurlMulti()
    held = hold(pool, way, server.url())
    multi.add_handle(held.handles[0])
    with pytest.raises(InvalidReleaseError, match="CurlMulti"):
        held.release(lambda: True)
    assert pool.stats().leased == len(held.handles)
    multi.remove_handle(held.handles[0])
    multi.close()
    when = When(free=True)
    held.release(when)
    assert when.asked == 1
    assert_quiet(pool, leased=0, idle=len(held.handles))
    spoilt = hold(pool, way, server.url())
    for easy in spoilt.handles:
        easy.setopt(pycurl.PROXY, "")
    spoilt.release(When(free=True))
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["discarded"], sum(stats.hook_errors.values())) == (len(held.handles), 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["raises", "is no callable"])
def test_when_that_is_no_good(pool: EasyHandlePool, server: RecordingServer, way: str, when: str) -> None:
    """G8: what `when` raises in release goes to the caller, who still holds the handle; what can't be called is a TypeError."""
    mine = ZeroDivisionError("mine")
    held = hold(pool, way, server.url())
    bad: Any = When() if when == "raises" else 5
    if when == "raises":
        bad.errors.append(mine)
    with pytest.raises(ZeroDivisionError if when == "raises" else TypeError) as caught:
        held.release(bad)
    assert when == "is no callable" or caught.value is mine
    assert pool.stats().leased == len(held.handles)
    for easy in held.handles:
        assert easy.perform_rb() == b"fine"
    held.release()
    assert_quiet(pool, leased=0, idle=len(held.handles))


def test_a_transfer_that_fails_later(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer
) -> None:
    """U13: a handle that turns out unfit when it's free is destroyed, not kept, and the observer is told why."""
    recorder = Recorder()
    pool = make_pool(observer=recorder)
    gate = Gate()
    server.answers["/short"] = Answer(b"slow", length=100, close=True, after_head=gate)
    lease = pool.lease(server.url("/short"))
    easy = lease.resource
    with Threads() as threads:
        transfer = threads.start(easy.perform_rb)
        gate.wait_arrived()
        lease.release(lambda: transfer.ended)
        assert pool.stats().pending == 1
        gate.open()
        assert isinstance(transfer.error(), pycurl.error)
    pool.reap()
    stats = assert_quiet(pool, leased=0, idle=0)
    assert (stats.destroyed_for["invalid"], stats.hook_errors["reset"]) == (1, 1)
    assert easy.closed
    assert "did not end well" in str(recorder.details("hook_failed", 1)[0])


def test_a_waiter_gets_it(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """G8: who waits gets a pending handle as soon as its transfer, on another thread, is over; with its connection."""
    pool = make_pool(max_size=1)
    gate = Gate()
    server.answers["/slow"] = Answer(b"slow", after_head=gate)
    lease = pool.lease(server.url("/slow"))
    easy = lease.resource
    with Threads() as threads:
        transfer = threads.start(easy.perform_rb)
        gate.wait_arrived()
        lease.release(lambda: transfer.ended)
        waiter = threads.start(pool.lease, server.url())
        wait_until_queued(pool, 1)  # type: ignore[arg-type]  # any pool will do
        gate.open()
        assert transfer.result() == b"slow"
        with waiter.result() as again:
            assert again is easy
            assert again.perform_rb() == b"fine"
            assert again.getinfo(pycurl.NUM_CONNECTS) == 0


def test_a_foreign_handle(pool: EasyHandlePool, server: RecordingServer) -> None:
    """P38: what isn't the pool's is refused with a `when` too, which isn't asked."""
    when = When()
    plain = pycurl.Curl()
    with pool.lease(server.url()) as easy:
        for foreign in (plain, easy, None):
            with pytest.raises(InvalidReleaseError):
                pool.release(foreign, when)  # type: ignore[arg-type]  # that is the point
    plain.close()
    assert when.asked == 0
