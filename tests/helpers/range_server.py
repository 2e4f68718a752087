"""A range server on loopback whose answers are scripts: true ones, and any lie that bytes can tell.

`RangeServer` owns sockets and threads, and notes what it was asked and how much it got rid
of.  A script is a function of an `Exchange` that sends whatever it likes; the lies are in
``lies``.  HTTP is written out by hand here, since a library would refuse to send most of it.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeAlias

from .threads import HANG_GUARD, wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType

    from .gates import Gate

    Script: TypeAlias = Callable[["Exchange"], None]

CONTENT = random.Random(4711).randbytes(300_000)  # noqa: S311 - no two places alike, the same in every run
ETAG = '"v1"'


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    connection: int
    """Number of its connection, from 1."""
    method: str
    target: str
    fields: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Return the values of a field."""
        return [value for field_name, value in self.fields if field_name == name.lower()]

    def one(self, name: str) -> str | None:
        """Return the value of a field that may come once at most."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last byte asked for."""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.one("range") or "")
        return None if match is None else (int(match[1]), int(match[2]))


class HangUp(Exception):  # noqa: N818 - what a script does, not what went wrong
    """Raised by a script to close its connection."""


@dataclass
class Exchange:
    """A request, and the means to answer it."""

    server: RangeServer
    asked: Asked
    connection: socket.socket

    @property
    def content(self) -> bytes:
        """The object."""
        return self.server.content

    @property
    def wanted(self) -> tuple[int, int]:
        """First and last byte asked for, clipped at the object's end; all of it without a Range."""
        first, last = self.asked.range or (0, len(self.content) - 1)
        return first, min(last, len(self.content) - 1)

    def part(self) -> bytes:
        """Return the bytes asked for."""
        first, last = self.wanted
        return self.content[first : last + 1]

    def send(self, *pieces: bytes) -> None:
        """Send bytes, each piece in a packet of its own where the system allows."""
        for piece in pieces:
            self.connection.sendall(piece)
            with self.server.lock:
                self.server.sent += len(piece)

    def head(self, status: str, *lines: str) -> None:
        """Send a status line, fields and the empty line."""
        self.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1"))

    def partial(self, *lines: str, body: bytes | None = None, length: int | None = None) -> None:
        """Send a 206 with the true Content-Range, and whatever else is given."""
        first, last = self.wanted
        body = self.part() if body is None else body
        self.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(self.content)}",
            f"Content-Length: {len(body) if length is None else length}",
            *lines,
        )
        self.send(body)

    def stop(self, gate: Gate) -> None:
        """Wait until the test opens the gate."""
        gate.stop()


def honest(exchange: Exchange) -> None:
    """Answer as RFC 9110 would have it: 206, 416, or 200 without a Range."""
    total = len(exchange.content)
    asked = exchange.asked.range
    expected = exchange.asked.one("if-match")
    if expected not in {None, exchange.server.etag}:
        exchange.head("412 Precondition Failed", "Content-Length: 0")
    elif asked is None:
        exchange.head("200 OK", f"Content-Length: {total}", f"ETag: {exchange.server.etag}")
        exchange.send(exchange.content)
    elif asked[0] >= total:
        exchange.head("416 Range Not Satisfiable", f"Content-Range: bytes */{total}", "Content-Length: 0")
    else:
        exchange.partial(f"ETag: {exchange.server.etag}")


def honest_head(exchange: Exchange) -> None:
    """Answer a HEAD with size and ETag."""
    exchange.head("200 OK", f"Content-Length: {len(exchange.content)}", f"ETag: {exchange.server.etag}")


@dataclass
class RangeServer:
    """The server; a context manager.

    ``get`` answers every GET and ``head`` every HEAD; both may be changed while it runs.
    When it's left, what a script raised is raised.
    """

    get: Script = honest
    head: Script = honest_head
    content: bytes = CONTENT
    etag: str = ETAG
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0
    """Bytes that the system has taken off the scripts' hands."""
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[BaseException] = field(default_factory=list)
    _closing: bool = False

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._threads.append(threading.Thread(target=self._accept, name="range-server", daemon=True))
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.lock:
            self._closing = True
        # Shut down before it's closed: that is what wakes the accepting thread.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(HANG_GUARD)
        self.hang_up()
        for thread in self._threads[1:]:
            thread.join(HANG_GUARD)
            assert not thread.is_alive(), "a script of the range server hangs"
        if self._errors and error is None:
            raise self._errors[0]

    @property
    def origin(self) -> str:
        """``http://127.0.0.1:PORT``, or with https."""
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def url(self) -> str:
        """The object's URL."""
        return f"{self.origin}/object"

    def gets(self) -> list[Asked]:
        """Return the GETs that have come so far."""
        with self.lock:
            return [asked for asked in self.asked if asked.method == "GET"]

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        with self.lock:
            return len(self._open)

    def wait_closed(self) -> None:
        """Wait until the other side has closed every connection."""
        wait_until(lambda: self.open_connections == 0, "the closing of all connections")

    def hang_up(self) -> None:
        """Shut every connection down, wherever its script is."""
        with self.lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self.lock:
                if self._closing:
                    connection.close()
                    return
                self.connections += 1
                self._open.add(connection)
                thread = threading.Thread(
                    target=self._serve, args=(connection, self.connections), daemon=True
                )
                self._threads.append(thread)
            thread.start()

    def _serve(self, raw: socket.socket, number: int) -> None:
        connection = raw
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = raw if self.tls is None else self._secure(raw)
            with connection, connection.makefile("rb") as incoming:
                while (asked := _read_request(incoming.readline, number)) is not None:
                    with self.lock:
                        self.asked.append(asked)
                    script = self.head if asked.method == "HEAD" else self.get
                    script(Exchange(self, asked, connection))
                # The rest, until the other side closes: closing with bytes unread would reset
                # the connection and lose what was sent.
        except (HangUp, OSError):
            pass
        except BaseException as error:
            self._errors.append(error)
        finally:
            with self.lock:
                self._open -= {raw, connection}

    def _secure(self, raw: socket.socket) -> socket.socket:
        """Do the handshake; from here on the connection is another object."""
        assert self.tls is not None
        with contextlib.ExitStack() as stack:
            stack.enter_context(raw)
            connection = self.tls.wrap_socket(raw, server_side=True)
            stack.pop_all()
        with self.lock:
            self._open.discard(raw)
            self._open.add(connection)
        return connection


def _read_request(readline: Callable[[], bytes], number: int) -> Asked | None:
    """Read one request; None when the connection is closed."""
    line = readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split()
    fields = []
    while (line := readline()) not in {b"\r\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        fields.append((name.strip().lower(), value.strip()))
    return Asked(number, method, target, tuple(fields))
