"""Giving a handle back: when that is refused, and that the refusal harms nobody."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pycurl
import pytest

from respool import (
    InvalidReleaseError,
    LeaseReleasedError,
    PoolClosedError,
    PoolError,
    PoolExhaustedError,
    PoolTimeoutError,
)
from tests.helpers.gates import Gate
from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, let_pass, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from respool.curl._easy import EasyHandle
    from tests.helpers.http_servers import RecordingServer


def test_reset_after_close(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U10: reset() after close() is a ValueError, not a crash, and so is any use a clear error; the pool goes on."""
    with pool.lease(server.url()) as easy:
        easy.close()
        with pytest.raises(ValueError, match="closed handle"):
            easy.reset()
        with pytest.raises(pycurl.error, match="no curl handle"):
            easy.perform()
        assert "closed" in repr(easy)
    assert_quiet(pool, leased=0, idle=0)
    with pool.lease(server.url()) as easy:
        assert easy.perform_rb() == b"fine"


def test_double_release(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U10: a second release does nothing on a lease, and is an error on the fast tier; the counters stay."""
    lease = pool.lease(server.url())
    lease.release()
    before = pool.stats()
    lease.release()
    assert pool.stats() == before
    for spent in (lease.discard, lease.detach, lease.__enter__, lambda: lease.resource):
        with pytest.raises(LeaseReleasedError):
            spent()
    bare = pool.acquire(server.url())
    pool.release(bare)
    before = pool.stats()
    for again in (pool.release, pool.discard):
        with pytest.raises(InvalidReleaseError):
            again(bare)
    assert pool.stats() == before
    assert before.idle == 1


def test_foreign_releases(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U10: a handle of another pool, one that a lease holds, a bare pycurl.Curl and no handle at all are refused."""
    pool, other = make_pool(), make_pool()
    theirs = other.acquire(server.url())
    spoilt = other.acquire(server.url())
    spoilt.setopt(pycurl.PROXY, "")
    lease = pool.lease(server.url())
    plain = pycurl.Curl()
    before = pool.stats(), other.stats()
    for foreign in (theirs, spoilt, lease.resource, plain, None, "handle"):
        for give_back in (pool.release, pool.discard, pool.bind(server.url()).release):
            with pytest.raises(InvalidReleaseError):
                give_back(foreign)  # type: ignore[arg-type]  # that is the point
    assert (pool.stats(), other.stats()) == before
    assert theirs.closed is spoilt.closed is plain.closed is False
    plain.close()
    lease.release()
    other.release(theirs)
    other.release(spoilt)


def test_a_handle_that_was_given_back_refuses_work(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U10: whoever kept a reference can't spoil the handle for the next one: every use is a LeaseReleasedError."""
    with pool.lease(server.url()) as easy:
        pass
    uses: list[Callable[[], object]] = [
        easy.perform,
        easy.perform_rb,
        easy.perform_rs,
        easy.reset,
        easy.close,
        lambda: easy.setopt(pycurl.URL, "http://evil.example/"),
        lambda: easy.setopt_string(pycurl.URL, "http://evil.example/"),
        lambda: easy.unsetopt(pycurl.PROXY),
        lambda: easy.set_ca_certs("x"),
        lambda: setattr(easy, "tag", 1),
    ]
    for use in uses:
        with pytest.raises(LeaseReleasedError, match="given back"):
            use()
    assert "idle" in repr(easy)
    with pool.lease(server.url()) as again:
        assert again is easy
        assert again.perform_rb() == b"fine"


def test_a_discarded_handle_is_closed(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: discard closes the handle and its connection before it returns, by lease and on the fast tier."""
    lease = pool.lease(server.url())
    lease.resource.perform_rb()
    easy = lease.resource
    lease.discard()
    assert easy.closed
    assert server.wait_ended(1) == "closed"
    bare = pool.acquire(server.url())
    bare.perform_rb()
    pool.discard(bare)
    assert bare.closed
    assert server.wait_ended(2) == "closed"
    assert_quiet(pool, leased=0, idle=0)


def give_backs(
    pool: EasyHandlePool, server: RecordingServer, kind: str
) -> tuple[EasyHandle, Callable[[], object]]:
    """Take a handle in one of the ways; it, and the call that gives it back in that way."""
    if kind in {"lease", "lease discard"}:
        lease = pool.lease(server.url())
        return lease.resource, lease.release if kind == "lease" else lease.discard
    if kind == "bound":
        bound = pool.bind(server.url())
        easy = bound.acquire()
        return easy, lambda: bound.release(easy)
    easy = pool.acquire(server.url())
    return easy, lambda: (pool.release if kind == "fast" else pool.discard)(easy)


KINDS = ["lease", "lease discard", "fast", "fast discard", "bound"]


@pytest.mark.parametrize("kind", KINDS)
def test_release_while_in_a_multi(pool: EasyHandlePool, server: RecordingServer, kind: str) -> None:
    """U11: a handle that sits in a multi is refused and stays with its holder; taken out, it goes back."""
    multi = pycurl.CurlMulti()
    easy, give_back = give_backs(pool, server, kind)
    multi.add_handle(easy)
    for _ in range(2):
        with pytest.raises(InvalidReleaseError, match="CurlMulti"):
            give_back()
        assert pool.stats().leased == 1
    while multi.perform()[1]:
        multi.select(0.1)
    assert easy.getinfo(pycurl.RESPONSE_CODE) == 200
    multi.remove_handle(easy)
    give_back()
    assert_quiet(pool, leased=0)
    multi.close()


@pytest.mark.parametrize("kind", KINDS)
def test_release_while_another_thread_performs(
    pool: EasyHandlePool, server: RecordingServer, kind: str
) -> None:
    """U12: release, from another thread, of a handle inside perform() is refused; the transfer goes on, unharmed."""
    gate = Gate()
    server.default = Answer(b"slow", after_head=gate)
    easy, give_back = give_backs(pool, server, kind)
    with Threads() as threads:
        transfer = threads.start(easy.perform_rb)
        gate.wait_arrived()
        for _ in range(2):
            with pytest.raises(InvalidReleaseError, match=r"perform\(\) is running"):
                give_back()
            assert pool.stats().leased == 1
        gate.open()
        assert transfer.result() == b"slow"
    give_back()
    assert_quiet(pool, leased=0)


def test_release_inside_a_callback(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U12: a callback that releases its own handle gets the error, from perform; the handle is still held."""
    lease = pool.lease(server.url())
    lease.resource.setopt(pycurl.WRITEFUNCTION, lambda _chunk: lease.release())
    with pytest.raises(InvalidReleaseError, match=r"perform\(\) is running"):
        lease.resource.perform()
    assert not lease.released
    lease.release()
    assert_quiet(pool, leased=0)


def test_leaving_a_block_while_in_use(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U11, U12: a with-block that ends well while its handle is in a multi raises, and the lease stays good."""
    multi = pycurl.CurlMulti()
    lease = pool.lease(server.url())
    with pytest.raises(InvalidReleaseError, match="CurlMulti"), lease as easy:
        multi.add_handle(easy)
    assert not lease.released
    multi.remove_handle(easy)
    multi.close()
    lease.release()
    assert pool.stats().idle == 1


def test_the_refusal_hides_no_error(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U11, U12: where the block itself raised, its exception leaves, noting that the handle was not given back."""
    multi = pycurl.CurlMulti()
    lease = pool.lease(server.url())
    easy = lease.resource
    multi.add_handle(easy)
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught, lease:
        raise mine
    assert caught.value is mine
    assert mine.__context__ is None
    assert "not given back" in mine.__notes__[0]
    assert not lease.released
    multi.remove_handle(easy)
    multi.close()
    lease.discard()
    assert_quiet(pool, leased=0, idle=0)


def test_performing_twice_at_once(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U12: a second perform on one handle is pycurl's error, and leaves the first one and the handle unharmed."""
    gate = Gate()
    server.default = Answer(b"slow", after_head=gate)
    lease = pool.lease(server.url())
    with Threads() as threads:
        transfer = threads.start(lease.resource.perform_rb)
        gate.wait_arrived()
        with pytest.raises(pycurl.error, match="currently running"):
            lease.resource.perform()
        gate.open()
        assert transfer.result() == b"slow"
    lease.release()
    assert pool.stats().idle == 1


@pytest.mark.parametrize("limits", [{"max_size": 2, "max_per_key": 1}, {"max_size": 1}, {"max_per_key": 1}])
def test_a_third_taker_times_out(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer, limits: dict[str, int]
) -> None:
    """U16: at the limit a taker waits for its timeout and gets PoolTimeoutError; no handle and no room is lost."""
    import time

    pool = make_pool(**limits)
    held = pool.lease(server.url())
    begun = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        pool.lease(server.url(), timeout=0.05)
    assert time.monotonic() - begun >= 0.05
    error = caught.value
    assert isinstance(error, PoolTimeoutError)
    assert (error.key, error.leased, error.waiters) == (held.key, 1, 0)
    assert pool.try_lease(server.url()) is None
    assert pool.try_acquire(server.url()) is None
    with pytest.raises(PoolTimeoutError):
        pool.acquire(server.url(), timeout=0)
    held.release()
    with pool.lease(server.url(), timeout=0) as easy:
        assert easy.perform_rb() == b"fine"
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.created, stats.timeouts, stats.waits) == (1, 2, 1)


def test_a_waiter_gets_the_handle(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: a waiter is served by a release, clean and with the connection; waiting isn't counted by libcurl's timeouts."""
    import time

    pool = make_pool(max_size=1, transfer_timeout=0.5, connect_timeout=0.5)
    held = pool.lease(server.url("/first"))
    held.resource.setopt(pycurl.HTTPHEADER, ["X-Mine: 1"])
    held.resource.perform_rb()

    def wait_and_read() -> tuple[bytes, int]:
        with pool.lease(server.url("/second")) as easy:
            return easy.perform_rb(), easy.getinfo(pycurl.NUM_CONNECTS)

    with Threads() as threads:
        waiter = threads.start(wait_and_read)
        wait_until(lambda: pool.stats().waiters == 1)
        let_pass(time.monotonic() + 0.6)
        held.release()
        assert waiter.result() == (b"fine", 0)
    assert server.requests[-1].header("x-mine") is None


def test_a_waiter_is_served_where_a_handle_is_discarded(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer
) -> None:
    """U13, U16: a handle that fails gives its room to the waiter, who gets a new one."""
    pool = make_pool(max_size=1)
    held = pool.lease(server.url())
    held.resource.setopt(pycurl.PROXY, "")
    with Threads() as threads:
        waiter = threads.start(lambda: pool.lease(server.url("/next")))
        wait_until(lambda: pool.stats().waiters == 1)
        held.release()
        with waiter.result() as easy:
            assert easy.perform_rb() == b"fine"
    assert pool.stats().created == 2


def test_room_is_taken_from_another_origin(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer
) -> None:
    """U16: at max_size an idle handle of another origin makes room: its connection is closed."""
    pool = make_pool(max_size=1)
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
    with pool.lease("http://other.test/", timeout=0):
        assert server.wait_ended(1) == "closed"
    assert pool.stats().destroyed_for["evicted"] == 1


def test_too_many_waiters(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: max_waiters refuses at once, by PoolExhaustedError."""
    pool = make_pool(max_size=1, max_waiters=0)
    with pool.lease(server.url()), pytest.raises(PoolExhaustedError):
        pool.lease(server.url(), timeout=10)


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_is_pickled_or_copied(
    pool: EasyHandlePool, server: RecordingServer, how: Callable[[object], object]
) -> None:
    """U20: pickling or copying a handle, its lease or the pool is a TypeError that says so; all stay good."""
    with pool.lease(server.url()) as easy:
        for thing in (easy, pool):
            with pytest.raises(TypeError, match=r"pickled|copied"):
                how(thing)
        assert easy.perform_rb() == b"fine"
    lease = pool.lease(server.url())
    with pytest.raises(TypeError, match="pickled or copied"):
        how(lease)
    with pytest.raises(TypeError, match="duplicated"):
        lease.resource.duphandle()
    lease.release()
    assert pool.stats().created == 1


def test_after_close(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: a closed pool hands out nothing; a handle that is still out works, and is closed when it comes back."""
    pool = make_pool()
    lease = pool.lease(server.url())
    lease.resource.perform_rb()
    with pytest.raises(PoolTimeoutError):
        pool.close(0)
    assert pool.closed
    for take in (pool.lease, pool.try_lease, pool.acquire, pool.try_acquire):
        with pytest.raises(PoolClosedError):
            take(server.url())
    assert lease.resource.perform_rb() == b"fine"
    easy = lease.resource
    lease.release()
    assert easy.closed
    pool.close()
    assert server.wait_ended(1) == "closed"


def test_all_errors_are_of_the_pool(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U10: what a pool raises by itself is a PoolError."""
    lease = pool.lease(server.url())
    multi = pycurl.CurlMulti()
    multi.add_handle(lease.resource)
    with pytest.raises(PoolError):
        lease.release()
    multi.remove_handle(lease.resource)
    multi.close()
    lease.release()
