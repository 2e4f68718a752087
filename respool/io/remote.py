"""`RemoteFile`: reads of an http or https object by ranges.

This module owns a remote file's face: its address, what is known of the object, and how it
travels between processes.  Exchanges and their order are `_remote_jobs`' business.
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from respool.curl.origin import Origin, redact, split
from respool.io._awaited import Awaited
from respool.io._future import ReadFuture, Tally
from respool.io._head import NOTHING
from respool.io._redirect import Address
from respool.io._remote_jobs import ReadJob, SizeJob
from respool.io._source import Pinned, Source
from respool.io.errors import ReadTimeoutError
from respool.io.file import File
from respool.io.plan import checked_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from respool.curl.origin import Credential
    from respool.io._head import Validator
    from respool.io._request import ReadRequest
    from respool.io.errors import RemoteIOError
    from respool.io.session import Session
    from respool.io.verdict import Described

    Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_BAD_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Fields that decide which bytes come and how they're framed; they're this library's to set.
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "range",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def _checked_headers(headers: Headers | None) -> tuple[tuple[str, str], ...]:
    """Return header fields that may be sent; texts of errors don't show values, which may be secret."""
    if headers is None:
        return ()
    allowed = "headers must be a mapping of str to str, or pairs of str"
    if not isinstance(headers, Iterable):
        raise TypeError(f"{allowed}, not {type(headers).__name__}")
    given: list[Any] = list(cast("Any", headers).items() if isinstance(headers, Mapping) else headers)
    for pair in given:
        match pair:
            case (name, value):
                pass
            case _:
                raise TypeError(f"{allowed}, not hold a {_kind(pair)}")
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be a str, not {type(name).__name__}")
        if not _NAME.match(name):
            raise ValueError(f"no header name: {name!r}")
        if not isinstance(value, str):
            raise TypeError(f"the header {name} must have a str as its value, not {type(value).__name__}")
        if name.lower() in _OURS:
            raise ValueError(f"the header {name} is set by the reader itself")
        if _BAD_VALUE.search(value) or not _is_latin(value):
            raise ValueError(f"the header {name} has a value with characters that can't be sent")
    return tuple((name, value) for name, value in given)


def _is_latin(text: str) -> bool:
    return all(ord(char) < 0x100 for char in text)  # noqa: PLR2004 - the end of ISO 8859-1


def _kind(value: object) -> str:
    """Return what kind of thing a value is, for texts that mustn't show it."""
    return f"tuple of {len(cast('Any', value))}" if isinstance(value, tuple) else type(value).__name__


def _check_auth(auth: object) -> None:
    """Refuse what is of no kind that a credential may be, by the name of the argument; `Origin` checks the rest."""
    if auth is None or isinstance(auth, str):
        return
    if not isinstance(auth, tuple):
        raise TypeError(f"auth must be (user, password) or a bearer token, not {type(auth).__name__}")
    parts = cast("tuple[object, ...]", auth)
    if len(parts) != len(("user", "password")):
        raise TypeError(f"auth must be (user, password) or a bearer token, not a {_kind(parts)}")
    for part in parts:
        if not isinstance(part, str):
            raise TypeError(f"auth: user and password must be str, not {type(part).__name__}")


def _address(url: str, headers: Headers | None, auth: Credential | None) -> Address:
    fields = _checked_headers(headers)
    _check_auth(auth)
    parts = split(url)
    # Origin checks the credential, and refuses a second one in the URL.
    Origin.of(parts, credential=auth)
    credential = parts.credential if auth is None else auth
    if credential is not None and any(name.lower() == "authorization" for name, _ in fields):
        raise ValueError("two credentials: the header Authorization, and auth or a user in the URL")
    return Address(parts, credential, fields)


class RemoteFile(File):
    """An http or https object, read by range requests; see `File`.

    Made by `respool.io.open`.  It stands for one version of the object: its size, and the
    ETag or date that the server sent first, are held against every later answer, and one
    that differs is an `ObjectChangedError`.

    Pickling keeps the URL, the size and the validator, but no credential and no header of
    the user's; the copy belongs to the default session of the process that unpickles it.
    """

    __module__ = "respool.io"

    def __init__(
        self,
        session: Session,
        url: str,
        *,
        size: int | None = None,
        headers: Headers | None = None,
        auth: Credential | None = None,
        validator: Validator | None = None,
    ) -> None:
        self._session = session
        known = None if size is None else checked_bytes("size", size)
        address = _address(url, headers, auth)
        self._url = url
        self._name = redact(address.url)
        self._source = Source(address, session.config, session._transport())  # noqa: SLF001 - sessions own transports
        if known is None and validator is None:
            described = self._ask_size()
            self._pinned = Pinned(described.size, described.validator, whole=not described.ranges)
        else:
            self._pinned = Pinned(known, validator or NOTHING)

    def _ask_size(self) -> Described:
        timeout = self._session.config.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        expired = partial(self._open_expired, timeout)
        job = SizeJob(self._source, deadline, expired)
        future: Awaited[Described] = Awaited()
        return self._session._complete(  # noqa: SLF001 - sessions run their files' operations
            job, future, deadline=deadline, expired=expired
        )

    def _open_expired(self, timeout: float | None) -> ReadTimeoutError:
        return ReadTimeoutError(f"opening it took longer than {timeout:g} s", url=self._name)

    @property
    def size(self) -> int | None:
        """The object's size in bytes; None as long as the server hasn't told."""
        return self._pinned.size

    @property
    def url(self) -> str:
        """The URL as it was given, with whatever secrets it has; `name` is the one to show."""
        return self._url

    @property
    def name(self) -> str:
        """The URL without user, password and query values."""
        return self._name

    def _begin(self, request: ReadRequest) -> ReadFuture:
        tally = Tally(self._source.transport.name)
        future = ReadFuture(tally)
        expired = partial(self._expired, request)
        self._session._begin(  # noqa: SLF001 - sessions run their files' operations
            self._job(request, tally, expired), future, deadline=request.deadline, expired=expired
        )
        return future

    def _finish_now(self, request: ReadRequest) -> int:
        tally = Tally(self._source.transport.name)
        expired = partial(self._expired, request)
        return self._session._complete(  # noqa: SLF001 - as above
            self._job(request, tally, expired), ReadFuture(tally), deadline=request.deadline, expired=expired
        )

    def _job(self, request: ReadRequest, tally: Tally, expired: Callable[[], RemoteIOError]) -> ReadJob:
        whole = self._pinned.whole and self._source.config.allow_full_response
        return ReadJob(self._source, self._pinned, request, tally=tally, expired=expired, whole=whole)

    def _nothing(self) -> ReadFuture:
        tally = Tally(self._source.transport.name)
        tally.stop()
        future = ReadFuture(tally)
        future.set_result(0)
        return future

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what is needed to go on with the same version of the object, and no secret.

        Raises
        ------
        pickle.PicklingError
            The URL's query has values that may be a signature: without them the copy could
            read nothing, with them the pickle would be a secret.
        """
        address = self._source.address
        if "?" in address.parts.target:
            self._refuse_pickling()
        return _reopen, (address.url, self.size, self._pinned.validator)

    def _refuse_pickling(self) -> NoReturn:
        raise pickle.PicklingError(
            f"a file whose URL has a query isn't pickled, as that may be a signature: "
            f"pickle the URL and open it where it's needed: {self._name}"
        )


def _reopen(url: str, size: int | None, validator: Validator) -> RemoteFile:
    from respool.io.session import default_session

    return RemoteFile(default_session(), url, size=size, validator=validator)
