"""`open`: what an address means, and what is asked of a server before the first read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import respool.io
from respool.io import (
    HTTPStatusError,
    LocalFile,
    ObjectChangedError,
    RangeIntegrityError,
    RemoteFile,
    Session,
)
from tests.helpers import lies
from tests.helpers.range_server import CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.range_server import RangeServer, Script

TOTAL = len(CONTENT)


def test_size_by_head(serve: Callable[..., RangeServer], session: Session) -> None:
    """R37: open asks once, by HEAD, and reads nothing."""
    server = serve()
    with session.open(server.url) as file:
        assert isinstance(file, RemoteFile)
        assert file.size == TOTAL
        assert repr(file) == f"<RemoteFile {server.url} size={TOTAL}>"
    assert repr(file) == f"<RemoteFile {server.url} size={TOTAL} closed>"
    assert [asked.method for asked in server.asked] == ["HEAD"]
    assert server.asked[0].one("range") is None


@pytest.mark.parametrize("status", ["403 Forbidden", "405 Method Not Allowed", "501 Not Implemented"])
def test_refused_head(serve: Callable[..., RangeServer], session: Session, status: str) -> None:
    """R37: where HEAD is refused, a GET of one byte tells the size."""
    server = serve(head=lies.status(status))
    with session.open(server.url) as file:
        assert file.size == TOTAL
        assert server.gets()[0].range == (0, 0)
        assert file.read(offset=TOTAL - 5) == CONTENT[-5:]


def test_head_without_a_length(serve: Callable[..., RangeServer], session: Session) -> None:
    """R37: where HEAD has no length, or that of an encoded body, a GET of one byte tells the size."""
    for head in (
        lies.head_of("Transfer-Encoding: chunked"),
        lies.head_of("Content-Length: 7", "Content-Encoding: gzip"),
    ):
        with session.open(serve(head=head).url) as file:
            assert file.size == TOTAL


def test_refused_altogether(serve: Callable[..., RangeServer], session: Session) -> None:
    """R37, R31: where GET is refused as well, that's the error."""
    server = serve(lies.status("403 Forbidden"), lies.status("405 Method Not Allowed"))
    with pytest.raises(PermissionError) as caught:
        session.open(server.url)
    assert isinstance(caught.value, HTTPStatusError)
    assert caught.value.status == 403


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("404 Not Found", FileNotFoundError),
        ("401 Unauthorized", PermissionError),
        ("410 Gone", OSError),
        ("503 Busy", OSError),
    ],
)
def test_status_of_open(
    serve: Callable[..., RangeServer], session: Session, status: str, kind: type[OSError]
) -> None:
    """R31: what the server says of the object shows in open, at once."""
    server = serve(lies.status(status), lies.status(status))
    with pytest.raises(kind, match=status[:3]) as caught:
        session.open(server.url + "?sig=5ecret")
    assert isinstance(caught.value, HTTPStatusError)
    assert "5ecret" not in str(caught.value)
    assert not server.gets()


@pytest.mark.parametrize(
    "head",
    [
        lies.head_of(f"Content-Length: {TOTAL}", "Content-Length: 5"),
        lies.head_of("Content-Length: -5"),
        lies.head_of("Content-Length: 18446744073709551621"),
    ],
)
def test_head_that_cannot_be_trusted(
    serve: Callable[..., RangeServer], session: Session, head: Script
) -> None:
    """R19: a size that can't be trusted is an error in open."""
    with pytest.raises(RangeIntegrityError):
        session.open(serve(head=head).url)


def test_size_given(serve: Callable[..., RangeServer], session: Session) -> None:
    """R11: with a size given nothing is asked in open, and a server that says another one is found out."""
    server = serve()
    with session.open(server.url, size=TOTAL) as file:
        assert not server.asked
        assert file.read(offset=TOTAL - 3) == CONTENT[-3:]
    with session.open(server.url, size=TOTAL - 1) as file, pytest.raises(ObjectChangedError, match="changed"):
        file.read()
    with session.open(server.url, size=0) as file:
        assert file.read() == b""
    for bad in (-1, True, 1.5):
        with pytest.raises((ValueError, TypeError), match="size"):
            session.open(server.url, size=bad)  # type: ignore[arg-type]


def test_empty_object(serve: Callable[..., RangeServer], session: Session) -> None:
    """R08: an object of no bytes is read as such, without a body request, however its size came."""
    for head in (lies.head_of("Content-Length: 0"), lies.status("405 No")):
        with session.open(serve(head=head, content=b"").url) as file:
            assert file.size == 0
            assert file.read() == b""
            assert file.read_into(bytearray(5)) == 0


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("", "empty"),
        ("http://", "host"),
        ("http:///path", "host"),
        ("https://:443/", "host"),
        ("http://host:0/", "port"),
        ("http://host:99999/", "port"),
        ("http://host:8o/", "port"),
        ("http://us er@ho st/", "host"),
        ("http://host/a\nb", "control"),
        ("http://user:pa55word@/x", "host"),
        ("ftp://user:pa55word@host/x", "ftp"),
        ("s3://bucket/key", "s3"),
        ("gopher://host/", "gopher"),
        ("file://elsewhere/x", "host"),
        ("file:///a?b", "query"),
        ("file:///a#b", "query"),
        ("file:///a%00b", "path"),
    ],
)
def test_bad_addresses(session: Session, url: str, what: str) -> None:
    """R36: an address that is empty, without host or of an unknown scheme is a ValueError without secrets."""
    with pytest.raises(ValueError, match=f"(?i){what}") as caught:
        session.open(url)
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 5, b"http://host/", ["x"]])
def test_no_addresses(session: Session, url: object) -> None:
    """R36: what is no text and no path is a TypeError."""
    with pytest.raises(TypeError):
        session.open(url)  # type: ignore[arg-type]


class BytesPath:
    """A path that is bytes."""

    def __fspath__(self) -> bytes:
        return b"/tmp/x"


def test_paths_are_text(session: Session) -> None:
    """R49: a path that gives bytes is a TypeError."""
    with pytest.raises(TypeError, match="str or path"):
        session.open(BytesPath())  # type: ignore[arg-type]


def test_request_target(serve: Callable[..., RangeServer], session: Session) -> None:
    """R40: path and query reach the server as they are, blanks and other scripts percent-encoded, fragments dropped."""
    server = serve()
    for tail, sent in [
        ("/a//b/../c", "/a//b/../c"),
        ("/a%2Fb+c", "/a%2Fb+c"),
        ("/ä b", "/%C3%A4%20b"),
        ("?x=1&y=%20", "/?x=1&y=%20"),
        ("/p?q#fragment", "/p?q"),
    ]:
        with session.open(server.origin + tail) as file:
            file.read(size=1)
        assert {asked.target for asked in server.asked} == {sent}
        server.asked.clear()


def test_headers_and_credentials(serve: Callable[..., RangeServer], session: Session) -> None:
    """R34: the user's headers and credential go with every request."""
    server = serve()
    expected = {"x-key": "a b", "x-empty": "", "user-agent": "mine/1"}
    for options, authorization in [
        ({"auth": ("user", "pass")}, "Basic dXNlcjpwYXNz"),
        ({"auth": "t0ken"}, "Bearer t0ken"),
        ({"headers": {"Authorization": "Custom x"}}, "Custom x"),
        ({}, None),
    ]:
        server.asked.clear()
        headers = {"X-Key": "a b", "X-Empty": "", "User-Agent": "mine/1", **options.pop("headers", {})}  # type: ignore[dict-item]
        with session.open(server.url, headers=headers, **options) as file:  # type: ignore[arg-type]
            file.read(size=5)
        assert len(server.asked) == 2
        for asked in server.asked:
            assert {name: asked.one(name) for name in expected} == expected
            assert asked.one("authorization") == authorization
    with session.open(
        server.url.replace("//", "//user:p%C3%A4ss@"), headers=[("X-Key", "1"), ("X-Key", "2")]
    ) as file:
        file.read(size=5)
        assert "user" not in repr(file)
    assert server.asked[-1].all("x-key") == ["1", "2"]
    assert server.asked[-1].one("authorization") == "Basic dXNlcjpww6Rzcw=="


@pytest.mark.parametrize(
    "name", ["Range", "if-match", "Accept-Encoding", "Content-Length", "Connection", "Transfer-Encoding"]
)
def test_headers_that_are_ours(session: Session, name: str) -> None:
    """R18: what decides which bytes come isn't the user's to set."""
    with pytest.raises(ValueError, match=name):
        session.open("http://127.0.0.1:1/", headers={name: "x"})


@pytest.mark.parametrize(
    "headers",
    [{"": "x"}, {"a b": "x"}, {"a:": "x"}, {"a": "5ecret\r\nb: c"}, {"a": "5ecret\0"}, {"a": "5ecret\u20ac"}],
)
def test_headers_that_cannot_be_sent(session: Session, headers: dict[str, str]) -> None:
    """R34: a header that can't be sent is a ValueError that doesn't show the value."""
    with pytest.raises(ValueError, match="header") as caught:
        session.open("http://127.0.0.1:1/", headers=headers)
    assert "5ecret" not in str(caught.value)


@pytest.mark.parametrize("headers", [5, [("a",)], ["ab"], {"a": b"x"}, {1: "x"}])
def test_no_headers(session: Session, headers: object) -> None:
    """R34: what is no mapping and no pairs of text is a TypeError."""
    with pytest.raises(TypeError):
        session.open("http://127.0.0.1:1/", headers=headers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://a:b@127.0.0.1:1/", {"auth": ("c", "5ecret")}),
        ("http://127.0.0.1:1/", {"auth": "5ecret", "headers": {"authorization": "x"}}),
        ("http://127.0.0.1:1/", {"auth": ("a:b", "5ecret")}),
        ("http://127.0.0.1:1/", {"auth": "5ecret\n"}),
    ],
)
def test_bad_credentials(session: Session, url: str, options: dict[str, object]) -> None:
    """R34: two credentials, or one that can't be sent, are a ValueError that doesn't show them."""
    with pytest.raises(ValueError, match=r"credential|user name") as caught:
        session.open(url, **options)  # type: ignore[arg-type]
    assert "5ecret" not in str(caught.value)


def test_local_options(session: Session, tmp_path: Path) -> None:
    """R49: what is for remote files is refused for a local one."""
    (tmp_path / "x").write_bytes(b"x")
    for option in ({"size": 1}, {"headers": {}}, {"auth": "x"}):
        with pytest.raises(ValueError, match="is for remote files"):
            session.open(tmp_path / "x", **option)  # type: ignore[arg-type]


def test_default_session(serve: Callable[..., RangeServer], tmp_path: Path) -> None:
    """R48: without a session the process's own is used; one that was closed is replaced."""
    path = tmp_path / "x"
    path.write_bytes(b"local")
    with respool.io.open(serve().url) as remote, respool.io.open(os.fspath(path)) as local:
        assert isinstance(local, LocalFile)
        assert remote.session is local.session
        assert remote.read(size=9) == CONTENT[:9]
        assert local.read() == b"local"
        remote.session.close()
        with pytest.raises(ValueError, match="session is closed"):
            remote.read()
    with respool.io.open(path) as local:
        assert local.session is not remote.session
        assert local.read() == b"local"
        local.session.close()


def test_closed_files(serve: Callable[..., RangeServer], session: Session) -> None:
    """R08: a closed file refuses every call with ValueError; closing it again does nothing."""
    file = session.open(serve().url)
    reader = file.buffered()
    file.close()
    file.close()
    assert file.closed
    for call in (
        file.read,
        lambda: file.read_into(bytearray(1)),
        lambda: file.pread(bytearray(1)),
        lambda: file.read_many([]),
        file.buffered,
        file.__enter__,
        lambda: reader.read(1),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    # The reader's own end has nothing to do with the file's.
    reader.close()


@pytest.mark.parametrize(
    ("address", "meant"),
    [("file:/none/x", "file:///none/x"), ("http:/host/x", "http://host/x"), ("HTTPS:/h/x", "https://h/x")],
)
def test_a_missing_slash_is_told(session: Session, address: str, meant: str) -> None:
    """What lacks a slash to be a URL is a path; where there's none of that name, the error's note asks for the URL."""
    with pytest.raises(FileNotFoundError) as caught:
        session.open(address)
    assert caught.value.__notes__ == [
        f"taken for a path, as a URL has :// behind its scheme; did you mean {meant}?"
    ]
    with pytest.raises(FileNotFoundError) as caught:
        session.open("none/x")
    assert not hasattr(caught.value, "__notes__")
