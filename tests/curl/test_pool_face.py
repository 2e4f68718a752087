"""The pool's face: the same names with the same meaning as a ResourcePool's."""

from __future__ import annotations

import gc
import inspect
import math
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from respool import ALL, LeaseLeakWarning, PoolLimits, ResourcePool
from respool.curl import EasyHandlePool, Origin
from tests.helpers.invariants import assert_quiet
from tests.helpers.programs import printed_by
from tests.helpers.recorder import Recorder
from tests.helpers.threads import run_together, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.http_servers import RecordingServer


def public(cls: type) -> set[str]:
    """The public names of a class."""
    return {name for name in dir(cls) if not name.startswith("_")}


def test_the_face_is_that_of_a_resource_pool() -> None:
    """U16: whatever a ResourcePool, its bound pool, its lease and its group offer, these offer under the same name."""
    from respool import BoundPool, Lease, LeaseGroup
    from respool.curl._group import EasyLeaseGroup
    from respool.curl._lease import EasyLease
    from respool.curl.handle_pool import BoundEasyHandlePool

    for ours, core in (
        (EasyHandlePool, ResourcePool),
        (BoundEasyHandlePool, BoundPool),
        (EasyLease, Lease),
        (EasyLeaseGroup, LeaseGroup),
    ):
        assert public(core) - {"adopt"} == public(
            ours
        )  # what is set on a handle made elsewhere, nobody can tell
        for name in public(ours):
            member = getattr(core, name)
            if inspect.isfunction(member):
                theirs = list(inspect.signature(member).parameters)
                assert theirs[1:] == [
                    {"handle": "resource"}.get(parameter, parameter)
                    for parameter in list(inspect.signature(getattr(ours, name)).parameters)[1:]
                ], name


def test_a_url_is_set_and_an_origin_is_not(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: a lease by URL has the URL set; one by origin has its options, and the same connection."""
    with pool.lease(server.url("/by-url")) as easy:
        assert easy.perform_rb() == b"fine"
    with pytest.raises(pycurl.error), pool.lease(Origin.of(server.url())) as easy:
        easy.perform_rb()
    with pool.lease(Origin.of(server.url())) as easy:
        easy.setopt(pycurl.URL, server.url("/by-origin"))
        assert easy.perform_rb() == b"fine"
    assert [request.target for request in server.requests] == ["/by-url", "/by-origin"]


@pytest.mark.parametrize("take", ["lease", "try_lease", "acquire", "try_acquire", "bind", "stats", "clear"])
@pytest.mark.parametrize(
    ("key", "error"),
    [("", ValueError), ("http://", ValueError), ("ftp://h/", ValueError), (None, TypeError), (5, TypeError)],
)
def test_bad_keys(pool: EasyHandlePool, take: str, key: Any, error: type[Exception]) -> None:
    """U07: what is no http URL and no origin is refused by every method that takes a key; the pool goes on."""
    with pytest.raises(error):
        getattr(pool, take)(key)
    assert_quiet(pool, leased=0, idle=0)


def test_an_origin_without_its_secrets_is_refused(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U06: an origin that came by pickle, and has lost its credential, gets no handle that would ask without it."""
    import pickle

    lost = pickle.loads(pickle.dumps(Origin.of(server.url(), credential="token")))  # noqa: S301 - our own
    with pytest.raises(ValueError, match="lost its credential"):
        pool.lease(lost)
    assert pool.stats().created == 0


@pytest.mark.parametrize("timeout", [-1, math.nan, True, "1"])
def test_bad_timeouts(pool: EasyHandlePool, server: RecordingServer, timeout: Any) -> None:
    """U16: a timeout that is negative, NaN, bool or text is refused as by the core, hit or not."""
    for _ in range(2):
        for take in (pool.lease, pool.acquire):
            with pytest.raises((TypeError, ValueError)):
                take(server.url(), timeout)
        pool.lease(server.url()).release()


@pytest.mark.parametrize("name", ["connect_timeout", "transfer_timeout"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-1, ValueError), (math.nan, ValueError), (True, TypeError), ("1", TypeError)],
)
def test_bad_transfer_timeouts(name: str, value: Any, error: type[Exception]) -> None:
    """U16: libcurl's timeouts must be more than 0 seconds; the text names the argument and the value."""
    with pytest.raises(error, match=name) as caught:
        EasyHandlePool(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [None, math.inf, 1e-9, 0.5, 10, 1e12])
def test_transfer_timeouts(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer, value: float | None
) -> None:
    """U16: None and inf set no limit, all else is rounded up to a millisecond and capped at what libcurl takes."""
    pool = make_pool(connect_timeout=None, transfer_timeout=value)
    if value == 1e-9:
        from tests.helpers.http_servers import Answer

        server.default = Answer(length=100)
        with pytest.raises(pycurl.error) as caught, pool.lease(server.url()) as easy:
            easy.perform_rb()
        assert caught.value.args[0] == pycurl.E_OPERATION_TIMEDOUT
    else:
        with pool.lease(server.url()) as easy:
            assert easy.perform_rb() == b"fine"


def test_bound(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U16: a bound pool gives handles of its origin, with its URL set each time, out of the same stack."""
    bound = pool.bind(server.url("/bound"))
    for _ in range(2):
        with bound.lease() as easy:
            assert easy.perform_rb() == b"fine"
        bare = bound.acquire(timeout=0)
        bare.perform_rb()
        bound.release(bare)
        leased = bound.try_lease()
        assert leased is not None
        leased.release()
        tried = bound.try_acquire()
        assert tried is not None
        bound.discard(tried)
    assert {request.target for request in server.requests} == {"/bound"}
    assert bound.stats() == pool.stats(server.url())
    pool.lease(server.url()).release()
    assert bound.clear() == 1
    assert "BoundEasyHandlePool" in repr(bound)
    by_origin = pool.bind(Origin.of(server.url()))
    with pytest.raises(pycurl.error), by_origin.lease() as easy:
        easy.perform_rb()


def test_try_methods(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: try_lease and try_acquire give a handle that can be had at once, with the URL set, and else None."""
    pool = make_pool(max_size=1)
    lease = pool.try_lease(server.url("/tried"))
    assert lease is not None
    with lease as easy:
        assert easy.perform_rb() == b"fine"
        assert pool.try_lease(server.url()) is None
    bare = pool.try_acquire(server.url("/bare"))
    assert bare is not None
    assert bare.perform_rb() == b"fine"
    assert pool.try_acquire(server.url()) is None
    pool.release(bare)
    assert [request.target for request in server.requests] == ["/tried", "/bare"]


def test_detach(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: a detached handle is its user's for good: its room is free, and the pool never touches it again."""
    pool = make_pool(max_size=1)
    easy = pool.lease(server.url()).detach()
    with pool.lease(server.url(), timeout=0):
        pass
    pool.close()
    assert easy.perform_rb() == b"fine"
    easy.setopt(pycurl.USERPWD, "a:b")
    easy.close()
    assert server.wait_ended(1) == "closed"


def test_clear_and_stats(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U16: clear and stats take a URL, an origin, or all; clearing closes connections, those in use on release."""
    for path in ("/a", "/b"):
        with pool.lease(server.url(path)) as easy:
            easy.perform_rb()
    pool.lease("http://other.test/").release()
    assert pool.stats(server.url("/c")).idle == pool.stats(Origin.of(server.url())).idle == 1
    assert pool.stats().idle == pool.stats(ALL).idle == 2
    with pool.lease(server.url()) as easy:
        assert pool.clear(server.url()) == 0
        assert easy.perform_rb() == b"fine"
    assert server.wait_ended(1) == "closed"
    assert pool.clear() == 1
    stats = assert_quiet(pool, idle=0)
    assert stats.destroyed_for["cleared"] == 2


def test_max_per_key_by_function(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: max_per_key may be a function, which is asked with the origin."""
    asked: list[Origin] = []

    def cap(origin: Origin) -> int | None:
        asked.append(origin)
        return 1 if origin.scheme == "http" else None

    pool = make_pool(max_per_key=cap)
    with pool.lease(server.url()):
        assert pool.try_lease(server.url()) is None
    assert set(asked) == {Origin.of(server.url())}


def test_idle_handles_beyond_max_idle_are_closed(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer
) -> None:
    """U16: max_idle bounds how many connections are kept."""
    pool = make_pool(max_idle=1)
    leases = [pool.lease(server.url()) for _ in range(3)]
    for lease in leases:
        lease.resource.perform_rb()
    for lease in leases:
        lease.release()
    assert pool.stats().idle == 1
    wait_until(lambda: len(server.ends) == 2, "the end of two connections")
    assert set(server.ends.values()) == {"closed"}
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0


def test_observers(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U13: an observer is told of each handle made and destroyed, with its origin and the reason."""
    recorder = Recorder()
    pool = make_pool(observer=recorder)
    origin = Origin.of(server.url())
    pool.lease(origin).release()
    pool.lease(origin).discard()
    assert [(event.kind, event.key) for event in recorder.events] == [
        ("created", origin),
        ("destroyed", origin),
    ]
    assert recorder.details("destroyed") == ["discarded"]


def test_a_dropped_lease(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U13: a lease that is dropped gives its room back and warns; its handle is closed, never reused."""
    pool = make_pool(max_size=1, track_leases=True)
    easy = pool.lease(server.url()).resource
    gc.collect()
    assert pool.stats().leaked == 1
    with pytest.warns(LeaseLeakWarning, match="test_a_dropped_lease"):
        pool.lease(server.url(), timeout=0).release()
    assert easy.closed
    assert pool.stats().destroyed_for["leaked"] == 1


def test_reprs(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: pool, lease and handle tell their state in one line."""
    pool = make_pool(max_size=4, name="mine")
    lease = pool.lease(server.url())
    assert repr(pool) == "<respool.curl.EasyHandlePool mine idle=0 leased=1 waiters=0 PoolLimits(max_size=4)>"
    url = server.url("")
    assert repr(lease) == f"<respool.curl.EasyLease of Origin('{url}') from mine: leased>"
    assert repr(lease.resource) == f"<EasyHandle for {url} (lent)>"
    lease.release()
    assert repr(lease) == f"<respool.curl.EasyLease of Origin('{url}') from mine: released>"
    assert pool.name == "mine"
    assert pool.limits == PoolLimits(max_size=4)
    pool.close()
    assert "closed" in repr(pool)


def test_the_pool_as_a_block(server: RecordingServer) -> None:
    """U16: leaving the pool's block closes it, without waiting for what is out and without raising."""
    with EasyHandlePool() as pool:
        lease = pool.lease(server.url())
    assert pool.closed
    lease.release()
    assert_quiet(pool, leased=0, idle=0)


def test_many_threads(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U16: threads that share a bounded pool get right answers, over no more connections than its limit."""
    pool = make_pool(max_size=3)

    def read() -> set[bytes]:
        bodies = set()
        for _ in range(20):
            with pool.lease(server.url()) as easy:
                bodies.add(easy.perform_rb())
        return bodies

    assert run_together(*[read] * 8) == [{b"fine"}] * 8
    assert server.connections <= 3
    assert len(server.requests) == 160
    assert_quiet(pool, leased=0)


def test_pools_are_dropped_without_a_collector() -> None:
    """U16: a pool that is dropped without close warns at once, as any pool: nothing of it refers back to it."""
    program = """
        import gc, warnings, weakref
        from respool.curl import EasyHandlePool
        gc.disable()
        warnings.simplefilter("always")
        pool = EasyHandlePool()
        pool.lease("http://h/").release()
        gone = weakref.ref(pool)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del pool
        print(gone() is None, [warning.category.__name__ for warning in caught])
    """
    assert printed_by(program) == ["True ['ResourceWarning']"]


def test_without_pycurl() -> None:
    """U20: respool.curl and its Origin work without pycurl; the first use of the pool says which extra is missing."""
    program = """
        import sys
        sys.modules["pycurl"] = None
        import respool.curl
        from respool.curl import Origin
        print(Origin.of("http://h"))
        for _ in range(2):
            try:
                respool.curl.EasyHandlePool
            except ImportError as error:
                print(error)
        try:
            respool.curl.nothing
        except AttributeError as error:
            print(error)
        print("EasyHandlePool" in dir(respool.curl))
    """
    origin, first, second, nothing, listed = printed_by(program)
    assert origin == "http://h"
    assert first == second == "easy handles need pycurl: pip install respool[curl]"
    assert "nothing" in nothing
    assert listed == "True"


def test_nothing_is_imported_early() -> None:
    """U20: respool.curl imports neither pycurl nor idna by itself."""
    program = "import sys, respool.curl; print([name for name in ('pycurl', 'idna', 'ctypes') if name in sys.modules])"
    assert printed_by(program) == ["[]"]
