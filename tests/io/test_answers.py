"""What a range answer must be: every lie is told before a byte lands, and every honest form is read right."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from respool.io import HTTPStatusError, ObjectChangedError, RangeIntegrityError, RemoteIOError
from tests.helpers import lies
from tests.helpers.range_server import CONTENT, HangUp, honest
from tests.io.conftest import Guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer, Script

TOTAL = len(CONTENT)


def refuse(
    serve: Callable[..., RangeServer],
    session: Session,
    lie: Script,
    *,
    offset: int = 1000,
    size: int = 5000,
    known: bool = True,
) -> RemoteIOError:
    """Read through a lie: the error, once it's clear that nothing was written and that honesty is read after it."""
    server = serve(lie)
    target = Guarded(size)
    # With a size given, the first answer of all is the lie: nothing was pinned before.
    with session.open(server.url, size=None if known else TOTAL) as file:
        with pytest.raises(RemoteIOError) as caught:
            file.read_into(target.view, offset=offset, size=size)
        assert target.untouched
        assert (caught.value.url, caught.value.offset, caught.value.size) == (server.url, offset, size)
        server.get = honest
        assert file.read_into(target.view, offset=offset, size=size) == size
        assert target.held == CONTENT[offset : offset + size]
    return caught.value


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 1), (0, TOTAL), (1, 63_999), (63_999, 2), (64_000, 64_000), (TOTAL - 1, 1), (7, 200_001)],
)
def test_exact_range(serve: Callable[..., RangeServer], session: Session, offset: int, size: int) -> None:
    """R01: a 206 with exactly the range asked for is read, and the count is the size."""
    server, target = serve(), Guarded(size)
    with session.open(server.url) as file:
        assert file.read_into(target.view, offset=offset, size=size) == size
    assert target.held == CONTENT[offset : offset + size]
    ranges = sorted(asked.range or (0, 0) for asked in server.gets())
    assert ranges[0][0] == offset
    assert ranges[-1][1] == offset + size - 1
    assert all(end + 1 == begin for (_, end), (begin, _) in itertools.pairwise(ranges))


@pytest.mark.parametrize("lie", [lies.ignores_range, lies.ignores_range_chunked])
@pytest.mark.parametrize("offset", [0, 1000])
def test_whole_object_instead_of_range(
    serve: Callable[..., RangeServer], session: Session, lie: Script, offset: int
) -> None:
    """R02: a 200 to a range is an error before any byte lands, and is never read from byte 0."""
    error = refuse(serve, session, lie, offset=offset)
    assert isinstance(error, RangeIntegrityError)
    assert "status 200" in str(error)


@pytest.mark.parametrize("lie", [lies.ignores_range, lies.ignores_range_chunked])
@pytest.mark.parametrize(
    ("offset", "size"), [(0, TOTAL), (0, 10), (1000, 5000), (TOTAL - 3, 3), (100_000, 200_000)]
)
def test_slice_of_whole_object(
    serve: Callable[..., RangeServer],
    make_session: Callable[..., Session],
    lie: Script,
    offset: int,
    size: int,
) -> None:
    """R02: with allow_full_response the right slice is taken out of a 200, by skipping."""
    session = make_session(task_size=64_000, allow_full_response=True)
    server, target = serve(lie), Guarded(size)
    with session.open(server.url) as file:
        assert file.read_into(target.view, offset=offset, size=size) == size
    assert target.held == CONTENT[offset : offset + size]


def test_server_without_ranges_is_asked_once(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R02: a server that says it has no ranges isn't asked for the whole object again and again."""
    session = make_session(task_size=1000, allow_full_response=True)
    server = serve(lies.ignores_range, lies.head_of(f"Content-Length: {TOTAL}", "Accept-Ranges: none"))
    with session.open(server.url) as file:
        assert file.read(offset=5, size=50_000) == CONTENT[5:50_005]
    assert len(server.gets()) == 1


@pytest.mark.parametrize("allow", [False, True])
def test_login_page(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], *, allow: bool
) -> None:
    """R03: a 200 whose length happens to be the size asked for is an error, also where whole objects are allowed."""
    error = refuse(serve, make_session(allow_full_response=allow), lies.login_page)
    assert isinstance(error, ObjectChangedError if allow else RangeIntegrityError)


@pytest.mark.parametrize(
    "lie",
    [
        lies.shifted(1),
        lies.shifted(-1000),
        lies.shifted(70_000),
        lies.wider(1, 0),
        lies.wider(0, 1),
        lies.wider(500, 500),
    ],
    ids=["one on", "to the beginning", "elsewhere", "one before", "one behind", "around"],
)
def test_shifted_or_wider_range(serve: Callable[..., RangeServer], session: Session, lie: Script) -> None:
    """R04: a 206 that begins elsewhere or covers more is an error, never shifted bytes."""
    assert isinstance(refuse(serve, session, lie), RangeIntegrityError)


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["bytes */{total}"],
        ["items {first}-{last}/{total}"],
        ["{first}-{last}/{total}"],
        ["bytes {first}-{last}"],
        ["bytes={first}-{last}/{total}"],
        ["bytes {last}-{first}/{total}"],
        ["bytes {first}-{last}/{first}"],
        ["bytes -{last}/{total}"],
        ["bytes +{first}-{last}/{total}"],
        ["bytes {first}.0-{last}/{total}"],
        ["bytes {first}-{last}/{total}, {first}-{last}/{total}"],
        ["bytes {first}-{last}/{total}", "bytes 0-1/{total}"],
        [""],
    ],
)
def test_bad_content_range(serve: Callable[..., RangeServer], session: Session, values: list[str]) -> None:
    """R05: a 206 without one valid Content-Range in bytes is an error."""
    assert isinstance(refuse(serve, session, lies.content_range(*values)), RangeIntegrityError)


@pytest.mark.parametrize("spelling", ["bytes   {first}-{last}/{total}", "Bytes {first}-{last}/{total}"])
def test_content_range_spellings(serve: Callable[..., RangeServer], session: Session, spelling: str) -> None:
    """R05: what RFC 9110 allows in a Content-Range (blanks, case of the unit) is understood."""
    with session.open(serve(lies.content_range(spelling)).url) as file:
        assert file.read(offset=9, size=100) == CONTENT[9:109]


def test_clean_prefix(serve: Callable[..., RangeServer], session: Session) -> None:
    """R06: a 206 that ends before the range does, and not at the object's end, is never a short success."""
    assert isinstance(refuse(serve, session, lies.shorter(1)), RangeIntegrityError)


@pytest.mark.parametrize("known", [True, False])
def test_range_past_the_end(serve: Callable[..., RangeServer], session: Session, *, known: bool) -> None:
    """R07: a range that reaches past the end gives the bytes up to the end, and their count."""
    # Without a size in the HEAD and in the answer to the probe, only the read's own answer tells it.
    silent = lies.head_of("Transfer-Encoding: chunked")
    first = lies.first_then(lies.content_range("bytes {first}-{last}/*"))
    server = serve() if known else serve(first, silent)
    target = Guarded(100)
    with session.open(server.url) as file:
        assert file.size == (TOTAL if known else None)
        assert file.read_into(target.view, offset=TOTAL - 40) == 40
        assert target.held[:40] == CONTENT[-40:]
        assert target.held[40:] == bytes([0x5A]) * 60
        assert file.size == TOTAL


def test_offset_at_and_beyond_the_end(serve: Callable[..., RangeServer], session: Session) -> None:
    """R08: offset = size gives 0 bytes without a request, beyond it is ValueError."""
    server, target = serve(), Guarded(10)
    with session.open(server.url) as file:
        assert file.read(offset=TOTAL) == b""
        assert file.read_into(target.view, offset=TOTAL) == 0
        assert file.pread(target.view, offset=TOTAL).result() == 0
        assert file.read_many([(TOTAL, 5), (TOTAL, 0)]) == [b"", b""]
        for read in (
            lambda: file.read(offset=TOTAL + 1),
            lambda: file.read_into(target.view, offset=TOTAL + 1),
            lambda: file.pread(target.view, offset=TOTAL + 1),
            lambda: file.read_many([(0, 1), (TOTAL + 1, 0)]),
        ):
            with pytest.raises(ValueError, match=f"offset {TOTAL + 1} .*{TOTAL} bytes"):
                read()
    assert not server.gets()
    assert target.untouched


def test_offset_beyond_an_unknown_end(serve: Callable[..., RangeServer], session: Session) -> None:
    """R08: where the size isn't known, a 416 is an HTTPStatusError, and 0 bytes only where it names this very end."""
    silent = lies.head_of("Transfer-Encoding: chunked")
    server = serve(lies.first_then(lies.content_range("bytes {first}-{last}/*")), silent)
    with session.open(server.url) as file:
        assert file.size is None
        with pytest.raises(HTTPStatusError, match="416") as caught:
            file.read(offset=TOTAL + 1, size=5)
        assert caught.value.status == 416
        assert file.read(offset=TOTAL, size=5) == b""


@pytest.mark.parametrize("lines", [(), (f"Content-Range: bytes */{TOTAL}",)])
def test_not_satisfiable_inside(
    serve: Callable[..., RangeServer], session: Session, lines: tuple[str, ...]
) -> None:
    """R09: a 416 to a range inside the known size is an error that says so, never b""."""
    error = refuse(serve, session, lies.not_satisfiable(*lines))
    assert isinstance(error, RangeIntegrityError)
    assert "size changed, or the server is wrong" in str(error)


def test_not_satisfiable_with_another_size(serve: Callable[..., RangeServer], session: Session) -> None:
    """R10: a 416 that names another size is an error with both sizes."""
    error = refuse(serve, session, lies.not_satisfiable("Content-Range: bytes */777"))
    assert isinstance(error, ObjectChangedError)
    assert f"{TOTAL} bytes" in str(error)
    assert "777" in str(error)


@pytest.mark.parametrize("known", [True, False])
def test_another_total(serve: Callable[..., RangeServer], session: Session, *, known: bool) -> None:
    """R11: a total other than the file's size, told by the server or by the caller, is "object changed"."""
    error = refuse(serve, session, lies.content_range("bytes {first}-{last}/999999"), known=known)
    assert isinstance(error, ObjectChangedError)
    assert f"{TOTAL} bytes" in str(error)
    assert "999999" in str(error)


def test_total_not_told(serve: Callable[..., RangeServer], session: Session) -> None:
    """R12: with the total *, bytes are taken if start and end match; the size stays what the HEAD said, or unknown."""
    star = lies.content_range("bytes {first}-{last}/*")
    with session.open(serve(star).url) as file:
        assert file.read() == CONTENT
        assert file.size == TOTAL
    with session.open(serve(star, lies.head_of("Transfer-Encoding: chunked")).url) as file:
        assert file.read(offset=10, size=150_000) == CONTENT[10:150_010]
        assert file.size is None
        # Here the answer is shorter, and nobody says that the object ends there.
        with pytest.raises(RangeIntegrityError, match="doesn't reach the object's end"):
            file.read(offset=TOTAL - 5, size=6)


def test_longer_by_content_length(serve: Callable[..., RangeServer], session: Session) -> None:
    """R13: a Content-Length that isn't the range's is an error, whichever is right."""
    assert isinstance(refuse(serve, session, lies.longer_by_length(1000)), RangeIntegrityError)


@pytest.mark.parametrize("more", [b"!", b"!" * 1000, b"!" * 1_000_000, b"HTTP/1.1 206 Partial Content\r\n"])
@pytest.mark.parametrize("lie", [lies.excess, lies.excess_unframed])
def test_excess_behind_the_body(
    serve: Callable[..., RangeServer], session: Session, lie: Callable[[bytes], Script], more: bytes
) -> None:
    """R13: excess behind a right body: success, guards untouched, the connection dropped, the next read right."""
    server, target = serve(lies.first_then(lie(more))), Guarded(5000)
    with session.open(server.url) as file:
        assert file.read_into(target.view, offset=1000) == 5000
        assert target.held == CONTENT[1000:6000]
        assert file.read_into(target.view, offset=2000) == 5000
        assert target.held == CONTENT[2000:7000]
    first, second = server.gets()
    assert first.connection != second.connection


def test_forged_second_answer(serve: Callable[..., RangeServer], session: Session) -> None:
    """R13: an answer that came before it was asked for is never taken for the next one."""
    forged = b"!" * 100
    answer = (
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 500-599/%d\r\nContent-Length: 100\r\n\r\n"
        % TOTAL
        + forged
    )
    server = serve(lies.first_then(lies.excess(answer)))
    with session.open(server.url) as file:
        assert file.read(offset=0, size=10) == CONTENT[:10]
        assert file.read(offset=500, size=100) == CONTENT[500:600]


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


def test_switch_of_protocols(serve: Callable[..., RangeServer], session: Session) -> None:
    """R20: a 101 that nobody asked for isn't an interim answer."""

    def lie(exchange: Exchange) -> None:
        exchange.head("101 Switching Protocols", "Upgrade: chat")
        exchange.send(exchange.part())
        raise HangUp

    assert isinstance(refuse(serve, session, lie), RemoteIOError)
