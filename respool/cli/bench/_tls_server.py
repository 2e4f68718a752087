"""A TLS server that answers every request with the same small object, in a process of its own.

This module owns both sides of that process.  The server does as little as one can, so
that what is measured is the client: it looks for the end of a request's head and sends an
answer made beforehand.  It's fit for measuring and for nothing else.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from respool.cli._child import python_server
from respool.cli._temporary import temporary_directory, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Generator

BODY = bytes(1024)
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY
)


class Serving(NamedTuple):
    """Where the server is, and what to trust it by."""

    url: str
    ca_bundle: str


@contextmanager
def tls_server() -> Generator[Serving]:
    """Run the server, with a certificate made for it, for the length of a block.

    Meanwhile the environment names no proxy: one can't reach this machine's loopback, and whoever is measured reads
    these variables in a way of its own.

    Raises
    ------
    OSError
        There is no openssl command, or the server doesn't start.
    """
    with temporary_directory("respool-bench-", temporary_folder()) as directory:
        certificate = _certificate(Path(directory))
        server = python_server("the TLS server to measure against", __name__, certificate)
        with _without_proxies(), server as port:
            yield Serving(f"https://127.0.0.1:{port}/object", str(certificate))


@contextmanager
def _without_proxies() -> Generator[None]:
    """Have no proxies in the environment for the length of a block."""
    hidden = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _certificate(directory: Path) -> Path:
    """Make a self-signed certificate for 127.0.0.1, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise FileNotFoundError("bench handles needs the command `openssl`, to make a certificate")
    path = directory / "server.pem"
    key = directory / "key.pem"
    subprocess.run(  # noqa: S603 - a fixed command
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *(
                "-keyout",
                key,
                "-out",
                path,
                "-subj",
                "/CN=127.0.0.1",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ),
        ],
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


def _serve(certificate: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while True:
        connection = listener.accept()[0]
        threading.Thread(target=_answer, args=(context, connection), daemon=True).start()


def _answer(context: ssl.SSLContext, connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with context.wrap_socket(connection, server_side=True) as tls:
            asked = b""
            while piece := tls.recv(65536):
                asked += piece
                if asked.endswith(b"\r\n\r\n"):
                    tls.sendall(_ANSWER)
                    asked = b""
    except OSError:
        pass  # the client has gone


def _exit_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
