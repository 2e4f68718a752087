"""Transfers that end badly: cut bodies, no answers, and answers that take too long."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from respool.io import ConnectError, HTTPStatusError, RangeIntegrityError, ReadTimeoutError, RemoteIOError
from tests.helpers import lies
from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT, HangUp, honest
from tests.helpers.threads import let_pass, wait_until
from tests.io.conftest import Guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer, Script


@pytest.mark.parametrize("count", [0, 1, 4999])
@pytest.mark.parametrize("lie", [lies.cut_after, lies.cut_chunked, lies.cut_unframed])
def test_cut_body(
    serve: Callable[..., RangeServer], session: Session, lie: Callable[[int], Script], count: int
) -> None:
    """R14, R15: a body that ends too early is an error that tells what came, however its end was to be told."""
    server, target = serve(lie(count)), Guarded(5000)
    with session.open(server.url) as file:
        with pytest.raises(RangeIntegrityError) as caught:
            file.read_into(target.view, offset=1000)
        assert (caught.value.offset, caught.value.size, caught.value.got) == (1000, 5000, count)
        assert f"asked for 5000 bytes at offset 1000, got {count}" in str(caught.value)
        assert target.held[:count] == CONTENT[1000 : 1000 + count]
        server.get = honest
        assert file.read_into(target.view, offset=1000) == 5000
        assert target.held == CONTENT[1000:6000]


def test_cut_chunks_behind_the_last_byte(serve: Callable[..., RangeServer], session: Session) -> None:
    """R15: when every byte of the range has come, a connection cut before the last chunk is no error."""
    with session.open(serve(lies.cut_chunked(5000)).url) as file:
        assert file.read(offset=1000, size=5000) == CONTENT[1000:6000]


def test_no_end_behind_the_last_byte(serve: Callable[..., RangeServer], session: Session) -> None:
    """R15: a server that never ends its chunks isn't waited for, once every byte of the range has come."""
    gate = Gate()

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(CONTENT)}",
            "Transfer-Encoding: chunked",
        )
        exchange.send(*lies.chunks(exchange.part()))
        gate.stop()

    server = serve(lie)
    with session.open(server.url) as file:
        assert file.read(offset=1000, size=5000) == CONTENT[1000:6000]
    gate.open()


@pytest.mark.parametrize("when", ["before the head", "in the head"])
def test_no_answer(serve: Callable[..., RangeServer], session: Session, when: str) -> None:
    """R14: a connection that's closed before the head is complete is a ConnectError or RangeIntegrityError."""

    def lie(exchange: Exchange) -> None:
        if when == "in the head":
            exchange.send(b"HTTP/1.1 206 Partial Content\r\nContent-Le")
        raise HangUp

    server, target = serve(lie), Guarded(50)
    with session.open(server.url) as file:
        with pytest.raises(RemoteIOError) as caught:
            file.read_into(target.view)
        assert isinstance(caught.value, ConnectError | RangeIntegrityError)
        assert target.untouched


def test_nobody_listens(session: Session) -> None:
    """R14: a refused connection is a ConnectError from open, or from the read where the size was given."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://user:pa55word@127.0.0.1:{port}/object?sig=5ecret"
    with pytest.raises(ConnectError) as caught:
        session.open(url)
    assert "pa55word" not in str(caught.value)
    assert "5ecret" not in str(caught.value)
    with session.open(url, size=10) as file, pytest.raises(ConnectError) as caught:
        file.read()
    assert (caught.value.offset, caught.value.size) == (0, 10)
    assert isinstance(caught.value, ConnectionError)


def test_name_that_does_not_exist(session: Session) -> None:
    """R14: a host that has no address is a ConnectError."""
    with pytest.raises(ConnectError):
        session.open("http://does-not-exist.invalid/object")


@pytest.mark.parametrize(
    "status", ["404 Not Found", "401 Unauthorized", "403 Forbidden", "500 Oops", "503 Busy", "418 Teapot"]
)
def test_status_of_a_read(serve: Callable[..., RangeServer], session: Session, status: str) -> None:
    """R31: an error status is an HTTPStatusError, and its short body leaves the connection fit for use."""
    server, target = serve(lies.first_then(lies.status(status, body=b"<secret>"))), Guarded(50)
    with session.open(server.url) as file:
        with pytest.raises(HTTPStatusError, match=status[:3]) as caught:
            file.read_into(target.view, offset=7)
        assert caught.value.status == int(status[:3])
        assert "<secret>" not in str(caught.value)
        assert target.untouched
        assert file.read_into(target.view, offset=7) == 50
    assert server.connections == 1


def test_long_body_of_an_error(serve: Callable[..., RangeServer], session: Session) -> None:
    """R31: a long body of an error isn't read to its end."""
    server = serve(lies.endless_body("404 Not Found", f"Content-Length: {10 << 30}"))
    with session.open(server.url) as file, pytest.raises(FileNotFoundError):
        file.read(size=10)
    server.wait_closed()
    assert server.sent < 64 << 20


def test_first_error_ends_the_read(serve: Callable[..., RangeServer], session: Session) -> None:
    """R14: the first task that fails stops the others, and its error is the read's."""
    gate = Gate()

    def lie(exchange: Exchange) -> None:
        if exchange.wanted[0] == 0:
            exchange.head(
                "206 Partial Content", f"Content-Range: bytes 0-63999/{len(CONTENT)}", "Content-Length: 64000"
            )
            gate.stop()
        elif exchange.wanted[0] == 64_000:
            gate.wait_arrived()
            exchange.head("500 Oops", "Content-Length: 0")
        else:
            honest(exchange)

    server = serve(lie)
    with session.open(server.url) as file, pytest.raises(HTTPStatusError) as caught:
        file.read()
    assert caught.value.offset == 64_000
    gate.open()


def stalled(where: str, gate: Gate) -> Script:
    """Stand still before the head, or in mid-body."""

    def script(exchange: Exchange) -> None:
        if where == "head":
            gate.stop()
        first, last = exchange.wanted
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(CONTENT)}",
            f"Content-Length: {last - first + 1}",
        )
        exchange.send(exchange.part()[:10])
        if where == "body":
            gate.stop()

    return script


@pytest.mark.parametrize("where", ["head", "body"])
def test_timeout_under_way(serve: Callable[..., RangeServer], session: Session, where: str) -> None:
    """R32: an answer that stalls ends in ReadTimeoutError, and nothing is written after that."""
    gate = Gate()
    server, target = serve(stalled(where, gate)), Guarded(50)
    with session.open(server.url) as file:
        began = time.monotonic()
        with pytest.raises(ReadTimeoutError) as caught:
            file.read_into(target.view, timeout=0.2)
        assert time.monotonic() >= began + 0.2
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.offset, caught.value.size) == (0, 50)
        held = target.held
        gate.open()
        server.wait_closed()
        assert target.held == held


def test_session_timeout(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R32: the session's timeout holds for open and for reads that don't say one; a call's own goes before it."""
    gate = Gate()
    session = make_session(timeout=0.2)
    server = serve(stalled("head", gate), lambda exchange: gate.stop())
    with pytest.raises(ReadTimeoutError, match="opening"):
        session.open(server.url)
    with session.open(server.url, size=len(CONTENT)) as file:
        for read in (
            lambda: file.read(size=5),
            lambda: file.read_into(bytearray(5)),
            lambda: file.read_many([(0, 5)]),
        ):
            with pytest.raises(ReadTimeoutError, match=r"0\.2 s"):
                read()
        gate.open()
        assert file.read_into(bytearray(5), timeout=float("inf")) == 5


def test_waiting_for_a_worker_counts(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R32, R41: a read that never gets a worker ends at its deadline, from a future that nobody waits for, too."""
    gate = Gate()
    session = make_session(concurrency=1)
    server = serve(stalled("body", gate))
    with session.open(server.url, size=len(CONTENT)) as file:
        holder = file.pread(bytearray(50))
        gate.wait_arrived()
        target = Guarded(50)
        with pytest.raises(ReadTimeoutError):
            file.read_into(target.view, timeout=0.05)
        queued = file.pread(target.view, timeout=0.05)
        wait_until(queued.done, "the deadline of a queued read")
        assert isinstance(queued.exception(), ReadTimeoutError)
        assert target.untouched
        assert len(server.gets()) == 1
        assert not holder.done()
        holder.cancel()
        gate.open()


def test_no_time_at_all(serve: Callable[..., RangeServer], session: Session) -> None:
    """R32: a timeout of 0 is always too short for a request, and sends none."""
    server, target = serve(), Guarded(50)
    with session.open(server.url) as file:
        with pytest.raises(ReadTimeoutError):
            file.read_into(target.view, timeout=0)
        assert file.read_into(target.view, timeout=0, size=0) == 0
    assert target.untouched
    assert not server.gets()


def test_a_connection_that_went_stale(serve: Callable[..., RangeServer], session: Session) -> None:
    """R33: a kept connection that the server has closed meanwhile isn't noticed by the reader."""

    def once(exchange: Exchange) -> None:
        honest(exchange)
        raise HangUp

    server = serve(once)
    with session.open(server.url) as file:
        for _ in range(3):
            assert file.read(offset=9, size=50) == CONTENT[9:59]
            wait_until(lambda: server.open_connections == 0, "the server's hanging up")
    assert server.connections == 3


def test_junk_on_an_idle_connection(serve: Callable[..., RangeServer], session: Session) -> None:
    """R13, R33: junk that comes when nothing was asked for spoils the connection, and not the next read."""
    gate, sent = Gate(), Gate()

    def lie(exchange: Exchange) -> None:
        honest(exchange)
        gate.stop()
        exchange.send(b"junk\r\n\r\n")
        sent.stop()

    server = serve(lies.first_then(lie))
    with session.open(server.url) as file:
        assert file.read(offset=9, size=50) == CONTENT[9:59]
        gate.open()
        sent.wait_arrived()
        # It's sent; the other side's kernel has it any moment, on loopback.
        let_pass(time.monotonic() + 0.05)
        assert file.read(offset=10, size=50) == CONTENT[10:60]
        sent.open()
    assert server.connections == 2


def test_object_that_changes(serve: Callable[..., RangeServer], session: Session) -> None:
    """R22: another ETag, in the answer or by 412, is an error that says so, and nothing is written."""
    server, target = serve(lies.changed), Guarded(50)
    with session.open(server.url) as file:
        with pytest.raises(RemoteIOError, match='its ETag was "v1" and is "v2"'):
            file.read_into(target.view)
        assert server.gets()[0].one("if-match") == '"v1"'
        server.get, server.etag = honest, '"v2"'
        with pytest.raises(RemoteIOError, match="no longer the one"):
            file.read_into(target.view)
        assert target.untouched


def test_first_answer_is_pinned(serve: Callable[..., RangeServer], session: Session) -> None:
    """R22: without a HEAD the first answer's ETag is held against all later ones."""
    server = serve()
    with session.open(server.url, size=len(CONTENT)) as file:
        assert file.read(size=5) == CONTENT[:5]
        server.get = lies.changed
        with pytest.raises(RemoteIOError, match="object changed"):
            file.read(size=5)
    assert [asked.one("if-match") for asked in server.gets()] == [None, '"v1"']


def test_version_that_changes_within_a_read(serve: Callable[..., RangeServer], session: Session) -> None:
    """R22: two tasks of one read never come from two versions, also when nothing was known before."""

    def lie(exchange: Exchange) -> None:
        (honest if exchange.wanted[0] == 0 else lies.changed)(exchange)

    with (
        session.open(serve(lie).url, size=len(CONTENT)) as file,
        pytest.raises(RemoteIOError, match="object changed"),
    ):
        file.read()


def test_date_that_changes(serve: Callable[..., RangeServer], session: Session) -> None:
    """R23: without an ETag the modification date is held against later answers."""
    old, new = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"

    def dated(date: str) -> Script:
        return lambda exchange: exchange.partial(f"Last-Modified: {date}")

    server = serve(dated(old), lies.head_of(f"Content-Length: {len(CONTENT)}", f"Last-Modified: {old}"))
    with session.open(server.url) as file:
        assert file.read(size=5) == CONTENT[:5]
        server.get = dated(new)
        with pytest.raises(RemoteIOError, match="Last-Modified"):
            file.read(size=5)
        server.get = lambda exchange: exchange.partial()
        with pytest.raises(RemoteIOError, match="none of what it was opened with"):
            file.read(size=5)
