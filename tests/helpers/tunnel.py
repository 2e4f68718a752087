"""A proxy that tunnels by CONNECT, on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

from .threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable


class Tunnel:
    """A proxy that knows CONNECT to loopback, and nothing else; a context manager."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_GUARD)
        for one in self._sockets:
            one.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                method, target, _version = head.split(b"\r\n")[0].decode().split(" ")
                assert method == "CONNECT"
                host, _, port = target.rpartition(":")
                assert host == "127.0.0.1"
                server = socket.create_connection((host, int(port)), HANG_GUARD)
                self._sockets.append(server)
                client.sendall(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
                self._start(self._pass_on, client, server)
                self._start(self._pass_on, server, client)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
