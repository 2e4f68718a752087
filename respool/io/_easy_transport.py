"""`EasyTransport`: exchanges by libcurl's ``perform`` on pooled handles, one worker each.

This module owns what happens between an exchange and a leased handle: when it begins, what
of the answer is kept, when to break off, and whether the connection may be used again.
What may be kept is said by the verdict, which is asked for when the final head is complete
and before a body byte is looked at.
"""

from __future__ import annotations

import select
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from respool.curl._exchange import TransferError, exchange, facts_of
from respool.errors import PoolClosedError, PoolTimeoutError
from respool.io._head import MalformedHeadError, ResponseHead, content_length
from respool.io._transport import Failure, FailureKind, Outcome
from respool.io.errors import ReadTimeoutError
from respool.io.verdict import Accept, Described, Redirect, Refuse

if TYPE_CHECKING:
    from respool.curl import EasyHandlePool
    from respool.curl._exchange import Facts
    from respool.curl._lease import EasyLease
    from respool.io._transport import F, Fetch, Owner
    from respool.io._workers import Workers
    from respool.io.config import Config
    from respool.io.verdict import Verdict

#: Most bytes of heads in one exchange, interim ones and trailers included.
HEAD_LIMIT: Final = 64 << 10
#: A refused body of at most so many bytes is read and dropped, which costs less than the connection.
_DRAIN: Final = 16 << 10
#: Seconds that a body of which nothing more is wanted gets to end by itself.
_GRACE: Final = 1.0
#: Bytes a second, on average over so many seconds.
_LOW_SPEED_SECONDS: Final = 60

_SWITCHING: Final = 101
_FINAL: Final = 200


class EasyTransport:
    """Exchanges by blocking calls of libcurl; see `respool.io._transport.Transport`.

    Parameters
    ----------
    handles : EasyHandlePool
        Where handles, and so connections, come from.
    workers : Workers
        The threads that block; exchanges wait there in lanes by origin.
    config : Config
        Limits and times.
    """

    def __init__(self, handles: EasyHandlePool, workers: Workers, config: Config) -> None:
        self._handles = handles
        self._workers = workers
        self._per_origin = config.per_origin
        self._low_speed = None if config.low_speed is None else (config.low_speed, _LOW_SPEED_SECONDS)

    @property
    def name(self) -> str:
        """What a read's stats call it."""
        return "easy"

    def start(self, fetch: F, owner: Owner[F]) -> None:
        """Queue an exchange behind others to its origin."""
        self._workers.put(partial(self._carry, fetch, owner), lane=fetch.origin, limit=self._per_origin)

    def _carry(self, fetch: F, owner: Owner[F]) -> None:
        """Do an exchange in this thread, and tell the owner."""
        if owner.stopped:
            return
        try:
            lease = self._lease(fetch)
        except BaseException as error:  # noqa: BLE001 - it's the owner's
            owner.failed(fetch, error)
            return
        claimed = False
        try:
            # Given back before the owner is told: whom it tells may want a handle.
            try:
                claimed = owner.claim()
                outcome = self._try(lease, fetch, owner) if claimed else None
            finally:
                lease.release()
        except BaseException as error:  # noqa: BLE001 - likewise
            outcome = Outcome(error=error)
        if claimed:
            assert outcome is not None  # noqa: S101 - set with the claim
            owner.finished(fetch, outcome)

    def _lease(self, fetch: Fetch) -> EasyLease:
        left = None if fetch.deadline is None else max(0.0, fetch.deadline - time.monotonic())
        try:
            return self._handles.lease(fetch.origin, timeout=left)
        except PoolClosedError:
            raise ValueError("the session is closed") from None
        except PoolTimeoutError as error:
            raise ReadTimeoutError(f"no handle came free in time: {error}", url=fetch.url) from None

    def _try(self, lease: EasyLease, fetch: Fetch, owner: Owner[Any]) -> Outcome:
        """Make an exchange, again on a new connection where an old one turned out to be spoilt."""
        answer = self._perform(lease, fetch, owner, fresh=False)
        if not answer.spoilt or owner.stopped:
            return answer.outcome
        lease.discard()
        try:
            another = self._lease(fetch)
        except ReadTimeoutError:
            return answer.outcome
        try:
            return self._perform(another, fetch, owner, fresh=True).outcome
        finally:
            another.release()

    def _perform(self, lease: EasyLease, fetch: Fetch, owner: Owner[Any], *, fresh: bool) -> _Answer:
        """Make one exchange on a leased handle; the lease is discarded where the connection is spent."""
        easy: Any = lease.resource
        if fresh:
            easy.setopt(easy.FRESH_CONNECT, 1)
        answer = _Answer(fetch, owner)
        left = None if fetch.deadline is None else fetch.deadline - time.monotonic()
        if left is not None and left <= 0:
            answer.outcome.failure = Failure(FailureKind.TIMEOUT, "no time was left to ask")
            return answer
        try:
            facts = exchange(
                easy,
                fetch.url,
                method=fetch.method,
                headers=fetch.headers,
                on_head=answer.on_head,
                on_body=answer.on_body,
                on_beat=answer.on_beat,
                # libcurl counts whole milliseconds; never too early, rather a little late.
                timeout=None if left is None else left + 0.001,
                low_speed=self._low_speed,
            )
        except _GiveUpError:
            answer.end(facts_of(easy))
        except TransferError as error:
            answer.end(error.facts, Failure(FailureKind(error.kind), str(error)))
        except BaseException as error:  # noqa: BLE001 - what a callback raised is the owner's
            answer.outcome.error = error
        else:
            answer.end(facts, ended=True)
            if fresh or _has_leftovers(easy, answer.head):
                lease.discard()
        finally:
            answer.let_go()
        return answer


class _GiveUpError(Exception):
    """Raised from a callback to end the transfer; why, the answer knows."""


class _Answer:
    """One answer as it comes in: heads, verdict, body."""

    def __init__(self, fetch: Fetch, owner: Owner[Any]) -> None:
        self.outcome = Outcome()
        self.head: ResponseHead | None = None
        self._fetch = fetch
        self._owner = owner
        self._lines: list[bytes] = []
        self._head_bytes = 0
        self._body_bytes = 0
        # Of the body still to be passed over, and of the target still to be filled.
        self._skip = 0
        self._room: memoryview | None = None
        # How much more of an unwanted body may come, and since when nothing is wanted.
        self._drain = 0
        self._done_at: float | None = None
        self._malformed: str | None = None

    # Callbacks of the transfer

    def on_head(self, line: bytes) -> None:
        """Collect a head, and have the final one judged."""
        self._head_bytes += len(line)
        if self._head_bytes > HEAD_LIMIT:
            self._malformed = f"a head of more than {HEAD_LIMIT} bytes"
            raise _GiveUpError
        if self.outcome.verdict is not None:
            return  # a trailer: what it says comes too late to be believed
        self._lines.append(line)
        if line in {b"\r\n", b"\n"}:
            lines, self._lines = self._lines, []
            self._judge(lines)

    def _judge(self, lines: list[bytes]) -> None:
        try:
            head = ResponseHead.of_lines(lines)
        except MalformedHeadError as error:
            self._malformed = str(error)
            raise _GiveUpError from None
        if head.status < _FINAL and head.status != _SWITCHING:
            return
        self.head = head
        verdict = self.outcome.verdict = self._fetch.judge(head)
        if isinstance(verdict, Accept):
            self._skip = verdict.skip
            if self._fetch.target is not None:
                begin = self._fetch.position
                self._room = self._fetch.target[begin : begin + verdict.length]
            if verdict.length == 0:
                self._done_at = time.monotonic()
            return
        self._done_at = time.monotonic()
        if self._fetch.method != "HEAD" and not _may_drain(verdict, head):
            raise _GiveUpError
        self._drain = _DRAIN

    def on_body(self, chunk: memoryview) -> None:
        """Keep what the verdict allows, straight into the target."""
        nbytes = len(chunk)
        self._body_bytes += nbytes
        verdict = self.outcome.verdict
        if not isinstance(verdict, Accept) or self._room is None:
            self._drain -= nbytes
            if self._drain < 0:
                raise _GiveUpError
            return
        begin = min(self._skip, nbytes)
        self._skip -= begin
        received = self.outcome.received
        take = min(nbytes - begin, verdict.length - received)
        if take:
            self._room[received : received + take] = chunk[begin : begin + take]
            self.outcome.received = received + take
            self._owner.advance(take)
            if self.outcome.received == verdict.length:
                self._done_at = time.monotonic()
        if begin + take < nbytes:
            # Everything is there, and more comes: of a whole object, or of a server's making.
            raise _GiveUpError

    def on_beat(self) -> None:
        """Break off what nobody wants any more."""
        if self._owner.stopped:
            raise _GiveUpError
        if self._done_at is not None and time.monotonic() - self._done_at > _GRACE:
            raise _GiveUpError

    # The end

    @property
    def spoilt(self) -> bool:
        """Whether a kept connection gave nothing that looks like an answer: the request may be made again."""
        outcome = self.outcome
        return (
            outcome.reused
            and self._head_bytes == 0
            and outcome.failure is not None
            and outcome.failure.kind is not FailureKind.TIMEOUT
        )

    def let_go(self) -> None:
        """Let go of the target."""
        if self._room is not None:
            self._room.release()
            self._room = None

    def end(self, facts: Facts, failure: Failure | None = None, *, ended: bool = False) -> None:
        """Take down how it went; `ended` when the transfer came to its proper end."""
        outcome = self.outcome
        outcome.wire_bytes = self._head_bytes + self._body_bytes
        outcome.reused = facts.connects == 0 and facts.peer is not None
        outcome.protocol = None if self.head is None else f"HTTP/{self.head.version}"
        outcome.peer = facts.peer
        verdict = outcome.verdict
        if self._malformed is not None:
            outcome.failure = Failure(FailureKind.MALFORMED, self._malformed)
        elif verdict is None:
            outcome.failure = failure or Failure(FailureKind.CONNECT, "no answer came")
        elif (
            isinstance(verdict, Accept) and outcome.received < verdict.length and (verdict.exact or not ended)
        ):
            outcome.failure = failure or Failure(FailureKind.BROKEN, "the body ended too early")


def _may_drain(verdict: Verdict | Described, head: ResponseHead) -> bool:
    """Whether an unwanted body may be read to its end, for the connection's sake."""
    if isinstance(verdict, Refuse) and not verdict.drain:
        return False
    assert isinstance(verdict, Refuse | Redirect | Described)  # noqa: S101 - an accepted body is wanted
    try:
        length = content_length(head)
    except MalformedHeadError:
        return False
    return length is not None and length <= _DRAIN


def _has_leftovers(easy: Any, head: ResponseHead | None) -> bool:  # noqa: ANN401 - a handle, whose constants are its attributes
    """Whether an idle connection has something to say: bytes behind a body, or its end.

    libcurl 8.23 keeps such a connection, and takes what lies there for the next answer.
    """
    if head is None or not head.version.startswith("1"):
        return False  # HTTP/2 and later speak when they please
    fd = easy.getinfo(easy.ACTIVESOCKET)
    if fd < 0:
        return False
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(0))
