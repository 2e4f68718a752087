"""How an answer is framed: chunks, encodings, lengths and heads, true and false."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool.io import RangeIntegrityError, RemoteIOError
from tests.helpers import lies
from tests.helpers.range_server import CONTENT, HangUp
from tests.io.conftest import Guarded, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer

TOTAL = len(CONTENT)


def test_chunked_answer(serve: Callable[..., RangeServer], session: Session) -> None:
    """R16: a complete chunked 206 is read right, whatever its trailer says, and its connection is kept."""
    server = serve(lies.chunked)
    with session.open(server.url) as file:
        assert file.read(offset=1, size=60_000) == CONTENT[1:60_001]
        assert file.read(offset=2, size=10) == CONTENT[2:12]
    assert server.connections == 1


def test_closed_delimited_answer(serve: Callable[..., RangeServer], session: Session) -> None:
    """R15: a complete HTTP/1.0 body that the close delimits is read right."""
    with session.open(serve(lies.unframed).url) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize("also_ranged", [False, True])
def test_multipart(serve: Callable[..., RangeServer], session: Session, *, also_ranged: bool) -> None:
    """R17: a multipart answer to a single range is an error; boundary text is never data."""

    def lie(exchange: Exchange) -> None:
        lines = ["Content-Type: multipart/byteranges; boundary=cut"]
        if also_ranged:
            exchange.partial(*lines)
            return
        body = (
            b"--cut\r\nContent-Range: bytes 1000-5999/300000\r\n\r\n" + exchange.part() + b"\r\n--cut--\r\n"
        )
        exchange.head("206 Partial Content", *lines, f"Content-Length: {len(body)}")
        exchange.send(body)

    error = refuse(serve, session, lie)
    assert isinstance(error, RangeIntegrityError)
    assert "multipart" in str(error)


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP", "identity, gzip", "x-unknown"])
def test_encoded_body(serve: Callable[..., RangeServer], session: Session, encoding: str) -> None:
    """R18: an encoded body is an error, though identity was asked for."""
    error = refuse(serve, session, lies.with_fields(f"Content-Encoding: {encoding}"))
    assert isinstance(error, RangeIntegrityError)
    assert encoding in str(error)


def test_identity_is_asked_for(serve: Callable[..., RangeServer], session: Session) -> None:
    """R18: every request carries Accept-Encoding: identity, and an answer may say identity."""
    server = serve(lies.with_fields("Content-Encoding: identity"))
    with session.open(server.url) as file:
        assert file.read(size=10) == CONTENT[:10]
    assert [asked.one("accept-encoding") for asked in server.asked] == ["identity"] * 2


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: {length}", "Content-Length: 6000"],
        ["Content-Length: 6000", "Content-Length: {length}"],
        ["Content-Length: +{length}"],
        ["Content-Length: -{length}"],
        ["Content-Length: 5 000"],
        ["Content-Length: {length}, {length}"],
        ["Content-Length: 0x1388"],
        ["Content-Length: 18446744073709556616"],  # 2^64 + 5000
        ["Content-Length: 9223372036854775808"],  # 2^63
        ["Content-Length: " + "9" * 400],
        ["Content-Length : {length}"],
        ["Content-Length:"],
        ["Content-Length: {length}", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: {length}"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: identity"],
        ["junk without a colon", "Content-Length: {length}"],
    ],
)
def test_length_that_cannot_be_trusted(
    serve: Callable[..., RangeServer], session: Session, lines: list[str]
) -> None:
    """R19: lengths that differ, aren't plain numbers or come with a Transfer-Encoding are errors; the connection goes."""
    lie = lies.raw_head("HTTP/1.1 206 Partial Content", "Content-Range: {range}", *lines)
    server, target = serve(lies.first_then(lie)), Guarded(5000)
    with session.open(server.url) as file:
        with pytest.raises(RangeIntegrityError):
            file.read_into(target.view, offset=1000)
        assert target.untouched
        assert file.read_into(target.view, offset=1000) == 5000
        assert target.held == CONTENT[1000:6000]
    first, second = server.gets()
    assert first.connection != second.connection


@pytest.mark.parametrize(
    "lines",
    [
        ["HTTP/1.1 103 Early Hints", "Link: </a>", "", "HTTP/1.1 206 Partial Content"],
        ["HTTP/1.1 100 Continue", "", "HTTP/1.1 206 Partial Content"],
        [
            "HTTP/1.1 103 Early Hints",
            "Content-Length: 3",
            "",
            "HTTP/1.1 100 Continue",
            "",
            "HTTP/1.1 206 Partial Content",
        ],
        ["HTTP/1.1 206"],
        ["HTTP/1.1 206 "],
        ["HTTP/1.1 206 Ein Teil \xe4\xf6\xfc"],
    ],
)
def test_heads_before_the_answer(
    serve: Callable[..., RangeServer], session: Session, lines: list[str]
) -> None:
    """R20: interim answers, and any reason phrase, are passed over."""
    server = serve(lies.raw_head(*lines, "content-range: {range}", "content-length: {length}"))
    with session.open(server.url) as file:
        assert file.read() == CONTENT


def test_head_in_pieces_of_a_byte(serve: Callable[..., RangeServer], session: Session) -> None:
    """R20: a head that comes byte by byte is read like any other."""
    with session.open(serve(lies.byte_by_byte).url) as file:
        assert file.read(offset=3, size=1000) == CONTENT[3:1003]


@pytest.mark.parametrize(
    "line",
    [b"X-Filler: " + b"a" * 1000 + b"\r\n", b"a" * 1000, b"X: 1\r\n", b"\r\nHTTP/1.1 100 Continue\r\n"],
    ids=["lines", "one line", "short lines", "interim answers"],
)
def test_endless_head(serve: Callable[..., RangeServer], session: Session, line: bytes) -> None:
    """R21: a head without end is an error after a bounded number of bytes, and the connection is closed."""

    def interim_first(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 100 Continue\r\n")
        lies.endless_head(line)(exchange)

    server, target = serve(lies.endless_head(line) if line[0] != 13 else interim_first), Guarded(5000)
    with session.open(server.url) as file:
        before = server.sent
        with pytest.raises(RangeIntegrityError):
            file.read_into(target.view, offset=1000)
        assert target.untouched
    server.wait_closed()
    # What the system's own buffers hold on both sides comes on top of what was read.
    assert server.sent - before < 16 << 20


def test_head_of_medium_size(serve: Callable[..., RangeServer], session: Session) -> None:
    """R21: the limit is this library's own: 60 KiB of fields are read, 70 KiB are refused, however many lines and heads."""
    for filler, fits in (("X: " + "a" * 61_000, True), ("X: " + "a" * 71_000, False)):
        lines = ["HTTP/1.1 206 Partial Content", filler, "Content-Range: {range}", "Content-Length: {length}"]
        with session.open(serve(lies.raw_head(*lines)).url) as file:
            if fits:
                assert file.read(offset=5, size=10) == CONTENT[5:15]
                continue
            with pytest.raises(RangeIntegrityError, match="a head of more than 65536 bytes"):
                file.read(offset=5, size=10)
    many = ["HTTP/1.1 103 Early Hints", "X: " + "a" * 9_000, ""] * 8
    server = serve(
        lies.raw_head(*many, "HTTP/1.1 206 OK", "Content-Range: {range}", "Content-Length: {length}")
    )
    with session.open(server.url) as file, pytest.raises(RangeIntegrityError, match="more than 65536"):
        file.read(offset=5, size=10)


def test_endless_trailers(serve: Callable[..., RangeServer], session: Session) -> None:
    """R21: trailers without end are broken off; every byte of the range has come by then."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{TOTAL}",
            "Transfer-Encoding: chunked",
        )
        exchange.send(*lies.chunks(exchange.part()), b"0\r\n")
        while True:
            exchange.send(b"X-Trailer: 1\r\n" * 64)

    server = serve(lie)
    with session.open(server.url) as file:
        before = server.sent
        with pytest.raises(RangeIntegrityError):
            file.read(offset=5, size=1000)
    server.wait_closed()
    assert server.sent - before < 16 << 20


def test_switch_of_protocols(serve: Callable[..., RangeServer], session: Session) -> None:
    """R20: a 101 that nobody asked for isn't an interim answer."""

    def lie(exchange: Exchange) -> None:
        exchange.head("101 Switching Protocols", "Upgrade: chat")
        exchange.send(exchange.part())
        raise HangUp

    assert isinstance(refuse(serve, session, lie), RemoteIOError)
