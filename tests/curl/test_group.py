"""Several handles at once: `lease_many`."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from respool import (
    InvalidReleaseError,
    LeaseLeakWarning,
    LeaseLostError,
    LeaseReleasedError,
    PoolExhaustedError,
    PoolTimeoutError,
)
from respool.curl import Origin
from tests.helpers.forks import in_child
from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import run_together

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import RecordingServer


def test_all_have_the_url(pool: EasyHandlePool, server: RecordingServer) -> None:
    """P99, U01: each handle of a group comes as good as new, with the URL set, and goes back with its connection."""
    for take in (pool.lease_many, lambda n, url: pool.bind(url).lease_many(n)):
        group = take(3, server.url("/many"))
        assert group.key == Origin.of(server.url())
        with group as handles:
            assert len(set(handles)) == 3
            assert group.resources == handles
            for easy in handles:
                easy.setopt(pycurl.HTTPHEADER, ["X-Mine: 1"])
                easy.tag = object()
            assert run_together(*[easy.perform_rb for easy in handles]) == [b"fine"] * 3
        assert group.released
        assert_quiet(pool, leased=0, idle=3)
    assert server.connections == 3
    with pool.lease_many(3, Origin.of(server.url())) as handles:
        for easy in handles:
            assert not hasattr(easy, "tag")
            with pytest.raises(pycurl.error):
                easy.perform()


def test_all_or_none(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """P99, P101: as many as were asked for or none at all; more than ever possible is refused at once."""
    pool = make_pool(max_per_key=3)
    with pool.lease(server.url()):
        with pytest.raises(PoolTimeoutError):
            pool.lease_many(3, server.url(), timeout=0.001)
        assert pool.stats().leased == 1
        with pytest.raises(PoolExhaustedError):
            pool.lease_many(4, server.url())
    for bad in (0, -1, True, 1.5):
        with pytest.raises((TypeError, ValueError)):
            pool.lease_many(bad, server.url())  # type: ignore[arg-type]  # that is the point
    assert_quiet(pool, leased=0, idle=1)


def test_unfit_ones_go(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: of a group that comes back, handles that failed or were bound otherwise are destroyed, the others kept."""
    server.answers["/short"] = Answer(length=100, close=True)
    with pool.lease_many(4, server.url()) as (good, failed, bound, closed):
        good.perform_rb()
        failed.setopt(pycurl.URL, server.url("/short"))
        with pytest.raises(pycurl.error):
            failed.perform_rb()
        bound.setopt(pycurl.PROXY, "")
        closed.close()
    assert failed.closed
    assert bound.closed
    stats = assert_quiet(pool, leased=0, idle=1)
    assert (stats.destroyed_for["discarded"], sum(stats.hook_errors.values())) == (3, 0)
    with pool.lease(server.url()) as easy:
        assert easy is good


def test_an_error_in_the_block(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: a block that raises costs all of its handles; the error comes out unchanged."""
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught, pool.lease_many(2, server.url()):
        raise mine
    assert caught.value is mine
    assert pool.stats().destroyed_for["discarded"] == 2


@pytest.mark.parametrize("call", ["release", "discard", "with"])
def test_one_is_in_use(pool: EasyHandlePool, server: RecordingServer, call: str) -> None:
    """U11: while one handle of a group sits in a multi, none is given back; then all are."""
    group = pool.lease_many(3, server.url())
    multi = pycurl.CurlMulti()
    multi.add_handle(group.resources[1])
    give_back: dict[str, Callable[[], object]] = {
        "release": group.release,
        "discard": group.discard,
        "with": lambda: group.__exit__(None, None, None),
    }
    for _ in range(2):
        with pytest.raises(InvalidReleaseError, match="CurlMulti"):
            give_back[call]()
        assert (pool.stats().leased, group.released) == (3, False)
    multi.remove_handle(group.resources[1])
    multi.close()
    give_back[call]()
    assert_quiet(pool, leased=0, idle=0 if call == "discard" else 3)


def test_the_refusal_hides_no_error(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U11: where the block raised, its own error leaves, with a note that nothing was given back."""
    group = pool.lease_many(2, server.url())
    easy = group.resources[0]
    multi = pycurl.CurlMulti()
    multi.add_handle(easy)
    with pytest.raises(KeyError) as caught, group:
        raise KeyError("mine")
    assert "not given back" in caught.value.__notes__[0]
    assert not group.released
    multi.remove_handle(easy)
    multi.close()
    group.discard()
    assert_quiet(pool, leased=0, idle=0)


def test_a_spent_group(pool: EasyHandlePool, server: RecordingServer) -> None:
    """P35, P41, P42: release and leaving a block again do nothing, all else is LeaseReleasedError."""
    group = pool.lease_many(2, server.url())
    assert "2 leased" in repr(group)
    group.release()
    assert "EasyLeaseGroup" in repr(group)
    assert "released" in repr(group)
    group.release()
    group.release(lambda: False)
    group.__exit__(None, None, None)
    for call in (group.discard, group.__enter__, lambda: group.resources):
        with pytest.raises(LeaseReleasedError):
            call()
    assert_quiet(pool, leased=0, idle=2)


def test_a_dropped_group(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """P45, U13: a group that is dropped gives its rooms back and warns; its handles are closed."""
    pool = make_pool(max_size=2)
    handles = pool.lease_many(2, server.url()).resources
    with pytest.warns(LeaseLeakWarning):
        pool.lease(server.url(), timeout=0).release()
    assert all(easy.closed for easy in handles)
    assert pool.stats().leaked == 2


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_nothing_is_pickled_or_copied(pool: EasyHandlePool, server: RecordingServer, how: Any) -> None:
    """U20: a group is the one hold on its handles."""
    with pool.lease_many(2, server.url()):
        pass
    group = pool.lease_many(2, server.url())
    with pytest.raises(TypeError, match="pickled or copied"):
        how(group)
    group.release()


def test_a_fork(pool: EasyHandlePool, server: RecordingServer) -> None:
    """P75, P76: in a child an inherited group's release does nothing, and the parent's connections are as before."""
    group = pool.lease_many(2, server.url())
    for easy in group.resources:
        easy.perform_rb()

    def child() -> None:
        with pytest.raises(LeaseLostError):
            group.resources  # noqa: B018 - it's a property that raises
        group.release()
        with pool.lease_many(2, server.url(), timeout=0):
            pass
        assert_quiet(pool, leased=0, idle=2)

    in_child(child)
    for easy in group.resources:
        assert easy.perform_rb() == b"fine"
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    group.release()
    assert_quiet(pool, leased=0, idle=2)


def test_a_url_that_can_not_be_set(
    pool: EasyHandlePool, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P24: where one handle can't be lent, none is, and no room is lost."""
    from respool.curl import _group

    lend, calls = _group.lend, []

    def fail(easy: Any, url: str | None) -> None:
        calls.append(url)
        if len(calls) == 2:
            raise MemoryError
        lend(easy, url)

    monkeypatch.setattr(_group, "lend", fail)
    with pytest.raises(MemoryError):
        pool.lease_many(3, server.url())
    assert_quiet(pool, leased=0, idle=0)
