"""The exceptions of reading: what failed, of which URL and range, without secrets.

This module owns the classes and their texts.  Which of them an answer or a broken transfer
deserves is decided by `respool.io.verdict` and by the readers.

Every class can be pickled, and every URL in a message or attribute has gone through
`respool.curl.origin.redact` first: passwords and signatures never get this far.
"""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Any, Self

from respool.curl.origin import redact
from respool.io.plan import counted


def _rebuild(
    cls: type[RemoteIOError], args: tuple[object, ...], state: dict[str, object], *new: object
) -> RemoteIOError:
    """Make an unpickled error without going through the constructor, which would build its text again."""
    error: RemoteIOError = cls.__new__(cls, *new)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error


class RemoteIOError(OSError):
    """A read failed; the base of all errors of `respool.io` that come from the other side.

    Parameters
    ----------
    reason : str
        What happened, without the URL.
    url : str, optional
        Which object; redacted here, so any URL may be given, or the path of a local file.
    offset, size : int, optional
        The range asked for, in bytes.
    got : int, optional
        How many bytes of it arrived.

    Attributes
    ----------
    url : str or None
        The object's URL without credentials and signatures; ``filename`` is the same.
    offset, size : int or None
        The range asked for.
    got : int or None
        How many bytes of that range arrived before the failure.
    """

    __module__ = "respool.io"

    #: What ``errno`` is where the system has a number that fits.
    _errno: int | None = errno.EIO

    url: str | None
    offset: int | None
    size: int | None
    got: int | None

    def __init__(
        self,
        reason: str,
        *,
        url: str | None = None,
        offset: int | None = None,
        size: int | None = None,
        got: int | None = None,
    ) -> None:
        # A path is shown as it is: redact would take parts of it for credentials.
        self.url = redact(url) if url is not None and "://" in url else url
        self.offset = offset
        self.size = size
        self.got = got
        text = _text(reason, self.url, offset, size, got)
        super().__init__(text)
        # OSError's constructor leaves args alone in a class that has a __new__ of its own.
        self.args = (text,)
        self.errno = self._errno
        self.filename = self.url

    def __str__(self) -> str:
        # OSError's own would print "[Errno 5] ..." and the filename a second time.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "errno": self.errno,
            "filename": self.filename,
            **self.__dict__,
        }
        return _rebuild, (type(self), self.args, state)


def _text(reason: str, url: str | None, offset: int | None, size: int | None, got: int | None) -> str:
    """Put a message together: what happened, what was asked, what came, of which URL."""
    parts = [reason]
    if offset is not None:
        asked = (
            f"asked for {counted(size)} at offset {offset}"
            if size is not None
            else f"asked from offset {offset}"
        )
        parts.append(asked if got is None else f"{asked}, got {got}")
    text = "; ".join(parts)
    return text if url is None else f"{text}: {url}"


class HTTPStatusError(RemoteIOError):
    """The server answered with a status that isn't the bytes asked for.

    A 404 is a `FileNotFoundError` too, 401 and 403 are `PermissionError` as well; the class
    is picked from the status.

    Parameters
    ----------
    status : int
        The answer's status code.
    url : str, optional
        Which object; redacted here.
    reason : str, optional
        What to say instead of the status's usual phrase.
    offset, size : int, optional
        The range asked for, in bytes.

    Attributes
    ----------
    status : int
        The status code.
    """

    __module__ = "respool.io"

    status: int

    def __new__(  # noqa: D102 - see the class
        cls,
        status: int,
        url: str | None = None,  # noqa: ARG004 - those of __init__
        *,
        reason: str | None = None,  # noqa: ARG004
        offset: int | None = None,  # noqa: ARG004
        size: int | None = None,  # noqa: ARG004
    ) -> Self:
        chosen: type[Any] = _BY_STATUS.get(status, cls) if cls is HTTPStatusError else cls
        error: Self = super().__new__(chosen)
        return error

    def __init__(
        self,
        status: int,
        url: str | None = None,
        *,
        reason: str | None = None,
        offset: int | None = None,
        size: int | None = None,
    ) -> None:
        self.status = status
        super().__init__(reason or f"HTTP status {_phrase(status)}", url=url, offset=offset, size=size)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (_, *rest) = super().__reduce__()
        return rebuild, (HTTPStatusError, *rest, self.status)


# Shown and pickled as HTTPStatusError: which of the three it is follows from the status.


class _NotFoundError(HTTPStatusError, FileNotFoundError):
    __module__ = "respool.io"
    _errno = errno.ENOENT


class _ForbiddenError(HTTPStatusError, PermissionError):
    __module__ = "respool.io"
    _errno = errno.EACCES


_BY_STATUS: dict[int, type[HTTPStatusError]] = {
    HTTPStatus.NOT_FOUND: _NotFoundError,
    HTTPStatus.UNAUTHORIZED: _ForbiddenError,
    HTTPStatus.FORBIDDEN: _ForbiddenError,
}
for _kind in _BY_STATUS.values():
    # Both: a traceback shows the one, repr and most logs the other.
    _kind.__name__ = _kind.__qualname__ = HTTPStatusError.__name__


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


class RangeIntegrityError(RemoteIOError):
    """What came isn't what was asked for: another range, length, encoding or framing, or too few bytes."""

    __module__ = "respool.io"


class ObjectChangedError(RemoteIOError):
    """The object isn't the one that was opened: its size, ETag or modification date differs."""

    __module__ = "respool.io"

    _errno = errno.ESTALE


class ReadTimeoutError(RemoteIOError, TimeoutError):
    """The read didn't end in time; waiting for a worker or a pool counts."""

    __module__ = "respool.io"

    _errno = errno.ETIMEDOUT


class ConnectError(RemoteIOError, ConnectionError):
    """No answer: the name, the connection, TLS or the proxy failed, or the server hung up before its head."""

    __module__ = "respool.io"

    _errno = errno.ECONNREFUSED


class RedirectError(RemoteIOError):
    """A redirect that can't or mustn't be followed: too many, to plain http, to another scheme, to nowhere."""

    __module__ = "respool.io"

    _errno = errno.ELOOP


class CredentialsError(RemoteIOError, PermissionError):
    """Credentials that can't be used or got."""

    __module__ = "respool.io"

    _errno = errno.EACCES
