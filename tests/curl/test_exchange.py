"""One exchange on a leased handle: what the reader builds on, without naming pycurl."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from respool.curl import Origin
from respool.curl._exchange import TransferError, exchange
from tests.helpers.descriptors import descriptors_left
from tests.helpers.gates import Gate
from tests.helpers.http_servers import Answer
from tests.helpers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl import EasyHandlePool
    from tests.helpers.http_servers import Certificate, RecordingServer

SECRET = "hunter2"


def test_get(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U14: a GET gives head lines and body pieces to its callbacks, in order, and the facts of the transfer."""
    server.default = Answer(bytes(range(256)) * 1000, "206 Partial Content", ["Content-Range: bytes 0-9/10"])
    head: list[bytes] = []
    body = bytearray()
    for expected in (1, 0):
        head.clear()
        body.clear()
        with pool.lease(Origin.of(server.url())) as easy:
            facts = exchange(
                easy,
                server.url("/object"),
                headers=[("Range", "bytes=0-9"), ("Accept", ""), ("X-Name", "grün")],
                on_head=head.append,
                on_body=body.extend,
            )
        assert (facts.status, facts.connects, facts.protocol) == (206, expected, "HTTP/1.1")
        assert facts.peer == f"127.0.0.1:{server.port}"
        assert facts.body_bytes == len(body)
        assert facts.head_bytes == sum(map(len, head))
        assert 0 <= facts.connect_seconds <= facts.first_byte_seconds <= facts.seconds
    assert bytes(body) == server.default.body
    assert head[0] == b"HTTP/1.1 206 Partial Content\r\n"
    assert head[-1] == b"\r\n"
    request = server.requests[-1]
    assert (request.method, request.target) == ("GET", "/object")
    assert (request.header("range"), request.header("accept"), request.header("x-name")) == (
        "bytes=0-9",
        "",
        "grün",
    )


def test_head(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U14: a HEAD has no body, and leaves the connection good for the GET behind it."""
    body = bytearray()
    with pool.lease(server.url()) as easy:
        assert exchange(easy, method="HEAD", on_body=body.extend).status == 200
    with pool.lease(server.url()) as easy:
        assert exchange(easy, on_body=body.extend).connects == 0
    assert body == b"fine"
    assert [request.method for request in server.requests] == ["HEAD", "GET"]


def test_paths_are_sent_as_they_are(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U07: a path with dots is the name of an object, and is not shortened."""
    with pool.lease(server.url("/a/../b/./c//d")) as easy:
        exchange(easy)
    assert server.requests[-1].target == "/a/../b/./c//d"


def test_a_proxy_s_own_head_is_not_the_answer_s(
    pool: EasyHandlePool, certificate: Certificate, tls_server: RecordingServer
) -> None:
    """U07: through a proxy that tunnels, the head is that of the object's answer alone."""
    head: list[bytes] = []
    with Tunnel() as proxy:
        origin = Origin.of(tls_server.url(), proxy=proxy.url, ca_bundle=certificate.cert)
        for expected in (1, 0):
            head.clear()
            with pool.lease(origin) as easy:
                assert exchange(easy, tls_server.url(), on_head=head.append).connects == expected
            assert head[0] == b"HTTP/1.1 200 OK\r\n"
            assert len(head) == 3
    assert tls_server.connections == 1


def test_nothing_is_wanted(
    pool: EasyHandlePool, server: RecordingServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """U14: without callbacks head and body are dropped, not printed."""
    with pool.lease(server.url()) as easy:
        assert exchange(easy).body_bytes == 4
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["on_head", "on_body", "on_beat"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_a_callback_raises(
    pool: EasyHandlePool, server: RecordingServer, name: str, error: type[BaseException]
) -> None:
    """U15: what a callback raises leaves the exchange unchanged, and costs the handle."""
    raised = error("mine")

    def callback(*_args: object) -> None:
        raise raised

    with pool.lease(server.url()) as easy, pytest.raises(error) as caught:
        exchange(easy, **{name: callback})
    assert caught.value is raised
    assert pool.stats().destroyed_for["discarded"] == 1


def test_what_on_beat_returns_does_not_matter(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U15: a beat that returns something true doesn't end the transfer."""
    beats: list[int] = []
    with pool.lease(server.url()) as easy:
        assert exchange(easy, on_beat=lambda: beats.append(1) or True).status == 200
    assert beats


def raw_server() -> tuple[socket.socket, str]:
    """A listening socket, and a URL to reach it."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}/?sig={SECRET}"


def failure(pool: EasyHandlePool, url: str, **options: Any) -> TransferError:
    """What an exchange fails with."""
    with pool.lease(url) as easy, pytest.raises(TransferError) as caught:
        exchange(easy, **options)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert pool.stats().destroyed_for["discarded"] == 1
    return caught.value


def test_nobody_listens(pool: EasyHandlePool) -> None:
    """U13: where no connection comes about, the kind is "connect"."""
    error = failure(pool, f"http://127.0.0.1:1/?{SECRET}")
    assert (error.kind, error.facts.status, error.facts.head_bytes) == ("connect", 0, 0)
    assert "7" in str(error)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_no_descriptors(pool: EasyHandlePool, server: RecordingServer, left: int) -> None:
    """U13: where the process has no file descriptor left for a connection, the error says so, and is of kind "connect"."""
    with (
        pool.lease(Origin.of(server.url())) as easy,
        descriptors_left(left) as limit,
        pytest.raises(TransferError) as caught,
    ):
        exchange(easy, server.url())
    assert caught.value.kind == "connect"
    assert f"too many open files: this process may have {limit} (ulimit -n)" in str(caught.value)


def test_descriptors_enough(pool: EasyHandlePool) -> None:
    """U13: as long as there are some, nothing is said of them."""
    with descriptors_left(20):
        assert "files" not in str(failure(pool, f"http://127.0.0.1:1/?{SECRET}"))


def test_no_such_name(pool: EasyHandlePool) -> None:
    """U13: a name that doesn't resolve is of kind "connect"."""
    origin = Origin.of("http://nobody.test/", resolve=["-nobody.test:80"], proxy="")
    with pool.lease(origin) as easy, pytest.raises(TransferError) as caught:
        exchange(easy, "http://nobody.test/", timeout=20)
    assert caught.value.kind in {"connect", "timeout"}  # a machine whose resolver doesn't answer


def test_an_unknown_certificate(pool: EasyHandlePool, tls_server: RecordingServer) -> None:
    """U13: a certificate that nobody knows is of kind "connect"."""
    assert failure(pool, tls_server.url(f"/?{SECRET}")).kind == "connect"


def test_a_timeout(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: the exchange's own timeout is of kind "timeout", also in the middle of the body."""
    server.default = Answer(length=100)
    error = failure(pool, server.url(f"/?{SECRET}"), timeout=0.05)
    assert (error.kind, error.facts.status, error.facts.body_bytes) == ("timeout", 200, 4)


def test_no_time_at_all(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: a timeout of next to nothing, or a deadline that has passed, is a millisecond, not libcurl's "for ever"."""
    gate = Gate()
    server.default = Answer(after_head=gate)
    try:
        assert failure(pool, server.url(), timeout=-1).kind == "timeout"
    finally:
        gate.open()


def test_too_slow(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U13: a transfer slower than the limit for so long is of kind "timeout"."""
    server.default = Answer(length=100)
    assert failure(pool, server.url(), low_speed=(1000, 1)).kind == "timeout"


def test_a_short_body(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U08: a body that ends early is of kind "broken"."""
    server.default = Answer(length=100, close=True)
    error = failure(pool, server.url(f"/?{SECRET}"))
    assert (error.kind, error.facts.status, error.facts.body_bytes) == ("broken", 200, 4)


def speak(listener: socket.socket, answer: bytes) -> Callable[[], None]:
    """A thread's work: answer one request with raw bytes, and close."""

    def work() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the client may hang up in the middle
            connection.recv(65536)
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    return work


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "connect"),
        (b"hello, I am no HTTP server\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnochunk\r\n", "broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000 + b"\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", "malformed"),
    ],
    ids=["nothing", "no http", "bad chunk", "bad length", "long line", "many lines"],
)
def test_what_servers_say(pool: EasyHandlePool, answer: bytes, kind: str) -> None:
    """U13: what isn't HTTP, or too much of it before the body, is told by its kind."""
    from tests.helpers.threads import Threads

    listener, url = raw_server()
    with listener, Threads() as threads:
        talk = threads.start(speak(listener, answer))
        assert failure(pool, url).kind == kind
        pool.close()
        talk.wait()


def test_misuse_is_not_dressed_up(pool: EasyHandlePool, server: RecordingServer) -> None:
    """U12: a handle that is closed is pycurl's own error, not a transfer's."""
    from respool.curl._exchange import CurlError

    with pool.lease(server.url()) as easy:
        easy.close()
        with pytest.raises(CurlError, match="no curl handle"):
            exchange(easy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", f"{SECRET}\r\nY: z"),
        ("X", f"{SECRET}\n"),
        ("X", f"{SECRET}\0"),
        ("X:", SECRET),
        ("", SECRET),
        ("Ü", SECRET),
        ("X", f"{SECRET}€"),
    ],
)
def test_bad_headers(pool: EasyHandlePool, server: RecordingServer, name: str, value: str) -> None:
    """U06: a header that can't be sent is a ValueError that shows its name only; nothing is sent."""
    with pool.lease(server.url()) as easy, pytest.raises(ValueError, match="header") as caught:
        exchange(easy, headers=[(name, value)])
    assert SECRET not in str(caught.value)
    assert server.requests == []
