"""A handle comes as good as new: nothing of an earlier user's is left but the connection."""

from __future__ import annotations

import gc
import io
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pycurl
import pytest

from tests.helpers.http_servers import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import RecordingServer


class Thing:
    """Something that a weak reference can watch."""


class Sink(Thing):
    """A callback with a life of its own."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    def __call__(self, *args: object) -> None:
        """Take a piece, or whatever this kind of callback gets."""
        self.got += [bytes(arg) for arg in args if isinstance(arg, bytes)]

    def write(self, chunk: bytes) -> None:
        """Take a piece."""
        self.got.append(bytes(chunk))


def test_options_headers_and_callbacks_are_gone(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: of a header, range, method, timeout and callback nothing reaches the next request, on the same connection."""
    sink, headers = Sink(), Sink()
    with pool.lease(server.url("/first")) as easy:
        first = easy
        easy.setopt(pycurl.HTTPHEADER, ["X-Mine: secret", "Accept: nothing"])
        easy.setopt(pycurl.RANGE, "0-1")
        easy.setopt(pycurl.CUSTOMREQUEST, "PATCH")
        easy.setopt(pycurl.USERAGENT, "me")
        easy.setopt(pycurl.REFERER, "http://secret.example/")
        easy.setopt(pycurl.COOKIE, "session=secret")
        easy.setopt(pycurl.TIMEOUT_MS, 7)
        easy.setopt(pycurl.TIMEOUT_MS, 0)
        easy.setopt(pycurl.WRITEFUNCTION, sink)
        easy.setopt(pycurl.HEADERFUNCTION, headers)
        easy.perform()
    taken = sink.got, headers.got
    with pool.lease(server.url("/second")) as easy:
        assert easy is first
        assert easy.getinfo(pycurl.EFFECTIVE_URL) != server.url("/first")
        assert easy.getinfo(pycurl.RESPONSE_CODE) == 0
        assert easy.errstr() == ""
        assert easy.perform_rb() == b"fine"
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    before, after = server.requests
    assert before.method == "PATCH"
    assert before.header("x-mine") == "secret"
    assert before.header("range") == "bytes=0-1"
    assert (after.method, after.target, after.connection) == ("GET", "/second", before.connection)
    assert set(after.headers) == {"host", "user-agent", "accept"}
    assert after.header("user-agent") != "me"
    assert "secret" not in after.head
    assert (sink.got, headers.got) == taken


def test_a_handle_without_a_url_has_none(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: the next user, who leases by origin, finds no URL set: not even the earlier one."""
    from respool.curl import Origin

    with pool.lease(server.url("/first")) as easy:
        easy.perform_rb()
    with pool.lease(Origin.of(server.url())) as easy:
        assert easy.getinfo(pycurl.EFFECTIVE_URL) in ("", None)
        with pytest.raises(pycurl.error) as caught:
            easy.perform_rb()
    assert caught.value.args[0] == pycurl.E_URL_MALFORMAT
    assert len(server.requests) == 1


@pytest.mark.parametrize("option", ["WRITEFUNCTION", "HEADERFUNCTION", "XFERINFOFUNCTION", "DEBUGFUNCTION"])
def test_callbacks_die_at_release(pool: EasyHandlePool, server: RecordingServer, option: str) -> None:
    """U01: a callback is dropped at release, not at the handle's next use."""
    sink = Sink()
    alive = weakref.ref(sink)
    lease = pool.lease(server.url())
    lease.resource.setopt(getattr(pycurl, option), sink)
    del sink
    assert alive() is not None
    lease.release()
    assert alive() is None


def test_buffers_and_files_die_at_release(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01, U04: objects given as WRITEDATA, POSTFIELDS, header lists and attributes are dropped at release."""
    lease = pool.lease(server.url())
    easy = lease.resource
    sink, tag = Sink(), Thing()
    alive = [weakref.ref(sink), weakref.ref(tag)]
    easy.setopt(pycurl.WRITEDATA, sink)
    easy.tag = tag  # type: ignore[attr-defined]  # any attribute can be set
    easy.perform()
    assert sink.got == [b"fine"]
    del sink, tag
    lease.release()
    assert [reference() for reference in alive] == [None, None]


def test_kept_slices_stay_readable(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: with use_memoryview a slice that outlives its callback never reads freed memory; the view itself is released."""
    server.default = Answer(bytes(range(256)) * 256)
    kept: list[memoryview] = []
    views: list[memoryview] = []

    def keep(view: memoryview) -> None:
        assert isinstance(view, memoryview)
        views.append(view)
        kept.append(view[:])

    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.WRITEFUNCTION, keep, use_memoryview=True)
        easy.perform()
    with pool.lease(server.url()) as easy:
        assert easy.perform_rb() == server.default.body
    assert b"".join(kept) == server.default.body
    for view in views:
        with pytest.raises(ValueError, match="released"):
            view.tobytes()


def test_exported_views_are_no_error(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: a view that something still exports when its callback returns stays good, and is no error."""
    kept: list[memoryview] = []
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.WRITEFUNCTION, lambda view: kept.append(memoryview(view)), use_memoryview=True)
        easy.perform()
    assert b"".join(kept) == b"fine"


def test_cookies_are_gone(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U02: a cookie that the server set for one user isn't sent for the next, on the same connection."""
    server.answers["/login"] = Answer(headers=["Set-Cookie: session=secret; Path=/"])
    with pool.lease(server.url("/login")) as easy:
        first = easy
        easy.setopt(pycurl.COOKIEFILE, "")
        easy.perform_rb()
        assert easy.getinfo(pycurl.INFO_COOKIELIST)
        easy.perform_rb()
        assert server.requests[-1].header("cookie") == "session=secret"
    with pool.lease(server.url("/next")) as easy:
        assert easy is first
        assert easy.getinfo(pycurl.INFO_COOKIELIST) == []
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
        assert server.requests[-1].header("cookie") is None


@pytest.mark.parametrize("how", ["COOKIEFILE", "COOKIELIST", "COOKIEJAR", "string"])
def test_the_cookie_engine_is_off_again(pool: EasyHandlePool, server: RecordingServer, how: str) -> None:
    """U02: a user who asked for no cookies gets none, though an earlier one had switched them on."""
    server.default = Answer(headers=["Set-Cookie: session=secret; Path=/"])
    with pool.lease(server.url()) as easy:
        if how == "string":
            easy.setopt_string(pycurl.COOKIEFILE, "")
        else:
            easy.setopt(
                getattr(pycurl, how),
                {"COOKIEFILE": "", "COOKIELIST": "Set-Cookie: a=b", "COOKIEJAR": "-"}[how],
            )
        easy.perform_rb()
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        easy.perform_rb()
        assert easy.getinfo(pycurl.INFO_COOKIELIST) == []
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert server.requests[-1].header("cookie") is None
    assert server.connections == 1


def test_the_share_is_gone(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U03: a CurlShare is detached at release: it can be closed at once, and another one attached."""
    share = pycurl.CurlShare()
    share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_COOKIE)
    share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_DNS)
    server.answers["/login"] = Answer(headers=["Set-Cookie: session=secret; Path=/"])
    with pool.lease(server.url("/login")) as easy:
        first = easy
        easy.setopt(pycurl.SHARE, share)
        easy.perform_rb()
    assert first.share() is None
    share.close()
    other = pycurl.CurlShare()
    with pool.lease(server.url("/next")) as easy:
        assert easy is first
        assert easy.share() is None
        easy.setopt(pycurl.SHARE, other)
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert server.requests[-1].header("cookie") is None
    other.close()


def test_attributes_are_gone(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U04: an attribute that a user hung on the handle is gone on the next take, and its object freed at release."""
    thing = Thing()
    alive = weakref.ref(thing)
    lease = pool.lease(server.url())
    first = lease.resource
    first.tag = thing  # type: ignore[attr-defined]
    first.other = 1  # type: ignore[attr-defined]
    del first.other  # type: ignore[attr-defined]
    assert first.tag is thing  # type: ignore[attr-defined]
    del thing
    lease.release()
    assert alive() is None
    with pool.lease(server.url()) as easy:
        assert easy is first
        assert not hasattr(easy, "tag")


def test_basic_credentials_are_gone(
    make_pool: Callable[..., EasyHandlePool], server: RecordingServer
) -> None:
    """U05: who asks without credentials sends none, and not over the connection of one who had some.

    Credentials set on a leased handle cost the handle; those of an origin keep to their own key.
    """
    pool = make_pool()
    with pool.lease(server.url("/set")) as easy:
        easy.setopt(pycurl.USERPWD, "user:secret")
        easy.perform_rb()
    with pool.lease(server.url("/plain")) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 1
    with pool.lease(server.url("/url").replace("//", "//user:secret@")) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.EFFECTIVE_URL) == server.url("/url")
    with pool.lease(server.url("/plain")) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert [request.header("authorization") for request in server.requests] == [
        "Basic dXNlcjpzZWNyZXQ=",
        None,
        "Basic dXNlcjpzZWNyZXQ=",
        None,
    ]
    assert [request.connection for request in server.requests] == [1, 2, 3, 2]
    assert server.wait_ended(1) == "closed"


@pytest.mark.parametrize(
    "header", ["Authorization: NTLM abc", "authorization:negotiate abc", b"AUTHORIZATION : Kerberos abc"]
)
def test_a_connection_that_a_header_authenticated_is_not_reused(
    pool: EasyHandlePool, server: RecordingServer, header: str | bytes
) -> None:
    """U05: after a scheme that authenticates the connection the next user gets a new one.

    pycurl's wheel is built without NTLM, and Negotiate needs a Kerberos realm, so that libcurl
    can't play these here: what can be had is a user who speaks such a scheme by a header.
    """
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.HTTPHEADER, ["X-Other: 1", header])
        easy.perform_rb()
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 1
    assert server.requests[-1].header("authorization") is None


def test_a_header_for_a_proxy_costs_the_handle(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U05: what a user says to the proxy is of the connection through it: that isn't kept."""
    lease = pool.lease(server.url())
    lease.resource.setopt(pycurl.HTTPHEADER, ["Proxy-Authorization: Basic abc"])
    lease.release()
    assert pool.stats().destroyed_for["discarded"] == 1


def test_no_signals(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: libcurl is told on every handle to leave signals alone.

    What it would do with them can't be seen with a resolver that has a thread, as here.
    """
    with pool.lease(server.url()) as easy:
        assert (pycurl.NOSIGNAL, 1) in easy._record.options


def test_a_request_that_a_header_authenticated_leaves_the_connection_good(
    pool: EasyHandlePool, server: RecordingServer
) -> None:
    """U05: Basic and Bearer are of the request alone: the connection is kept, the header isn't."""
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.HTTPHEADER, ["Authorization: Bearer abc"])
        easy.perform_rb()
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.NUM_CONNECTS) == 0
    assert [request.header("authorization") for request in server.requests] == ["Bearer abc", None]


def test_reset_brings_back_the_lease(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U01: a user's own reset leaves what the pool and the origin set: http only, the credential, no signals."""
    from respool.curl import Origin

    with pool.lease(Origin.of(server.url(), credential="token")) as easy:
        easy.setopt(pycurl.HTTPHEADER, ["X-Mine: 1"])
        easy.reset()
        easy.setopt(pycurl.URL, server.url())
        easy.perform_rb()
        assert server.requests[-1].header("authorization") == "Bearer token"
        assert server.requests[-1].header("x-mine") is None
        easy.reset()
        with pytest.raises(pycurl.error) as caught:
            easy.perform_rb()
    assert caught.value.args[0] == pycurl.E_URL_MALFORMAT


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "ws", "dict"])
def test_http_and_https_only(pool: EasyHandlePool, server: RecordingServer, scheme: str) -> None:
    """U01: a handle speaks http and https, not the two dozen others of libcurl, by a redirect neither."""
    server.answers["/elsewhere"] = Answer(
        status="302 Found", headers=[f"Location: {scheme}://127.0.0.1/etc/passwd"]
    )
    for url in (server.url("/elsewhere"), f"{scheme}://127.0.0.1/etc/passwd"):
        with pool.lease(server.url()) as easy:
            easy.setopt(pycurl.FOLLOWLOCATION, 1)
            easy.setopt(pycurl.URL, url)
            with pytest.raises(pycurl.error) as caught:
                easy.perform_rb()
        assert caught.value.args[0] == pycurl.E_UNSUPPORTED_PROTOCOL


def test_collection_finds_nothing_of_the_user(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U04: objects of a user that refer to the handle and are referred to by it are freed once it is released."""
    lease = pool.lease(server.url())
    easy = lease.resource
    thing = Thing()
    thing.easy = easy  # type: ignore[attr-defined]
    alive = weakref.ref(thing)
    easy.thing = thing  # type: ignore[attr-defined]
    easy.setopt(pycurl.WRITEFUNCTION, partial(print, thing, file=io.StringIO()))
    easy.perform()
    lease.release()
    del thing
    gc.collect()
    assert alive() is None
