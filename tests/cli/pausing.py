"""A range server that stops in mid-body when the test says so, and tells the test when it does."""

from __future__ import annotations

import http.server
import re
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tests.helpers.threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator


class PausingServer(http.server.ThreadingHTTPServer):
    """Serves one object at every path.

    The body of the range that holds byte ``pause_at`` is sent up to there; then `paused` is
    set and the rest isn't sent until `go_on` is.  `drop` closes all connections instead.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, content: bytes, *, pause_at: int | None = None, tell_size: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.pause_at = pause_at
        self.tell_size = tell_size
        self.paused = threading.Event()
        self.go_on = threading.Event()
        self.dropped = False
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        """Where the object is."""
        return f"http://127.0.0.1:{self.server_port}/object"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away: that's what the tests are about."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def drop(self) -> None:
        """Close the listening socket, and those connections that pause: what a killed server does."""
        self.dropped = True
        self.socket.close()
        self.go_on.set()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PausingServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def do_HEAD(self) -> None:
        self._head(None)

    def do_GET(self) -> None:
        self.server.requests.append(self.headers.get("Range", ""))
        span = self._head(self.headers.get("Range"))
        if span is None:
            return
        start, stop = span
        pause_at = self.server.pause_at
        if pause_at is not None and start <= pause_at < stop:
            self.wfile.write(self.server.content[start:pause_at])
            self.server.paused.set()
            assert self.server.go_on.wait(HANG_GUARD)
            if self.server.dropped:
                self.close_connection = True
                return
            start = pause_at
        self.wfile.write(self.server.content[start:stop])

    def _head(self, asked: str | None) -> tuple[int, int] | None:
        size = len(self.server.content)
        total = str(size) if self.server.tell_size else "*"
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        start, stop = 0, size
        if match is not None:
            start, stop = int(match[1]), min(int(match[2] or size) + 1, size)
            if start >= size:
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{total}")
        else:
            self.send_response(200)
        if self.server.tell_size or self.command == "GET":
            self.send_header("Content-Length", str(stop - start))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.send_header("ETag", '"one"')
        self.end_headers()
        return start, stop


class Paused(NamedTuple):
    """What a test holds."""

    url: str
    server: PausingServer


@contextmanager
def pausing(content: bytes, *, pause_at: int | None = None, tell_size: bool = True) -> Iterator[Paused]:
    """Run a `PausingServer` for the length of a block."""
    with PausingServer(content, pause_at=pause_at, tell_size=tell_size) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield Paused(server.url, server)
        finally:
            server.go_on.set()
            server.shutdown()
            thread.join()
