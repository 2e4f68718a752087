"""How a transfer ended decides what becomes of the handle."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pycurl
import pytest

from tests.helpers.http_servers import Answer
from tests.helpers.invariants import assert_quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from respool.curl._easy import EasyHandle
    from tests.helpers.http_servers import RecordingServer


def connects_next(pool: EasyHandlePool, server: RecordingServer) -> int:
    """Make a plain request; how many new connections it took."""
    with pool.lease(server.url("/next")) as easy:
        assert easy.perform_rb() == b"fine"
        return easy.getinfo(pycurl.NUM_CONNECTS)


def assert_discarded(pool: EasyHandlePool, server: RecordingServer) -> None:
    """Check that the handle was destroyed, its room given back, and that the next one is new and works."""
    stats = assert_quiet(pool, leased=0, idle=0)
    assert stats.destroyed_for["discarded"] == stats.destroyed == 1
    assert connects_next(pool, server) == 1
    assert pool.stats().created == 2


@pytest.mark.parametrize("length", [5, 100_000])
def test_a_body_that_ends_early(pool: EasyHandlePool, server: RecordingServer, length: int) -> None:
    """U08: after a body shorter than promised the handle isn't kept, and the next request has a new connection."""
    server.answers["/short"] = Answer(length=length, close=True)
    with pytest.raises(pycurl.error) as caught, pool.lease(server.url("/short")) as easy:
        easy.perform_rb()
    assert caught.value.args[0] == pycurl.E_PARTIAL_FILE
    assert_discarded(pool, server)


def test_an_abort_by_the_callback(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U08: a transfer that the callback aborts in the middle, by what it returns, ends the connection."""
    server.answers["/large"] = Answer(bytes(1 << 20))
    with pool.lease(server.url("/large")) as easy:
        easy.setopt(pycurl.WRITEFUNCTION, lambda _chunk: 0)
        with pytest.raises(pycurl.error) as caught:
            easy.perform()
    assert caught.value.args[0] == pycurl.E_WRITE_ERROR
    assert_discarded(pool, server)
    assert server.wait_ended(1)


def test_a_caught_failure_counts(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: a failure that the user caught inside the block counts, even if a later transfer went well."""
    server.answers["/short"] = Answer(length=9, close=True)
    with pool.lease(server.url("/short")) as easy:
        with pytest.raises(pycurl.error):
            easy.perform_rb()
        easy.setopt(pycurl.URL, server.url("/retry"))
        assert easy.perform_rb() == b"fine"
    assert_discarded(pool, server)


def refuse_connection(easy: EasyHandle, _server: RecordingServer, _tls: RecordingServer) -> None:
    """Ask where nobody listens."""
    easy.setopt(pycurl.URL, "http://127.0.0.1:1/")


def unknown_certificate(easy: EasyHandle, _server: RecordingServer, tls: RecordingServer) -> None:
    """Ask a server whose certificate nobody knows."""
    easy.setopt(pycurl.URL, tls.url())


def no_http(easy: EasyHandle, server: RecordingServer, _tls: RecordingServer) -> None:
    """Get an answer that breaks HTTP."""
    server.answers["/"] = Answer(
        headers=["Transfer-Encoding: chunked"], body=b"this is no chunk\r\n", close=True
    )


def timeout(easy: EasyHandle, server: RecordingServer, _tls: RecordingServer) -> None:
    """Wait for more of a body than comes, until the transfer's own timeout."""
    server.answers["/"] = Answer(length=100)
    easy.setopt(pycurl.TIMEOUT_MS, 50)


@pytest.mark.parametrize("break_it", [refuse_connection, unknown_certificate, no_http, timeout])
def test_a_failed_transfer(
    pool: EasyHandlePool, server: RecordingServer, tls_server: RecordingServer, break_it: Callable[..., None]
) -> None:
    """U13: after a network, TLS or protocol error or a timeout the handle is discarded, its room comes back."""
    with pool.lease(server.url()) as easy:
        break_it(easy, server, tls_server)
        with pytest.raises(pycurl.error):
            easy.perform_rb()
    assert_discarded(pool, server)


@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt("mine"), SystemExit("mine"), GeneratorExit()]
)
def test_a_body_that_raises(pool: EasyHandlePool, server: RecordingServer, error: BaseException) -> None:
    """U13: a with-block that raises costs the handle, and its very exception leaves the block."""
    lease = pool.lease(server.url())
    lease.resource.perform_rb()
    with pytest.raises(type(error)) as caught, lease:
        raise error
    assert caught.value is error
    assert_discarded(pool, server)


def test_a_bare_handle_is_judged_alike(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: release on the fast tier destroys a handle that failed, and keeps one that didn't."""
    easy = pool.acquire(server.url())
    easy.perform_rb()
    pool.release(easy)
    assert pool.stats().idle == 1
    easy = pool.acquire("http://127.0.0.1:1/")
    with pytest.raises(pycurl.error):
        easy.perform_rb()
    pool.release(easy)
    assert pool.stats().idle == 1
    assert pool.stats().destroyed_for["discarded"] == 1


@pytest.mark.parametrize(
    "status", ["404 Not Found", "503 Service Unavailable", "301 Moved Permanently", "204 No Content"]
)
def test_an_http_error_keeps_the_connection(
    pool: EasyHandlePool, server: RecordingServer, status: str
) -> None:
    """U14: a status, with its body read to the end, is no failure: handle and connection are kept."""
    server.answers["/error"] = Answer(b"" if status.startswith("204") else b"sorry", status)
    with pool.lease(server.url("/error")) as easy:
        easy.perform_rb()
        assert easy.getinfo(pycurl.RESPONSE_CODE) == int(status[:3])
    assert connects_next(pool, server) == 0
    assert pool.stats().created == 1


def test_fail_on_error(make_pool: Callable[..., EasyHandlePool], server: RecordingServer) -> None:
    """U14: with fail_on_error a status of 400 or more is a failure, and costs the handle; one below isn't."""
    pool = make_pool(fail_on_error=True)
    server.answers["/error"] = Answer(b"sorry", "404 Not Found")
    with pytest.raises(pycurl.error) as caught, pool.lease(server.url("/error")) as easy:
        easy.perform_rb()
    assert caught.value.args[0] == pycurl.E_HTTP_RETURNED_ERROR
    assert_discarded(pool, server)


def run_write(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the body's callback raise."""
    easy.setopt(pycurl.WRITEFUNCTION, callback)
    easy.perform()


def run_view(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let a callback that gets views raise."""
    easy.setopt(pycurl.WRITEFUNCTION, callback, use_memoryview=True)
    easy.perform()


def run_file(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let a file's method raise."""
    sink = io.BytesIO()

    class Sink:
        write = staticmethod(callback)

    easy.setopt(pycurl.WRITEHEADER, sink)
    easy.setopt(pycurl.WRITEDATA, Sink())
    easy.perform()


def run_header(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the head's callback raise."""
    easy.setopt(pycurl.HEADERFUNCTION, callback)
    easy.perform_rb()


def run_progress(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the progress callback raise."""
    easy.setopt(pycurl.NOPROGRESS, 0)
    easy.setopt(pycurl.XFERINFOFUNCTION, callback)
    easy.perform_rb()


def run_debug(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the debug callback raise, whose return value libcurl ignores."""
    easy.setopt(pycurl.VERBOSE, 1)
    easy.setopt(pycurl.DEBUGFUNCTION, callback)
    easy.perform_rb()


def run_read(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let an upload's source raise."""
    easy.setopt(pycurl.UPLOAD, 1)
    easy.setopt(pycurl.INFILESIZE, 10)
    easy.setopt(pycurl.READFUNCTION, callback)
    easy.perform_rb()


def run_trailer(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the trailer callback raise, which has no value that means "give up"."""
    easy.setopt(pycurl.UPLOAD, 1)
    easy.setopt(pycurl.HTTPHEADER, ["Expect:", "Transfer-Encoding: chunked"])
    easy.setopt(pycurl.READFUNCTION, io.BytesIO(b"data").read)
    easy.setopt(pycurl.TRAILERFUNCTION, callback)
    easy.perform_rb()


def run_prereq(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the callback before the request raise."""
    easy.setopt(pycurl.PREREQFUNCTION, callback)
    easy.perform_rb()


def run_opensocket(easy: EasyHandle, callback: Callable[..., Any]) -> None:
    """Let the callback that makes the socket raise."""
    easy.setopt(pycurl.OPENSOCKETFUNCTION, callback)
    easy.perform_rb()


RUNS = [
    run_write,
    run_view,
    run_file,
    run_header,
    run_progress,
    run_debug,
    run_read,
    run_trailer,
    run_prereq,
    run_opensocket,
]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("run", RUNS)
def test_what_a_callback_raises(
    pool: EasyHandlePool,
    server: RecordingServer,
    capfd: pytest.CaptureFixture[str],
    run: Callable[[EasyHandle, Callable[..., Any]], None],
    error: type[BaseException],
) -> None:
    """U15: the very exception that a callback raised leaves perform, nothing is printed, the handle isn't kept."""
    raised = error("mine")

    def callback(*_args: object) -> None:
        raise raised

    with pytest.raises(error) as caught, pool.lease(server.url()) as easy:
        run(easy, callback)
    assert caught.value is raised
    assert caught.value.__context__ is None
    assert capfd.readouterr() == ("", "")
    assert pool.stats().destroyed_for["discarded"] == 1
    server.requests.clear()
    connects_next(pool, server)


def test_a_callback_s_error_that_the_user_caught(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U15: a handle whose callback raised is discarded even when the user goes on, and the error isn't raised twice."""
    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.WRITEFUNCTION, lambda _chunk: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            easy.perform()
        assert easy.perform_rb() == b"fine"
    assert_discarded(pool, server)


def test_the_first_error_counts(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U15: of several callbacks that raise in one transfer, the first one's exception is the one raised."""
    errors = iter([ValueError("first"), KeyError("second"), KeyError("third")])

    def callback(*_args: object) -> None:
        raise next(errors, KeyError("later"))

    with pool.lease(server.url()) as easy:
        easy.setopt(pycurl.HEADERFUNCTION, callback)
        easy.setopt(pycurl.VERBOSE, 1)
        easy.setopt(pycurl.DEBUGFUNCTION, callback)
        with pytest.raises(ValueError, match="first"):
            easy.perform_rb()


def test_a_callback_s_error_in_a_multi(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U15: a callback that raises while a multi runs the handle costs the handle, too."""
    multi = pycurl.CurlMulti()
    lease = pool.lease(server.url())
    lease.resource.setopt(pycurl.WRITEFUNCTION, lambda _chunk: 1 // 0)
    multi.add_handle(lease.resource)
    while multi.perform()[1]:
        multi.select(0.1)
    multi.remove_handle(lease.resource)
    multi.close()
    lease.release()
    assert_discarded(pool, server)


def test_a_handle_that_was_closed(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: a handle that its user closed isn't kept, its room comes back."""
    with pool.lease(server.url()) as easy:
        easy.perform_rb()
        with easy:
            pass
    assert_discarded(pool, server)
    with pool.lease(server.url()) as easy:
        easy.close()
        easy.close()


def test_what_pycurl_refuses_is_no_failure(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: an option refused by pycurl before any transfer leaves the handle as good as it was."""
    with pool.lease(server.url()) as easy:
        for option, value in ((pycurl.URL, 5), (pycurl.HTTPHEADER, "no list"), (pycurl.WRITEDATA, object())):
            with pytest.raises((TypeError, pycurl.error)):
                easy.setopt(option, value)
        with pytest.raises(TypeError):
            easy.setopt(pycurl.VERBOSE, 1, use_memoryview=True)
        easy.perform_rb()
    assert connects_next(pool, server) == 0


def test_what_perform_returns(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U14: perform_rb and perform_rs give the body, as bytes and as text."""
    server.default = Answer("grün".encode())
    with pool.lease(server.url()) as easy:
        assert easy.perform_rb() == "grün".encode()
        assert easy.perform_rs() == "grün"
        assert easy.perform() is None  # type: ignore[func-returns-value]  # as in pycurl
