"""What a range answer must be: every lie is told before a byte lands, and every honest form is read right."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from respool.io import HTTPStatusError, ObjectChangedError, RangeIntegrityError
from tests.helpers import lies
from tests.helpers.range_server import CONTENT
from tests.io.conftest import Guarded, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer, Script

TOTAL = len(CONTENT)


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
    assert "accepts; each block then downloads the object from its beginning" in str(error)
    assert "RESPOOL_ALLOW_FULL_RESPONSE=true" in str(error)


@pytest.mark.parametrize("dated", [False, True])
def test_whole_object_where_all_of_it_is_wanted(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], *, dated: bool
) -> None:
    """R02: a 200 is the answer where the whole object was asked for, and its version and size are those it was opened with."""
    field = "Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT" if dated else f'ETag: "{"0" * 32}"'
    fields = (f"Content-Length: {TOTAL}", field)
    server = serve(lies.status("200 OK", field, body=CONTENT), lies.head_of(*fields))
    with make_session(task_size=TOTAL).open(server.url) as file:
        assert file.read() == CONTENT
        assert file.read(offset=0, size=TOTAL + 5) == CONTENT
        # The connection is as good as after a 206.
        assert server.connections == 1
        with pytest.raises(RangeIntegrityError, match="status 200"):
            file.read(size=TOTAL - 1)
        with pytest.raises(RangeIntegrityError, match="status 200"):
            file.read(offset=1)


@pytest.mark.parametrize(
    ("opened", "came"),
    [
        ((), ()),
        ((), ('ETag: "a"',)),
        (('ETag: "a"',), ()),
        (('ETag: "a"',), ('ETag: "b"',)),
        (('ETag: "a"', "Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT"), ('ETag: "b"',)),
        (
            ("Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT",),
            ("Last-Modified: Tue, 01 Dec 2026 10:00:01 GMT",),
        ),
        (("Last-Modified: Tue, 01 Dec 2026 10:00:00 GMT",), ('ETag: "a"',)),
    ],
)
def test_page_as_long_as_the_object(
    serve: Callable[..., RangeServer],
    make_session: Callable[..., Session],
    opened: tuple[str, ...],
    came: tuple[str, ...],
) -> None:
    """R03: a 200 with the very length of the object is an error unless an ETag or a date says that it's this object."""
    page = b"<html>log in".ljust(TOTAL, b".")
    server = serve(lies.status("200 OK", *came, body=page), lies.head_of(f"Content-Length: {TOTAL}", *opened))
    target = Guarded(TOTAL)
    with (
        make_session(task_size=TOTAL).open(server.url) as file,
        pytest.raises(RangeIntegrityError, match="status 200"),
    ):
        file.read_into(target.view)
    assert target.untouched


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


def test_server_that_turns_out_to_have_no_ranges(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R02: a server that sent the whole object once is asked once for each further read."""
    session = make_session(task_size=1000, concurrency=1, allow_full_response=True)
    server = serve(lies.ignores_range)
    with session.open(server.url) as file:
        assert file.read(size=10) == CONTENT[:10]
        assert file.read(offset=5, size=50_000) == CONTENT[5:50_005]
    assert len(server.gets()) == 2


def test_whole_object_that_says_it_is_a_part(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R02: a 200 with a Content-Range holds who knows what, and is an error where whole objects are allowed, too."""

    def lie(exchange: Exchange) -> None:
        first, last = exchange.wanted
        exchange.head("200 OK", f"Content-Range: bytes {first}-{last}/{TOTAL}", "Transfer-Encoding: chunked")
        exchange.send(*lies.chunks(exchange.part()), b"0\r\n\r\n")

    error = refuse(serve, make_session(allow_full_response=True), lie, offset=0)
    assert isinstance(error, RangeIntegrityError)


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


@pytest.mark.parametrize("size", [10, 300_000])
def test_forged_second_answer(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], size: int
) -> None:
    """R13: an answer that came before it was asked for is never taken for the next one.

    Behind a large body libcurl leaves it in the socket, behind a small one it notices.
    """
    session = make_session(task_size="1MiB")
    forged = (
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 500-599/%d\r\nContent-Length: 100\r\n\r\n"
        % TOTAL
    )
    server = serve(lies.first_then(lies.excess(forged + b"!" * 100)))
    with session.open(server.url) as file:
        assert file.read(offset=0, size=size) == CONTENT[:size]
        assert file.read(offset=500, size=100) == CONTENT[500:600]
    first, second = server.gets()
    assert first.connection != second.connection
