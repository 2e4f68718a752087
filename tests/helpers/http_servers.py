"""Servers on loopback for tests of pooled handles.

``RecordingServer`` shows each request as it came, with the number of its connection, and
answers as the test says; with a ``Certificate`` it speaks TLS.  ``Nginx`` is the real one,
for keep-alive as it is met outside.  Lying answers to range requests are the business of
``range_server``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest

from .threads import HANG_GUARD, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .gates import Gate


@dataclass(frozen=True)
class Request:
    """One request, as it came."""

    connection: int
    """Number of its connection, counted from 1."""
    method: str
    target: str
    headers: dict[str, list[str]]
    """Values by name in lower case, in the order in which they came."""
    body: bytes
    head: str
    peer: tuple[str, int]

    def header(self, name: str) -> str | None:
        """Return the one value of a header, or None."""
        values = self.headers.get(name.lower(), [])
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


@dataclass(frozen=True)
class Answer:
    """What a `RecordingServer` sends for a request."""

    body: bytes = b"fine"
    status: str = "200 OK"
    headers: Sequence[str] = ()
    length: int | None = None
    """The Content-Length told, where it isn't that of the body."""
    close: bool = False
    """Close the connection behind the body."""
    after_head: Gate | None = None
    """Where the connection's thread stops between head and body."""

    def head(self) -> bytes:
        """Return the bytes before the body."""
        length = len(self.body) if self.length is None else self.length
        lines = [f"HTTP/1.1 {self.status}", f"Content-Length: {length}", *self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass
class RecordingServer:
    """A keep-alive HTTP/1.1 server that remembers what it was asked.

    ``answers`` maps a path to what is sent for it, or to a function of the request;
    anything else is answered with ``default``.  A context manager.
    """

    answers: dict[str, Answer | Callable[[Request], Answer]] = field(default_factory=dict)
    default: Answer = field(default_factory=Answer)
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    on_connection: Callable[[int, socket.socket], object] | None = None
    """Called with each connection's number and socket, TLS established, on its thread."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self._stopping = False
        self.requests: list[Request] = []
        self.connections = 0
        #: How each connection ended, by its number: "closed" by the other side (for TLS: with its
        #: goodbye), "broken", or "ours".
        self.ends: dict[int, str] = {}
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self._listener = socket.create_server((self.host, 0), family=family, backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def url(self, path: str = "/", host: str | None = None) -> str:
        """Return the URL of a path here, under another name of this host if so asked."""
        scheme = "https" if self.tls else "http"
        name = host or self.host
        return f"{scheme}://{f'[{name}]' if ':' in name else name}:{self.port}{path}"

    @property
    def open_connections(self) -> int:
        """How many connections neither side has closed."""
        with self._lock:
            return self.connections - len(self.ends)

    def asked(self, path: str) -> list[Request]:
        """Return the requests for a path so far."""
        with self._lock:
            return [request for request in self.requests if request.target == path]

    def wait_ended(self, connection: int) -> str:
        """Wait until a connection has ended, and return how."""
        wait_until(lambda: connection in self.ends, f"the end of connection {connection}")
        return self.ends[connection]

    def __enter__(self) -> Self:
        thread = threading.Thread(target=self._accept, name="recording-server", daemon=True)
        self._threads.append(thread)
        thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._stopping = True
            connections = list(self._open)
        # Shutting a listener down wakes its accept(); closing it alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_GUARD)

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._stopping:
                    connection.close()
                    return
                self.connections += 1
                number = self.connections
                self._open.add(connection)
                thread = threading.Thread(
                    target=self._serve,
                    args=(connection, number, peer),
                    name=f"connection-{number}",
                    daemon=True,
                )
                self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int, peer: tuple[str, int]) -> None:
        connection.settimeout(HANG_GUARD)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain, end = connection, "broken"
        try:
            if self.tls is not None:
                # Takes the descriptor over, so `plain` is empty from here on.
                connection = self.tls.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)
                with self._lock:
                    self._open = (self._open - {plain}) | {connection}
            if self.on_connection is not None:
                self.on_connection(number, connection)
            end = self._answer_all(connection, number, peer)
        except OSError:  # a reset, a broken TLS record, or the end without a TLS goodbye
            pass
        finally:
            with self._lock:
                self._open -= {plain, connection}
                self.ends[number] = end
            connection.close()

    def _answer_all(self, connection: socket.socket, number: int, peer: tuple[str, int]) -> str:
        with connection.makefile("rb") as reader:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = reader.readline()
                    if not line:
                        return "closed" if not head else "broken"
                    head += line
                request = _parse(head, number, peer)
                length = int(request.header("content-length") or 0)
                request = Request(**{**vars(request), "body": reader.read(length)})
                with self._lock:
                    self.requests.append(request)
                found = self.answers.get(request.target.partition("?")[0], self.default)
                answer = found if isinstance(found, Answer) else found(request)
                connection.sendall(answer.head())
                if answer.after_head is not None:
                    answer.after_head.stop()
                if request.method != "HEAD":
                    connection.sendall(answer.body)
                if answer.close:
                    return "ours"


def _parse(head: bytes, number: int, peer: tuple[str, int]) -> Request:
    text = head.decode("latin-1")
    first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _version = first.split(" ")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    return Request(number, method, target, headers, b"", text, peer)


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate, which is its own authority."""

    cert: str
    key: str

    @classmethod
    def make(cls, folder: Path, name: str = "localhost") -> Certificate:
        """Make one for ``name``, ``localhost`` and the loopback addresses."""
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("needs openssl")
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        names = f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1,IP:::1"
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += [
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-addext",
            names,
            "-keyout",
            str(key),
            "-out",
            str(cert),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_GUARD)
        return cls(str(cert), str(key))

    def server_context(self, *, clients: Certificate | None = None) -> ssl.SSLContext:
        """Return a server's context; with ``clients`` it asks for that certificate, and does without."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(clients.cert)
        return context


_NGINX_CONFIG = """
daemon off;
master_process on;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    log_format counted '$connection $connection_requests $status $request_uri';
    access_log {folder}/access.log counted;
    client_body_temp_path {folder}/temp; proxy_temp_path {folder}/temp; fastcgi_temp_path {folder}/temp;
    uwsgi_temp_path {folder}/temp; scgi_temp_path {folder}/temp;
    keepalive_requests 100000;
    keepalive_timeout 600s;
    server {{ listen 127.0.0.1:{http}; root {files}; }}
    server {{
        listen 127.0.0.1:{https} ssl http2;
        ssl_certificate {cert}; ssl_certificate_key {key};
        root {files};
    }}
}}
"""


class Nginx:
    """A real nginx that serves a folder, with HTTP and with HTTPS (HTTP/2); a context manager.

    Its listening sockets are bound here and handed down, so no port can be taken meanwhile.
    """

    def __init__(self, folder: Path, files: Path, certificate: Certificate) -> None:
        binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if binary is None:
            pytest.skip("needs nginx")
        self._binary = binary
        self._folder = folder
        self._files = files
        self._certificate = certificate

    def __enter__(self) -> Self:
        listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(2)]
        self.http_port, self.https_port = (listener.getsockname()[1] for listener in listeners)
        (self._folder / "temp").mkdir(parents=True)
        config = self._folder / "nginx.conf"
        # As root it would otherwise serve as nobody, who may not read the test's folder.
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(
            _NGINX_CONFIG.format(
                user=user,
                folder=self._folder,
                files=self._files,
                http=self.http_port,
                https=self.https_port,
                cert=self._certificate.cert,
                key=self._certificate.key,
            )
        )
        descriptors = [listener.fileno() for listener in listeners]
        inherited = "".join(f"{fd};" for fd in descriptors)
        self._process = subprocess.Popen(
            [self._binary, "-p", str(self._folder), "-c", str(config), "-e", str(self._folder / "error.log")],
            env={**os.environ, "NGINX": inherited},
            pass_fds=descriptors,
            stderr=subprocess.PIPE,
        )
        for listener in listeners:
            listener.close()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=HANG_GUARD)

    def url(self, path: str = "/", *, tls: bool = False) -> str:
        """Return the URL of a file."""
        return (
            f"https://127.0.0.1:{self.https_port}{path}"
            if tls
            else f"http://127.0.0.1:{self.http_port}{path}"
        )

    def connections(self, path: str, requests: int) -> list[int]:
        """Wait until a path was asked for ``requests`` times; the connections on which it was."""

        def found() -> list[int]:
            lines = (self._folder / "access.log").read_text().splitlines()
            return [int(line.split()[0]) for line in lines if line.split()[3] == path]

        wait_until(
            lambda: self._folder.joinpath("access.log").exists() and len(found()) >= requests,
            "the log of nginx",
        )
        return found()
