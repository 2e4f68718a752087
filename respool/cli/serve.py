"""``respool serve``: a small HTTP/1.1 server of one directory's files, with byte ranges.

This module owns the server: it's what ``respool demo`` reads from, and a peer to try
reading against without a network.  It's for loopback and trusted networks: there is no
TLS, no authentication and no directory listing.
"""

from __future__ import annotations

import errno
import http.server
import mimetypes
import os
import re
import socket
import socketserver
import stat
import sys
import threading
from email.utils import formatdate, parsedate_to_datetime
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

from respool._version import __version__
from respool.cli._arguments import port, some

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

#: Seconds a kept connection may stay silent before its thread is given up.
_IDLE_SECONDS = 75

#: ``bytes=A-B``, ``bytes=A-`` or ``bytes=-N``, and nothing else.
_RANGE = re.compile(r"\s*bytes\s*=\s*(?=\d|-\d)(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


#: For browsers, too, which ask for the folder itself.
_NO_SUCH_FILE = "no such file (folders aren't listed, links that lead out aren't followed)"
#: Names looked at for an example: a folder may hold millions.
_LOOKED_AT = 1000


class Span(NamedTuple):
    """The part of a file to send: bytes ``start`` up to, not including, ``stop``."""

    start: int
    stop: int


class FileServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves the files under one directory, one thread for each connection.

    Parameters
    ----------
    directory : path
        What is served.  Symbolic links that lead out of it are not followed.
    host : str
        The address to listen on; an IPv6 one may be given without brackets.
    port : int
        0 takes a free one, which `url` tells.

    Raises
    ------
    OSError
        The directory isn't one, or the address can't be had.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, directory: str | os.PathLike[str], host: str = "127.0.0.1", port: int = 0) -> None:
        root = Path(directory).resolve(strict=True)
        if not root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
        self.root = os.fsencode(root)
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from error

    def server_bind(self) -> None:
        """Bind without looking the address up in the DNS, as the base class would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        """Where the server's root is found, with a slash at the end."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go away; tell anything else in one line."""
        error = sys.exc_info()[1]
        if error is None or isinstance(error, ConnectionError | TimeoutError):
            return
        if sys.flags.dev_mode:
            super().handle_error(request, client_address)  # type: ignore[arg-type]
            return
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        try:
            print(f"respool: a connection was given up: {what}", file=sys.stderr, flush=True)
        except OSError:
            pass  # nobody there to be told


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection: GET and HEAD of regular files, whole or a single range."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    server: FileServer  # pyright: ignore[reportIncompatibleVariableOverride] - it is one, always

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._answer(body=False)

    def _not_allowed(self) -> None:
        """Answer a method that would do something to a file."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "files are only read here", close=True)

    # The base class finds them by these names.
    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed  # noqa: N815

    def version_string(self) -> str:
        """Say what this is, without what Python it runs on."""
        return f"respool/{__version__}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Stay silent: a line for each range would drown whoever watches."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an error in plain text, and keep the connection where that's safe."""
        del explain
        status = HTTPStatus(code)
        self._refuse(status, message or status.phrase, close=True)

    def _answer(self, *, body: bool) -> None:
        # A request with a body isn't for us: its bytes must not be taken for a next request.
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.BAD_REQUEST, "a request here has no body", close=True, body=body)
            return
        path = resolve(self.server.root, self.path)
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND, _NO_SUCH_FILE, body=body)
            return
        try:
            # O_NONBLOCK, as opening a named pipe would wait for its writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except PermissionError:
            self._refuse(HTTPStatus.FORBIDDEN, "no permission to read it", body=body)
            return
        except (OSError, ValueError):
            self._refuse(HTTPStatus.NOT_FOUND, _NO_SUCH_FILE, body=body)
            return
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self._refuse(HTTPStatus.NOT_FOUND, _NO_SUCH_FILE, body=body)
                return
            span = self._head(path, status, body=body)
            if body and span is not None and span.stop > span.start:
                self._send(descriptor, span)
        finally:
            os.close(descriptor)

    def _head(self, path: bytes, status: os.stat_result, *, body: bool) -> Span | None:
        """Send the answer's head; return what part of the file is to follow, or None."""
        size = status.st_size
        etag = f'"{status.st_mtime_ns:x}-{size:x}-{status.st_ino:x}"'
        modified = int(status.st_mtime)
        wanted = self.headers.get("If-Match")
        if wanted is not None and not matches(wanted, etag, weak=False):
            self._refuse(HTTPStatus.PRECONDITION_FAILED, "the file has changed", body=body)
            return None
        unwanted = self.headers.get("If-None-Match")
        if unwanted is not None and matches(unwanted, etag, weak=True):
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.send_header("ETag", etag)
            self.end_headers()
            return None
        asked = self.headers.get("Range")
        if asked is not None and not self._range_holds(etag, modified):
            asked = None
        spans = None if asked is None else parse_range(asked, size)
        if spans == ():
            self._refuse(
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                f"the file has {size} bytes",
                headers=(("Content-Range", f"bytes */{size}"),),
                body=body,
            )
            return None
        span = Span(0, size) if spans is None else Span(*spans)
        self.send_response(HTTPStatus.OK if spans is None else HTTPStatus.PARTIAL_CONTENT)
        if spans is not None:
            self.send_header("Content-Range", f"bytes {span.start}-{span.stop - 1}/{size}")
        self.send_header("Content-Length", str(span.stop - span.start))
        kind = mimetypes.guess_type(os.fsdecode(path))[0]
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", formatdate(modified, usegmt=True))
        self.end_headers()
        return span

    def _range_holds(self, etag: str, modified: int) -> bool:
        """Whether If-Range, if there is one, names the file as it is now (RFC 9110, 13.1.5)."""
        condition = self.headers.get("If-Range")
        if condition is None:
            return True
        if condition.strip().startswith(('"', "W/")):
            return matches(condition, etag, weak=False) and condition.strip() != "*"
        try:
            return parsedate_to_datetime(condition).timestamp() == modified
        except (TypeError, ValueError):
            return False

    def _send(self, descriptor: int, span: Span) -> None:
        """Send part of a file without bringing its bytes into the interpreter."""
        # However slowly it is read: a reader that has been suspended may go on in an hour.
        self.connection.settimeout(None)
        with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
            sent = self.connection.sendfile(file, span.start, span.stop - span.start)
        self.connection.settimeout(_IDLE_SECONDS)
        if sent < span.stop - span.start:
            # The file shrank under us.  The length is promised, so the connection is done for.
            self.close_connection = True

    def _refuse(
        self,
        status: HTTPStatus,
        text: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        close: bool = False,
        body: bool = True,
    ) -> None:
        message = f"{status.value} {status.phrase}: {text}\n".encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status in {HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(message)))
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(message)


def resolve(root: bytes, target: str) -> bytes | None:
    """Turn a request's target into a path under `root`, or None if it leads out of it.

    Parameters
    ----------
    root : bytes
        The served directory, without symbolic links in it.
    target : str
        The request target: an absolute path, or an absolute URL, percent-encoded.

    Returns
    -------
    bytes or None
        A path that may or may not exist, with all symbolic links resolved.
    """
    try:
        path = unquote_to_bytes(urlsplit(target).path)
    except ValueError:
        return None
    if b"\0" in path or not path.startswith(b"/"):
        return None
    real = os.path.realpath(os.path.join(root, path.lstrip(b"/")))  # noqa: PTH118 - bytes: names may be of any encoding
    prefix = root if root.endswith(b"/") else root + b"/"
    return real if real.startswith(prefix) else None


def parse_range(header: str, size: int) -> tuple[int, int] | tuple[()] | None:
    """Read a Range header (RFC 9110, 14.2).

    Returns
    -------
    tuple or None
        (start, stop) of a single range, clipped to the file; an empty tuple for one that lies
        outside it; None for what a server may ignore: another unit, several ranges, nonsense.
    """
    match = _RANGE.fullmatch(header)
    if match is None:
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(size - int(last), 0), size
    elif not last:
        start, stop = int(first), size
    elif int(last) < int(first):
        return None
    else:
        start, stop = int(first), min(int(last) + 1, size)
    return (start, stop) if start < stop else ()


def matches(header: str, etag: str, *, weak: bool) -> bool:
    """Whether a list of entity tags, or ``*``, names this (strong) one.

    The strong comparison never matches a weak tag; the weak one ignores the mark.
    """
    for tag in header.split(","):
        name = tag.strip()
        if name in ("*", etag) or (weak and name.removeprefix("W/") == etag):
            return True
    return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    import argparse

    parser.description = (
        "Serve a directory's files over HTTP, with ranges.  The first line on stdout is the URL of the directory, "
        "behind which comes the path of a file; directories aren't listed.  Ctrl-C ends it, with exit code 130."
    )
    parser.add_argument(
        "directory", metavar="DIR", type=some("a folder"), help="the directory whose files are served"
    )
    parser.add_argument(
        "--host",
        type=some("an address or the name of a host"),
        default="127.0.0.1",
        help="address to listen on (default: %(default)s)",
    )
    parser.add_argument("--port", type=port, default=0, help="port to listen on (default: a free one)")
    # For a parent that wants its server gone when it is, however it goes.
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted: Ctrl-C is the usual end."""
    with FileServer(Path(arguments.directory), arguments.host, arguments.port) as server:
        print(server.url, flush=True)
        if not arguments.until_stdin_closes:
            _hint(server.url, arguments.directory)
        else:
            threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
        server.serve_forever()
    return 0


def _hint(url: str, directory: str) -> None:
    """Tell whoever sits at a terminal how to go on; who reads stdout only needs the URL."""
    if not sys.stderr.isatty():
        return
    try:
        with os.scandir(directory) as entries:
            names = [
                entry.name
                for entry in islice(entries, _LOOKED_AT)
                if entry.name[0] != "." and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        names = []
    example = quote(os.fsencode(min(names))) if names else "NAME"
    try:
        print(
            f"respool: serving {directory} until Ctrl-C; each file is found by its path: {url}{example}",
            file=sys.stderr,
            flush=True,
        )
    except OSError:
        pass  # the terminal is gone; whoever has the URL is served


def _stop_at_end_of_input(server: FileServer) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # as good as closed
    server.shutdown()
