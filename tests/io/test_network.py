"""The network as a session's settings want it: TLS, proxies, speed, and handles that are all out."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from respool.curl import Origin
from respool.io import ConnectError, ReadTimeoutError, RedirectError
from respool.io import _easy_transport as transport
from tests.helpers import lies
from tests.helpers.gates import Gate
from tests.helpers.http_servers import Certificate
from tests.helpers.range_server import CONTENT, HangUp
from tests.helpers.threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for loopback, its own authority."""
    return Certificate.make(tmp_path_factory.mktemp("certificate"))


def test_tls(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], certificate: Certificate
) -> None:
    """R35: https is read where the certificate is trusted, and is a ConnectError where it isn't."""
    server = serve(tls=certificate.server_context())
    with make_session(ca_bundle=certificate.cert).open(server.url) as file:
        assert file.name.startswith("https://")
        assert file.read() == CONTENT
    with pytest.raises(ConnectError, match="certificate"):
        make_session().open(server.url)


def test_redirect_from_https_to_http(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], certificate: Certificate
) -> None:
    """R36: https is led to http only where the session allows it, and the credential stays behind."""
    plain = serve()
    server = serve(tls=certificate.server_context())
    server.get = server.head = lies.status("302 Found", f"Location: {plain.url}")
    with pytest.raises(RedirectError, match="from https to http"):
        make_session(ca_bundle=certificate.cert).open(server.url)
    assert not plain.asked
    with make_session(ca_bundle=certificate.cert, allow_downgrade=True).open(
        server.url, auth="5ecret"
    ) as file:
        assert file.read(size=10) == CONTENT[:10]
    assert server.asked[-1].one("authorization") == "Bearer 5ecret"
    assert [asked.one("authorization") for asked in plain.asked] == [None, None]


def test_http_proxy(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R34: a session's proxy is asked for http URLs, whatever they name."""
    proxy = serve()
    session = make_session(proxy=proxy.origin.replace("//", "//user:pa55word@"))
    with session.open("http://does-not-exist.invalid/object") as file:
        assert file.read(size=10) == CONTENT[:10]
    assert {asked.target for asked in proxy.asked} == {"http://does-not-exist.invalid/object"}
    assert all(asked.one("proxy-authorization") for asked in proxy.asked)
    assert "pa55word" not in repr(session.config)


def test_no_proxy(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R34: proxy="" goes direct whatever the environment says, and None does what it says."""
    proxy, server = serve(), serve()
    monkeypatch.setenv("http_proxy", proxy.origin)
    with make_session(proxy="").open(server.url) as file:
        assert file.read(size=5) == CONTENT[:5]
    assert not proxy.asked
    with make_session().open(server.url) as file:
        assert file.read(size=5) == CONTENT[:5]
    assert proxy.asked


def tunnel(exchange: Exchange) -> None:
    """Do what a proxy does for CONNECT: pass bytes both ways."""
    host, _, port = exchange.asked.target.rpartition(":")
    with socket.create_connection((host, int(port))) as behind:
        exchange.send(b"HTTP/1.1 200 Connection established\r\nContent-Length: 5\r\nX-Proxy: yes\r\n\r\n")
        back = threading.Thread(target=pump, args=(behind, exchange.connection))
        back.start()
        pump(exchange.connection, behind)
        back.join(HANG_GUARD)
    raise HangUp


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until either side is closed."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for side in (source, sink):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


def test_https_through_a_proxy(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], certificate: Certificate
) -> None:
    """R20, R34: through a proxy's tunnel, the proxy's own answer isn't taken for the object's."""
    proxy, server = serve(tunnel), serve(tls=certificate.server_context())
    session = make_session(proxy=proxy.origin, ca_bundle=certificate.cert)
    with session.open(server.url, headers={"X-Key": "5ecret"}) as file:
        assert file.read(offset=5, size=50_000) == CONTENT[5:50_005]
    assert {asked.method for asked in proxy.asked} == {"CONNECT"}
    assert all(asked.one("x-key") is None for asked in proxy.asked)


def test_low_speed(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: a transfer that stays below the least speed is given up, without any timeout."""
    monkeypatch.setattr(transport, "_LOW_SPEED_SECONDS", 1)
    gate = Gate()

    def stall(exchange: Exchange) -> None:
        exchange.head(
            "206 Partial Content", f"Content-Range: bytes 0-99/{len(CONTENT)}", "Content-Length: 100"
        )
        exchange.send(CONTENT[:10])
        gate.stop()

    server = serve(stall)
    with make_session(low_speed="1MB").open(server.url) as file:
        with pytest.raises(ReadTimeoutError, match="too slow") as caught:
            file.read(size=100)
        assert caught.value.got == 10
    gate.open()


def test_all_handles_are_out(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R41: waiting for a handle counts against the timeout and ends in ReadTimeoutError; closing ends it, too."""
    session, server = make_session(per_origin=1), serve()
    with session.open(server.url) as file, ExitStack() as stack:
        handles = session._parts.handles
        assert handles is not None
        lease = handles.lease(Origin.of(server.url))
        stack.callback(lease.release)
        with pytest.raises(ReadTimeoutError):
            file.read_into(bytearray(5), timeout=0.05)
        waiting = file.pread(bytearray(5))
        stack.close()
        assert waiting.result() == 5


def test_handle_timeout_is_translated(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R41: where the handle's timeout is noticed first, it's a ReadTimeoutError as well."""
    session, server = make_session(per_origin=1), serve()
    with session.open(server.url), session.open(server.url, size=10) as file:
        handles = session._parts.handles
        carrier = session._parts.transport
        assert handles is not None
        assert isinstance(carrier, transport.EasyTransport)
        exchange = file._source.exchange  # type: ignore[attr-defined]
        from respool.io.plan import Task

        fetch = exchange(
            file._source.address,  # type: ignore[attr-defined]
            Task(0, 1, 0),
            "GET",
            fields=(),
            judge=lambda _: None,
            target=None,
            deadline=0.0,
        )
        with (
            handles.lease(Origin.of(server.url)),
            pytest.raises(ReadTimeoutError, match="no handle came free"),
        ):
            carrier._lease(fetch)
        session.close()
        with pytest.raises(ValueError, match="session is closed"):
            carrier._lease(fetch)


def test_keep_alive(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R01: reads one after the other use one connection, over files of one origin."""
    session = make_session(concurrency=1)
    server = serve()
    with session.open(server.url) as one, session.open(server.origin + "/other") as other:
        for place in range(5):
            assert one.read(offset=place, size=10) == CONTENT[place : place + 10]
            assert other.read(offset=place, size=10) == CONTENT[place : place + 10]
    assert server.connections == 1
