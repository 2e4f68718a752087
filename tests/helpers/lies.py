"""What range servers have been seen to send instead of the truth; each lie is a script for `RangeServer`.

A parameter that a lie needs is bound by a function around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .range_server import HangUp, honest

if TYPE_CHECKING:
    from .range_server import Exchange, Script


def ignores_range(exchange: Exchange) -> None:
    """Send 200 and the whole object."""
    exchange.head("200 OK", f"Content-Length: {len(exchange.content)}", f"ETag: {exchange.server.etag}")
    exchange.send(exchange.content)


def ignores_range_chunked(exchange: Exchange) -> None:
    """Send 200 and the whole object, its length not told."""
    exchange.head("200 OK", "Transfer-Encoding: chunked", f"ETag: {exchange.server.etag}")
    exchange.send(*chunks(exchange.content), b"0\r\n\r\n")


def login_page(exchange: Exchange) -> None:
    """Send 200 and a page that has just as many bytes as were asked for."""
    page = b"<html>log in".ljust(len(exchange.part()), b".")
    exchange.head("200 OK", f"Content-Length: {len(page)}")
    exchange.send(page)


def shifted(by: int) -> Script:
    """Send the right number of bytes from elsewhere, and say so."""

    def lie(exchange: Exchange) -> None:
        first, last = (place + by for place in exchange.wanted)
        body = exchange.content[first : last + 1]
        _claim(exchange, f"bytes {first}-{last}/{len(exchange.content)}", body)

    return lie


def wider(before: int, after: int) -> Script:
    """Send more than was asked for, and say so."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        first, last = first - before, last + after
        _claim(exchange, f"bytes {first}-{last}/{len(exchange.content)}", exchange.content[first : last + 1])

    return lie


def shorter(by: int) -> Script:
    """Send a clean beginning of what was asked for, and say so."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        _claim(exchange, f"bytes {first}-{last - by}/{len(exchange.content)}", exchange.part()[:-by])

    return lie


def content_range(*values: str) -> Script:
    """Send the right bytes under these Content-Ranges; {first}, {last} and {total} are the true ones."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        lines = [
            "Content-Range: " + value.format(first=first, last=last, total=len(exchange.content))
            for value in values
        ]
        exchange.head(
            "206 Partial Content",
            *lines,
            f"Content-Length: {last - first + 1}",
            f"ETag: {exchange.server.etag}",
        )
        exchange.send(exchange.part())

    return lie


def not_satisfiable(*lines: str) -> Script:
    """Send 416 to whatever is asked."""

    def lie(exchange: Exchange) -> None:
        exchange.head("416 Range Not Satisfiable", *lines, "Content-Length: 0")

    return lie


def status(line: str, *lines: str, body: bytes = b"") -> Script:
    """Send this status."""

    def lie(exchange: Exchange) -> None:
        exchange.head(line, *lines, f"Content-Length: {len(body)}")
        if exchange.asked.method != "HEAD":
            exchange.send(body)

    return lie


def with_fields(*lines: str) -> Script:
    """Tell the truth, with these fields added."""

    def lie(exchange: Exchange) -> None:
        exchange.partial(f"ETag: {exchange.server.etag}", *lines)

    return lie


def longer_by_length(more: int) -> Script:
    """Send the right Content-Range, but a longer body and its Content-Length."""

    def lie(exchange: Exchange) -> None:
        exchange.partial(body=exchange.part() + b"!" * more)

    return lie


def excess(more: bytes) -> Script:
    """Send the right answer, and bytes behind it that nobody asked for."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        part = exchange.part()
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(exchange.content)}",
            f"Content-Length: {len(part)}",
        )
        exchange.send(part + more)

    return lie


def excess_unframed(more: bytes) -> Script:
    """Send the right range without a length, more bytes, and close."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(exchange.content)}",
            "Connection: close",
        )
        exchange.send(exchange.part() + more)
        raise HangUp

    return lie


def cut_after(count: int) -> Script:
    """Close the connection after so many bytes of the body."""

    def lie(exchange: Exchange) -> None:
        part = exchange.part()
        exchange.partial(body=part[:count], length=len(part))
        raise HangUp

    return lie


def cut_chunked(count: int) -> Script:
    """Close before the last chunk."""

    def lie(exchange: Exchange) -> None:
        _unsized(exchange, "1.1", "Transfer-Encoding: chunked")
        exchange.send(*chunks(exchange.part()[:count]))
        raise HangUp

    return lie


def cut_unframed(count: int) -> Script:
    """Close an HTTP/1.0 body, whose end is the close, too early."""

    def lie(exchange: Exchange) -> None:
        _unsized(exchange, "1.0")
        exchange.send(exchange.part()[:count])
        raise HangUp

    return lie


def unframed(exchange: Exchange) -> None:
    """Send the right bytes as HTTP/1.0 does: the close is the end."""
    _unsized(exchange, "1.0")
    exchange.send(exchange.part())
    raise HangUp


def chunked(exchange: Exchange) -> None:
    """Send the right bytes in chunks, a trailer behind them."""
    _unsized(exchange, "1.1", "Transfer-Encoding: chunked")
    exchange.send(*chunks(exchange.part()), b"0\r\nContent-Length: 3\r\n\r\n")


def raw_head(*lines: str) -> Script:
    """Send the right body under a head of these lines; {range} is the true Content-Range, {length} the length."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        true = {"range": f"bytes {first}-{last}/{len(exchange.content)}", "length": last - first + 1}
        exchange.send("\r\n".join([*(line.format(**true) for line in lines), "", ""]).encode("latin-1"))
        exchange.send(exchange.part())

    return lie


def byte_by_byte(exchange: Exchange) -> None:
    """Send an honest head in pieces of one byte."""
    first, last = exchange.wanted
    head = f"HTTP/1.1 206 P\r\nContent-Range: bytes {first}-{last}/{len(exchange.content)}\r\nContent-Length: {last - first + 1}\r\n\r\n"
    exchange.send(*(head[place : place + 1].encode() for place in range(len(head))))
    exchange.send(exchange.part())


def endless_head(line: bytes) -> Script:
    """Send header lines until the other side has had enough."""

    def lie(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 206 Partial Content\r\n")
        while True:
            exchange.send(line * 64)

    return lie


def endless_body(first_line: str, *lines: str) -> Script:
    """Send a body until the other side has had enough."""

    def lie(exchange: Exchange) -> None:
        exchange.head(first_line, *lines)
        block = bytes(1 << 16)
        while True:
            exchange.send(block)

    return lie


def first_then(first: Script, later: Script = honest) -> Script:
    """Answer the first GET in one way, and all others in another."""
    left = [first]

    def lie(exchange: Exchange) -> None:
        (left.pop() if left else later)(exchange)

    return lie


def changed(exchange: Exchange) -> None:
    """Send the right range of another version, whatever If-Match says."""
    exchange.partial('ETag: "v2"')


def head_of(*lines: str, status_line: str = "200 OK") -> Script:
    """Answer a HEAD with these fields."""

    def lie(exchange: Exchange) -> None:
        exchange.head(status_line, *lines)

    return lie


def chunks(data: bytes, size: int = 10_000) -> list[bytes]:
    """Return data as chunks of a chunked body, without the last one."""
    pieces = (data[place : place + size] for place in range(0, len(data), size))
    return [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]


def _claim(exchange: Exchange, value: str, body: bytes) -> None:
    exchange.head(
        "206 Partial Content",
        f"Content-Range: {value}",
        f"Content-Length: {len(body)}",
        f"ETag: {exchange.server.etag}",
    )
    exchange.send(body)


def _unsized(exchange: Exchange, version: str, *lines: str) -> None:
    first, last = exchange.wanted
    head = [
        f"HTTP/{version} 206 Partial Content",
        f"Content-Range: bytes {first}-{last}/{len(exchange.content)}",
        *lines,
    ]
    exchange.send("\r\n".join([*head, "", ""]).encode())
