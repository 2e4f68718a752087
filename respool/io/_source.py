"""`Source`: how to ask for a remote object, and `Pinned`: what is known of it.

This module owns what each request for an object carries, and turns refusals and failures
into exceptions that name the object and the range.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal

from respool._version import __version__
from respool.curl.origin import Origin, redact
from respool.io._fork import renew_in_child
from respool.io._redirect import Address, follow
from respool.io._transport import FailureKind, Fetch
from respool.io.errors import (
    ConnectError,
    HTTPStatusError,
    ObjectChangedError,
    RangeIntegrityError,
    ReadTimeoutError,
    RemoteIOError,
)
from respool.io.verdict import Accept, Described, Fault, RangeRequest, Redirect, Refuse, Verdict, judge_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io._head import ResponseHead, Validator
    from respool.io._transport import Failure, Transport
    from respool.io.config import Config
    from respool.io.plan import Task

AGENT: Final = f"respool/{__version__}"
#: Seconds by which libcurl's clock may come before the deadline that it was given.
_EARLY: Final = 0.05


class Pinned:
    """What is known of an object, which every later answer is held against.

    The first answers fix it; from then on it doesn't change.  Thread safety: every method
    may be called from any thread.
    """

    def __init__(self, size: int | None, validator: Validator, *, whole: bool = False) -> None:
        # Guards the three below.
        self._lock = threading.Lock()
        self._size = size
        self._validator = validator
        self._whole = whole
        renew_in_child(self)

    def after_fork(self) -> None:
        """Begin with a lock that nobody holds; what is known stays known."""
        self._lock = threading.Lock()

    @property
    def whole(self) -> bool:
        """Whether the server is known to send the whole object, whatever is asked for."""
        return self._whole

    @property
    def size(self) -> int | None:
        """The object's size in bytes, where known."""
        return self._size

    @property
    def validator(self) -> Validator:
        """Its version, as far as the server has told."""
        return self._validator

    def judge(self, task: Task, head: ResponseHead, *, matched: str | None, allow_full: bool) -> Verdict:
        """Judge an answer, and learn from it what wasn't known; `matched` is the ETag of the request's If-Match.

        Two answers that come at once are judged one after the other: had each been held
        against nothing, they might be of two versions.
        """
        with self._lock:
            size, length = self._size, task.length
            if size is not None:
                # The task may have been made when the size wasn't known yet.  Where it
                # begins at the end or beyond, the server is left to say so.
                size, length = (
                    (size, min(length, size - task.offset)) if task.offset < size else (None, length)
                )
            request = RangeRequest(
                start=task.offset,
                length=length,
                size=size,
                validator=self._validator,
                # What was pinned since the request was made, nobody was asked for.
                vouched=matched is not None and matched == self._validator.strong_etag,
                allow_full=allow_full,
            )
            verdict = judge_range(request, head)
            if isinstance(verdict, Accept):
                self._validator = self._validator or verdict.validator
                self._size = verdict.total if self._size is None else self._size
                self._whole = self._whole or head.status == HTTPStatus.OK
            return verdict

    def learn_end(self, end: int) -> None:
        """Take note of where a body of unknown length has ended."""
        with self._lock:
            if self._size is None:
                self._size = end


@dataclass(slots=True, eq=False, kw_only=True)
class Exchange(Fetch):
    """A `Fetch` that knows what it's for."""

    address: Address
    task: Task


class Source:
    """How to ask for an object.  Immutable, so safe to share between threads."""

    def __init__(self, address: Address, config: Config, transport: Transport) -> None:
        self.address = address
        self.config = config
        self.transport = transport
        self._origin = self._origin_of(address)

    def _origin_of(self, address: Address) -> Origin:
        return Origin.of(
            address.parts,
            proxy=self.config.proxy,
            ca_bundle=self.config.ca_bundle,
            credential=address.credential,
        )

    def exchange(
        self,
        address: Address,
        task: Task,
        method: Literal["GET", "HEAD"],
        *,
        fields: tuple[tuple[str, str], ...],
        judge: Callable[[ResponseHead], Verdict | Described],
        target: memoryview | None,
        deadline: float | None,
    ) -> Exchange:
        """Return an exchange with all header fields that it needs."""
        headers = address.headers
        if all(name.lower() != "user-agent" for name, _ in headers):
            headers = (("User-Agent", AGENT), *headers)
        return Exchange(
            url=address.url,
            # Made once for the file's own address: that's where nearly all requests go.
            origin=self._origin if address is self.address else self._origin_of(address),
            method=method,
            headers=(("Accept-Encoding", "identity"), *fields, *headers),
            judge=judge,
            target=target,
            position=task.position,
            deadline=deadline,
            address=address,
            task=task,
        )

    def follow(self, exchange: Exchange, redirect: Redirect) -> Address:
        """Return where a redirect leads; raises RedirectError."""
        return follow(exchange.address, redirect.location, allow_downgrade=self.config.allow_downgrade)

    def refused(self, exchange: Exchange, refuse: Refuse) -> RemoteIOError:
        """Return the error for a refused answer."""
        where = self._where(exchange)
        reason = refuse.reason + self._elsewhere(exchange)
        if refuse.fault is Fault.STATUS:
            return HTTPStatusError(refuse.status, reason=reason if refuse.reason else None, **where)
        kind = ObjectChangedError if refuse.fault is Fault.CHANGED else RangeIntegrityError
        return kind(reason, **where)

    def failed(
        self, exchange: Exchange, failure: Failure, got: int, expired: Callable[[], RemoteIOError]
    ) -> RemoteIOError:
        """Return the error for a transfer that didn't end properly; `expired` makes that of a deadline."""
        late = exchange.deadline is not None and time.monotonic() > exchange.deadline - _EARLY
        if failure.kind is FailureKind.TIMEOUT and late:
            return expired()
        text = failure.text + self._elsewhere(exchange)
        where = self._where(exchange)
        if "offset" in where:
            where["got"] = got
        match failure.kind:
            case FailureKind.CONNECT:
                return ConnectError(text, **where)
            case FailureKind.TIMEOUT:
                return ReadTimeoutError(text, **where)
            case FailureKind.BROKEN | FailureKind.MALFORMED:
                return RangeIntegrityError(text, **where)

    def _where(self, exchange: Exchange) -> dict[str, Any]:
        where: dict[str, Any] = {"url": self.address.url}
        if exchange.target is not None:
            where |= {"offset": exchange.task.offset, "size": exchange.task.length}
        return where

    def _elsewhere(self, exchange: Exchange) -> str:
        return f" (after a redirect to {redact(exchange.url)})" if exchange.address.hops else ""
