"""``respool serve``: a file server with ranges, seen from outside."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from email.utils import formatdate
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from respool._version import __version__
from respool.cli.serve import FileServer, matches, parse_range, resolve

from .client import CONTENT, Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ask(directory: Path) -> Iterator[Client]:
    """A client of a server in a thread of this process."""
    with FileServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        client = Client(server.url)
        try:
            yield client
        finally:
            client.connection.close()
            server.shutdown()
            thread.join()


class TestWhole:
    """Without a range."""

    def test_get(self, ask: Client) -> None:
        """GET gives the file, its length, type and validators."""
        status, headers, body = ask("/file.bin")
        assert (status, body) == (200, CONTENT)
        assert headers["Content-Length"] == str(len(CONTENT))
        assert headers["Accept-Ranges"] == "bytes"
        assert headers["Content-Type"] == "application/octet-stream"
        assert headers["ETag"].startswith('"')
        assert headers["Last-Modified"].endswith("GMT")

    def test_head(self, ask: Client) -> None:
        """HEAD gives GET's head and no body, and the connection goes on."""
        get, head = ask("/file.bin"), ask("/file.bin", "HEAD")
        assert (head.status, head.body) == (200, b"")
        for name in ("Content-Length", "ETag", "Last-Modified", "Content-Type"):
            assert head.headers[name] == get.headers[name]
        assert ask("/missing", "HEAD").body == b""
        assert ask("/file.bin").body == CONTENT

    def test_empty_file(self, ask: Client) -> None:
        """An empty file is an empty body, and no range of it exists."""
        assert ask("/empty")[::2] == (200, b"")
        answer = ask("/empty", Range="bytes=0-0")
        assert (answer.status, answer.headers["Content-Range"]) == (416, "bytes */0")

    def test_one_connection(self, ask: Client) -> None:
        """Answers of all kinds, errors too, keep the connection."""
        ask("/file.bin")
        sock = ask.connection.sock
        for path, headers in (
            ("/none", {}),
            ("/file.bin", {"Range": "bytes=99999-"}),
            ("/file.bin", {"If_Match": '"x"'}),
        ):
            ask(path, **headers)
        assert ask("/file.bin").body == CONTENT
        assert ask.connection.sock is sock

    def test_file_grows_and_shrinks(self, ask: Client, directory: Path) -> None:
        """Each answer is of the file as it is, with another ETag."""
        before = ask("/file.bin")
        (directory / "file.bin").write_bytes(b"short")
        after = ask("/file.bin")
        assert after.body == b"short"
        assert after.headers["ETag"] != before.headers["ETag"]


class TestRange:
    """With one."""

    @pytest.mark.parametrize(
        ("asked", "start", "stop"),
        [
            ("bytes=0-0", 0, 1),
            ("bytes=5-9", 5, 10),
            ("bytes=10000-", 10_000, len(CONTENT)),
            ("bytes=10000-99999", 10_000, len(CONTENT)),
            ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
            ("bytes=-99999", 0, len(CONTENT)),
            ("Bytes = 1-2", 1, 3),
        ],
    )
    def test_satisfied(self, ask: Client, asked: str, start: int, stop: int) -> None:
        """206 with exactly the bytes that Content-Range tells."""
        status, headers, body = ask("/file.bin", Range=asked)
        assert (status, body) == (206, CONTENT[start:stop])
        assert headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(CONTENT)}"
        assert headers["Content-Length"] == str(stop - start)

    @pytest.mark.parametrize("asked", [f"bytes={len(CONTENT)}-", "bytes=99999-100000", "bytes=-0"])
    def test_not_satisfiable(self, ask: Client, asked: str) -> None:
        """416 with the size."""
        answer = ask("/file.bin", Range=asked)
        assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")

    @pytest.mark.parametrize(
        "asked",
        [
            "bytes=5-4",
            "bytes=a-b",
            "bytes=-",
            "bytes",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=1-2x",
            "bytes=+1-2",
            "bytes=" + "9" * 5000 + "-",
        ],
    )
    def test_ignored(self, ask: Client, asked: str) -> None:
        """What isn't one range of bytes is ignored, as a server may."""
        assert ask("/file.bin", Range=asked)[::2] == (200, CONTENT)

    @given(
        first=st.none() | st.integers(0, 200), last=st.none() | st.integers(0, 200), size=st.integers(0, 150)
    )
    @example(first=None, last=0, size=0)
    def test_model(self, first: int | None, last: int | None, size: int) -> None:
        """Whatever the range, it's what slicing says."""
        header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
        content = list(range(size))
        if first is None and last is None:
            wanted = None
        elif first is None:
            wanted = content[-last:] if last else []
        elif last is None:
            wanted = content[first:]
        else:
            wanted = None if last < first else content[first : last + 1]
        got = parse_range(header, size)
        assert (None if got is None else content[got[0] : got[1]] if got else []) == wanted


class TestConditions:
    """Preconditions."""

    def test_if_match(self, ask: Client) -> None:
        """412 unless one of the tags is the file's."""
        etag = ask("/file.bin").headers["ETag"]
        for good in (etag, "*", f'"other", {etag}'):
            assert ask("/file.bin", If_Match=good).status == 200
        for bad in ('"other"', f"W/{etag}", ""):
            assert ask("/file.bin", If_Match=bad).status == 412

    def test_if_none_match(self, ask: Client) -> None:
        """304 if one of the tags is the file's."""
        etag = ask("/file.bin").headers["ETag"]
        for same in (etag, f"W/{etag}", "*"):
            assert ask("/file.bin", If_None_Match=same)[::2] == (304, b"")
        assert ask("/file.bin", If_None_Match='"other"').body == CONTENT

    def test_if_range(self, ask: Client, directory: Path) -> None:
        """A range holds only for the version it's asked of; else the whole file comes."""
        os.utime(directory / "file.bin", (1_000_000_000, 1_000_000_000))
        headers = ask("/file.bin").headers
        for good in (headers["ETag"], headers["Last-Modified"]):
            assert ask("/file.bin", Range="bytes=1-2", If_Range=good).status == 206
        for bad in ('"other"', f"W/{headers['ETag']}", formatdate(1, usegmt=True), "*", "nonsense"):
            assert ask("/file.bin", Range="bytes=1-2", If_Range=bad)[::2] == (200, CONTENT)

    def test_tags(self) -> None:
        """A weak comparison ignores the mark, a strong one never matches a marked tag."""
        assert matches('W/"a"', '"a"', weak=True)
        assert not matches('W/"a"', '"a"', weak=False)


class TestPaths:
    """What is found, and what isn't."""

    @pytest.mark.parametrize(
        "path",
        [
            "/../secret",
            "/%2e%2e/secret",
            "/..%2fsecret",
            "/x/../../secret",
            "//../secret",
            "/link",
            "/linked/secret",
            "/file.bin/..",
            "/file.bin%00",
            "/",
            "/directory",
            "/pipe",
            "/missing",
            "/file.bin/x",
            "*",
            "/" + "x" * 5000,
        ],
    )
    def test_not_found(self, ask: Client, directory: Path, path: str) -> None:
        """What lies outside, isn't a regular file or isn't there is a 404, and never hangs."""
        (directory / "link").symlink_to("../secret")
        (directory / "linked").symlink_to("..")
        (directory / "directory").mkdir()
        os.mkfifo(directory / "pipe")
        answer = ask(path)
        assert answer.status == 404
        assert answer.body == (
            b"404 Not Found: no such file (folders aren't listed, links that lead out aren't followed)\n"
        )

    @pytest.mark.parametrize("name", ["a b", "ü.txt", "100%", "a?b", "a#b", "..."])
    def test_odd_names(self, ask: Client, directory: Path, name: str) -> None:
        """Names with anything in them are found by their percent-encoding."""
        from urllib.parse import quote

        (directory / name).write_text("here")
        assert ask(f"/{quote(name)}").body == b"here"
        assert ask(f"/{quote(name)}?query#fragment").body == b"here"

    def test_link_inside(self, ask: Client, directory: Path) -> None:
        """A link to another file inside is followed."""
        (directory / "link").symlink_to("file.bin")
        assert ask("/link").body == CONTENT

    def test_absolute_target(self, ask: Client) -> None:
        """The absolute form of a request target works."""
        assert ask("http://whatever/file.bin").body == CONTENT

    @given(path=st.text(alphabet="./%2efx\\\0ü", max_size=12))
    def test_never_outside(self, path: str) -> None:
        """No target resolves to anything but a path below the root."""
        found = resolve(b"/usr/lib", "/" + path)
        assert found is None or found.startswith(b"/usr/lib/")

    def test_no_permission(self, ask: Client, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file that may not be read is a 403."""
        from respool.cli import serve

        def refuse(path: bytes, flags: int) -> int:
            raise PermissionError(13, "no", path)

        monkeypatch.setattr(serve.os, "open", refuse)
        assert ask("/file.bin").status == 403


class TestRequests:
    """What isn't a proper request, or can't be served."""

    @pytest.mark.parametrize("text", ["can't start new thread", ""])
    def test_trouble(
        self,
        ask: Client,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        text: str,
    ) -> None:
        """What goes wrong with one connection is one line, not a traceback, and ends no other."""

        def fail(*_: object) -> NoReturn:
            raise RuntimeError(text)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            with pytest.raises(http.client.RemoteDisconnected):
                ask("/file.bin")
        told = f"RuntimeError: {text}" if text else "RuntimeError"
        assert capsys.readouterr() == ("", f"respool: a connection was given up: {told}\n")
        ask.connection.close()
        assert ask("/file.bin").body == CONTENT

    @pytest.mark.parametrize(
        ("method", "status"),
        [
            *((known, 405) for known in ("PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")),
            ("NONSENSE", 501),
        ],
    )
    def test_other_methods(self, ask: Client, method: str, status: int) -> None:
        """Other methods are refused, and the connection ends, as a body may follow."""
        answer = ask("/file.bin", method)
        assert (answer.status, answer.headers["Connection"]) == (status, "close")
        assert answer.headers["Allow"] == "GET, HEAD"

    def test_server_s_name(self, ask: Client) -> None:
        """The server says what it is, and not a blank more."""
        assert ask("/file.bin").headers["Server"] == f"respool/{__version__}"
        with socket.create_connection((ask.connection.host, ask.connection.port), 20) as raw:
            raw.sendall(b"GET /file.bin HTTP/1.0\r\n\r\n")
            head = raw.makefile("rb").read().partition(b"\r\n\r\n")[0]
        assert f"Server: respool/{__version__}".encode() in head.split(b"\r\n")

    def test_body(self, ask: Client) -> None:
        """A GET with a body is refused: its bytes must not be read as a request."""
        ask.connection.request("GET", "/file.bin", body=b"GET /secret HTTP/1.1\r\n\r\n")
        answer = ask.connection.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (400, "close")
        answer.read()

    def test_garbage(self, ask: Client) -> None:
        """Garbage gets a 400, and the server goes on."""
        host, port = ask.connection.host, ask.connection.port
        with socket.create_connection((host, port), timeout=20) as sock:
            sock.sendall(b"\x16\x03\x01\x02\r\n\r\n")
            assert b"400" in sock.makefile("rb").read()
        assert ask("/file.bin").body == CONTENT

    def test_client_goes_away(self, ask: Client, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """A client that goes away in mid-body is no one's trouble: nothing is printed, the next is served."""
        with (directory / "large").open("wb") as file:
            file.truncate(64 << 20)
        with socket.create_connection((ask.connection.host, ask.connection.port), timeout=20) as sock:
            sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(100)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert ask("/file.bin").body == CONTENT
        assert capfd.readouterr().err == ""
