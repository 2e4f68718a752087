"""What a remote file asks its transport to do: a question for the size, and a read.

This module owns how exchanges follow from each other: redirects, and the tasks of a read.
Retries and resumes belong here too; so far the first failure is the end.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

from respool.io.plan import Task, split
from respool.io.verdict import Accept, Described, Fault, Redirect, Refuse, Verdict, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from respool.io._future import Tally
    from respool.io._head import ResponseHead
    from respool.io._operation import Operation
    from respool.io._redirect import Address
    from respool.io._request import ReadRequest
    from respool.io._source import Exchange, Pinned, Source
    from respool.io._transport import Outcome
    from respool.io.errors import RemoteIOError

#: Statuses by which servers refuse a HEAD for what they'd let a GET have: presigned URLs, old servers.
_HEAD_REFUSED: Final = frozenset(
    {HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
#: Progress is told at least this often, in bytes.
_PROGRESS_STEP: Final = 64 << 10


class SizeJob:
    """The question how large an object is: HEAD, or the first byte where HEAD doesn't tell."""

    def __init__(self, source: Source, deadline: float | None, expired: Callable[[], RemoteIOError]) -> None:
        self._source = source
        self._deadline = deadline
        self._expired = expired
        self._answer: Described | None = None
        self._first: Exchange | None = self._ask(source.address, "HEAD")

    def _ask(self, address: Address, method: Literal["GET", "HEAD"]) -> Exchange:
        probe = method == "GET"

        def judge(head: ResponseHead) -> Described | Redirect | Refuse:
            return describe(head, probe=probe)

        return self._source.exchange(
            address,
            Task(0, 1, 0),
            method,
            fields=(("Range", "bytes=0-0"),) if probe else (),
            judge=judge,
            target=None,
            deadline=self._deadline,
        )

    def take(self) -> Exchange | None:
        """Return the HEAD; what may come after it follows from its answer."""
        first, self._first = self._first, None
        return first

    def start(self, piece: Exchange, operation: Operation[Exchange, Described]) -> None:
        """Hand an exchange to the transport."""
        self._source.transport.start(piece, operation)

    def settle(self, piece: Exchange, outcome: Outcome) -> Iterable[Exchange]:
        """Take an answer, or ask again elsewhere or in another way."""
        verdict, head = outcome.verdict, piece.method == "HEAD"
        if outcome.failure is not None:
            raise self._source.failed(piece, outcome.failure, 0, self._expired)
        if isinstance(verdict, Redirect):
            return [self._ask(self._source.follow(piece, verdict), piece.method)]
        if isinstance(verdict, Described):
            self._answer = verdict
            # A GET tells the size in its Content-Range where a HEAD has no length to tell.
            return [self._ask(self._source.address, "GET")] if head and verdict.size is None else ()
        assert isinstance(verdict, Refuse)  # noqa: S101 - describe gives nothing else
        if head and verdict.fault is Fault.STATUS and verdict.status in _HEAD_REFUSED:
            return [self._ask(self._source.address, "GET")]
        raise self._source.refused(piece, verdict)

    def advance(self, nbytes: int) -> None:
        """Do nothing: no body is kept."""

    def result(self) -> Described:
        """Return the last answer."""
        assert self._answer is not None  # noqa: S101 - without one, settle has raised
        return self._answer

    def release(self) -> None:
        """Do nothing: there's no destination."""


class ReadJob:
    """A read: its tasks, fetched side by side.

    While the object's size isn't known there's one task at a time; mostly the first answer
    tells it.

    Parameters
    ----------
    source, pinned
        Whom to ask, and what is known.
    request : ReadRequest
        What to read; its view is released here.
    tally : Tally
        The read's stats.
    expired : callable
        Makes the error of a read that took too long.
    whole : bool
        Make it a single task: a server that sends the whole object to every request is
        better asked once.
    """

    def __init__(
        self,
        source: Source,
        pinned: Pinned,
        request: ReadRequest,
        *,
        tally: Tally,
        expired: Callable[[], RemoteIOError],
        whole: bool,
    ) -> None:
        self._source = source
        self._pinned = pinned
        self._request = request
        self._tally = tally
        self._expired = expired
        self._task_size = request.length if whole else source.config.task_size
        self._sequential = pinned.size is None
        self._tasks = self._plan(0)
        # Guards what follows.  Progress is told under it, so that what it's told only grows.
        self._lock = threading.Lock()
        self._count = 0
        self._done = 0
        self._told = 0

    def _plan(self, position: int) -> Iterator[Task]:
        """Return the tasks from a position of the destination on, or just the next one."""
        offset, left = self._request.offset + position, self._request.length - position
        size = self._pinned.size
        self._sequential = size is None
        left = min(left, self._task_size) if size is None else min(left, max(size - offset, 0))
        return split(offset, left, self._task_size, position)

    def take(self) -> Exchange | None:
        """Return the next task's exchange."""
        task = next(self._tasks, None)
        return None if task is None else self._ask(task, self._source.address)

    def _ask(self, task: Task, address: Address) -> Exchange:
        fields = [("Range", f"bytes={task.offset}-{task.offset + task.length - 1}")]
        etag = self._pinned.validator.strong_etag
        if etag is not None:
            fields.append(("If-Match", etag))
        allow_full = self._source.config.allow_full_response

        def judge(head: ResponseHead) -> Verdict:
            return self._pinned.judge(task, head, matched=etag, allow_full=allow_full)

        return self._source.exchange(
            address,
            task,
            "GET",
            fields=tuple(fields),
            judge=judge,
            target=self._request.view,
            deadline=self._request.deadline,
        )

    def start(self, piece: Exchange, operation: Operation[Exchange, int]) -> None:
        """Hand an exchange to the transport."""
        self._source.transport.start(piece, operation)

    def settle(self, piece: Exchange, outcome: Outcome) -> Iterable[Exchange]:
        """Count what came, or ask elsewhere; raise for what isn't right."""
        verdict, task = outcome.verdict, piece.task
        self._tally.add(
            wire_bytes=outcome.wire_bytes, reused=outcome.reused, protocol=outcome.protocol, peer=outcome.peer
        )
        if outcome.failure is not None:
            raise self._source.failed(piece, outcome.failure, outcome.received, self._expired)
        if isinstance(verdict, Redirect):
            return [self._ask(task, self._source.follow(piece, verdict))]
        if isinstance(verdict, Refuse):
            raise self._source.refused(piece, verdict)
        assert isinstance(verdict, Accept)  # noqa: S101 - Pinned.judge gives nothing else
        if not verdict.exact and outcome.received < verdict.length:
            self._pinned.learn_end(task.offset + outcome.received)
        with self._lock:
            self._count += outcome.received
        if self._sequential and outcome.received == task.length:
            self._tasks = self._plan(task.position + task.length)
        return ()

    def advance(self, nbytes: int) -> None:
        """Tell the progress, if enough has come since the last time."""
        with self._lock:
            self._done += nbytes
            if self._done - self._told >= _PROGRESS_STEP:
                self._tell()

    def _tell(self) -> None:
        if self._request.progress is not None:
            self._told = self._done
            self._request.progress(self._done, None if self._pinned.size is None else self._request.length)

    def result(self) -> int:
        """Return how many bytes were read, and tell the last of the progress."""
        with self._lock:
            if self._told < self._done:
                self._tell()
            return self._count

    def release(self) -> None:
        """Let go of the destination."""
        self._tally.stop()
        self._request.view.release()
