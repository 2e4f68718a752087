"""The seam between what is read and how it travels.

This module owns the shapes that cross it: a `Fetch` is one HTTP exchange to be made, an
`Outcome` is how it went, and a `Transport` makes it.  Above the seam are ranges, tasks,
redirects and errors; below it are handles, sockets and threads.  A transport follows no
redirect, repeats nothing that a server has answered, and knows no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, unique
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.curl.origin import Origin
    from respool.io._head import ResponseHead
    from respool.io.verdict import Described, Verdict


@dataclass(slots=True, eq=False, kw_only=True)
class Fetch:
    """One HTTP exchange.

    Attributes
    ----------
    url : str
        Absolute, without user and password.
    origin : Origin
        Where to, with all that a connection to it needs, a credential included.
    method : {"GET", "HEAD"}
        HEAD has no body.
    headers : tuple of (str, str)
        Fields to send besides what the transport itself must.
    judge : callable
        Asked once, with the final head, before any byte of the body; its answer says what
        may be kept.  It must be quick and not raise.
    target : memoryview or None
        Where an accepted body goes.  None: nothing is kept.  It's the owner's; a transport
        takes slices of it only while it has the claim, and releases them before that ends.
    position : int
        Where in the target the body goes.
    deadline : float or None
        On the monotonic clock, in seconds.
    """

    url: str
    origin: Origin
    method: Literal["GET", "HEAD"]
    headers: tuple[tuple[str, str], ...]
    judge: Callable[[ResponseHead], Verdict | Described]
    target: memoryview | None = None
    position: int = 0
    deadline: float | None = None


@unique
class FailureKind(Enum):
    """What kept a transfer from ending properly."""

    CONNECT = "connect"
    """No head came: the name, the connection, TLS or the proxy failed, or it was closed first."""
    TIMEOUT = "timeout"
    """The deadline, the time for connecting, or the least speed."""
    BROKEN = "broken"
    """The body ended before its time, or its framing broke."""
    MALFORMED = "malformed"
    """What came is no HTTP head, or too large a one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A transfer that didn't end properly; `text` is one phrase without URL and secrets."""

    kind: FailureKind
    text: str


@dataclass(slots=True)
class Outcome:
    """How an exchange went.

    Attributes
    ----------
    verdict : Verdict or Described or None
        What `Fetch.judge` said; None where no final head came.
    received : int
        Bytes of the body that were kept, from the front of the target.
    failure : Failure or None
        What went wrong with the transfer.  A body that was complete before it did is no
        failure, and neither is a refused body that wasn't read.
    wire_bytes : int
        Bytes of head and body that came over the connection, those dropped included.
    reused : bool
        Whether an existing connection served it.
    protocol : str or None
        Such as ``"HTTP/1.1"``.
    peer : str or None
        Address and port of the other side.
    """

    verdict: Verdict | Described | None = None
    received: int = 0
    failure: Failure | None = None
    wire_bytes: int = 0
    reused: bool = False
    protocol: str | None = None
    peer: str | None = None
    error: BaseException | None = field(default=None)
    """What a callback of the caller raised in mid-transfer."""


F = TypeVar("F", bound=Fetch)
F_contra = TypeVar("F_contra", bound=Fetch, contravariant=True)


class Owner(Protocol[F_contra]):
    """Whoever an exchange is made for; every method may be called from any thread."""

    @property
    def stopped(self) -> bool:
        """Whether the exchange is no longer wanted; asked often, so it's quick."""
        ...

    def claim(self) -> bool:
        """Tell that the exchange begins; False forbids it, and then nothing more is told.

        From a True on, until `finished`, the target may be written to.
        """
        ...

    def advance(self, nbytes: int) -> None:
        """Tell that so many bytes more were kept; what it raises ends the exchange."""
        ...

    def finished(self, fetch: F_contra, outcome: Outcome) -> None:
        """Tell the end of a claimed exchange: nothing writes to the target any more."""
        ...

    def failed(self, fetch: F_contra, error: BaseException) -> None:
        """Tell that an exchange couldn't begin."""
        ...


class Transport(Protocol):
    """A way to make exchanges.  Thread safety: every method may be called from any thread."""

    @property
    def name(self) -> str:
        """What a read's stats call it."""
        ...

    def start(self, fetch: F, owner: Owner[F]) -> None:
        """Take an exchange on and return at once.

        The owner hears of it by `Owner.claim` and then, exactly once, `Owner.finished`; or by
        `Owner.failed` instead.  An exchange whose owner has stopped may be dropped in silence.
        """
        ...
