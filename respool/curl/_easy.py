"""One pooled easy handle, as its user sees it.

`EasyHandle` is a `pycurl.Curl` that knows its origin, remembers how its transfers ended,
keeps what a callback raised, and looks at its connection before it uses it again.  What its
pool does with it is ``_pooled``'s.

Facts of libcurl 8.23 and pycurl 7.49 that this is built around: a reset keeps cookies, the
cookie engine, the share and Python attributes; an Exception from a callback is printed and
lost, and perform says "error 23"; reset, setopt and close go through in the middle of a
transfer in a multi, while during perform getinfo is refused like the others.  An idle
connection on which bytes arrive is kept, and what lies there is taken for the next answer.
"""

from __future__ import annotations

import ctypes
import os
import select
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pycurl

from respool.errors import LeaseLostError, LeaseReleasedError

from ._callbacks import CALLBACKS, FILES, VIEWS, Stop, guard, with_view
from ._options import BOUND, COOKIES, headers_bind, options_for
from .origin import redact, split

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._options import Settings
    from .origin import Origin

IDLE: Final = "idle"  # nobody has it: its pool keeps it, or it is being made or ended
LENT: Final = "lent"
OWN: Final = "own"  # detached: its user's for good, and no longer looked after

_UNFINISHED: Final = "a transfer did not end well"

# Counts the forks between the first process and this one.  A list, so that a finaliser that runs
# late, when module globals may be gone, still reads it.
_forks: Final = [0]

_keep_for_ever: Final = ctypes.pythonapi.Py_IncRef
_keep_for_ever.argtypes = [ctypes.py_object]
_keep_for_ever.restype = None


def _forked() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """Return the number of forks between the first process and this one."""
    return _forks[0]


class Record:
    """What is known of a handle; kept apart from it, so that callbacks need not refer to it."""

    __slots__ = (
        "attributes",
        "cookies",
        "doubt",
        "error",
        "forks",
        "fresh",
        "options",
        "origin",
        "prefix",
        "socket",
        "state",
    )

    def __init__(self, origin: Origin, options: tuple[tuple[int, Any], ...]) -> None:
        self.origin = origin
        self.options = options
        self.prefix = origin.url
        self.state: str = IDLE
        self.forks = _forks[0]
        self.doubt: str | None = None
        self.error: BaseException | None = None
        self.cookies = False
        self.attributes: set[str] = set()
        # The socket of the one connection that `perform` has left, where it's silent while idle; -1 for none.
        self.socket = -1
        self.fresh = False  # its user has asked for new connections


class EasyHandle(pycurl.Curl):
    """A `pycurl.Curl` that belongs to an `EasyHandlePool`: what ``pool.lease`` gives.

    Everything of pycurl works on it, with these differences:

    - What a callback raises leaves `perform` as that very exception, whatever it is.
    - ``use_memoryview=True`` gives callbacks a view of a copy: a slice that is kept stays
      readable (pycurl's own reads freed memory).
    - `reset` brings back what it was when it was lent, not libcurl's defaults.
    - It can't be duplicated, copied or pickled.
    - Once given back it refuses to be used: `LeaseReleasedError`; in a forked child `LeaseLostError`.

    Like any easy handle it is for one thread at a time.
    """

    # pycurl's own setattr stores everything in a dict of its own and knows nothing of slots, so
    # the one slot is set through its descriptor.
    __slots__ = ("_record",)
    _record: Record

    def __init__(self, origin: Origin, settings: Settings) -> None:
        _set_record(self, Record(origin, options_for(origin, settings)))
        apply(self)

    def _check(self, what: str) -> Record:
        """Return the record, if this handle may be used now."""
        record = self._record
        if record.forks != _forks[0]:
            raise LeaseLostError(f"{what}() of a handle made before this process forked: lease another one")
        if record.state is IDLE:
            raise LeaseReleasedError(f"{what}() of a handle that was given back to its pool")
        return record

    def setopt(self, option: int, value: Any, *, use_memoryview: bool = False) -> None:  # noqa: ANN401
        """Set an option, as in pycurl.

        Options that bind a connection (proxy, TLS, credentials, name resolution ...) make the
        handle be discarded on release; give them to `Origin.of` instead.

        Raises
        ------
        ValueError
            For a URL of another origin on a handle that carries a credential.
        """
        record = self._check("setopt")
        if value is None:
            self.unsetopt(option)
            return
        if option in FILES and hasattr(value, FILES[option][1]):
            option, method = FILES[option]
            value = getattr(value, method)
        if option == pycurl.URL:
            _note_url(record, value)
        elif option == pycurl.HTTPHEADER:
            if headers_bind(value):
                record.doubt = record.doubt or "a header authenticates its connection"
        else:
            _note(record, option)
            if option == pycurl.FRESH_CONNECT:
                record.fresh = bool(value)
        if option in CALLBACKS and callable(value):
            copy = use_memoryview and option in VIEWS
            super().setopt(option, guard(with_view(value) if copy else value, record, CALLBACKS[option]))
        elif use_memoryview:
            super().setopt(option, value, use_memoryview=True)  # pycurl says what is wrong with it
        else:
            super().setopt(option, value)

    def setopt_string(self, option: int, value: str) -> None:
        """Set an option to a text; the same as `setopt`."""
        record = self._check("setopt_string")
        if option == pycurl.URL:
            _note_url(record, value)
        else:
            _note(record, option)
        super().setopt_string(option, value)

    def unsetopt(self, option: int) -> None:
        """Set an option back to libcurl's default; counts as setting it."""
        record = self._check("unsetopt")
        _note(record, option)
        super().unsetopt(option)
        if option == pycurl.FRESH_CONNECT:
            record.fresh = False

    def set_ca_certs(self, value: str | bytes, /) -> None:
        """Trust these certificates; the handle is then discarded on release."""
        record = self._check("set_ca_certs")
        record.doubt = record.doubt or "certificates were set after the lease"
        super().set_ca_certs(value)

    def perform(self) -> None:
        """Run the transfer that is set up.

        A connection on which something has come in while it was idle, or that the server has hung up on, isn't
        used again: libcurl would take what lies there for the answer.

        Raises
        ------
        pycurl.error
            It failed; the handle will be discarded on release.
        BaseException
            Whatever a callback raised: the very exception.
        """
        record = self._check("perform")
        # Doubted until it has ended well: an interrupt may leave from anywhere in between.
        doubt, record.doubt = record.doubt, record.doubt or _UNFINISHED
        try:
            self._run(record)
        except (pycurl.error, Stop) as failure:
            if failure.args and isinstance(failure.args[0], str):
                record.doubt = doubt  # nothing was begun: closed, or running already; pycurl says which
                raise
            error, record.error = record.error, None
            if error is None:
                raise
        else:
            error, record.error = record.error, None
            if error is None:
                record.doubt = doubt
                return
        try:
            raise error  # not inside the handler above: pycurl's "error 23" is no context worth having
        finally:
            del error  # its traceback holds this frame

    def _run(self, record: Record) -> None:
        """Perform, on a new connection if the old one isn't as it should be."""
        socket, record.socket = record.socket, -1
        if socket < 0 or is_silent(socket):
            super().perform()
        else:
            super().setopt(pycurl.FRESH_CONNECT, 1)
            try:
                super().perform()  # a handle keeps one connection, so the old one is closed
            finally:
                super().setopt(pycurl.FRESH_CONNECT, record.fresh)
        if super().getinfo(pycurl.INFO_HTTP_VERSION) <= pycurl.CURL_HTTP_VERSION_1_1:
            record.socket = super().getinfo(pycurl.ACTIVESOCKET)  # later versions speak when they please

    def perform_rb(self) -> bytes:
        """Run the transfer and return its body."""
        body = BytesIO()
        self.setopt(pycurl.WRITEDATA, body)
        self.perform()
        return body.getvalue()

    def perform_rs(self) -> str:
        """Run the transfer and return its body as text (UTF-8)."""
        return self.perform_rb().decode()

    def reset(self) -> None:
        """Set all options back to what they were when the handle was lent.

        Raises
        ------
        ValueError
            The handle is closed.
        """
        self._check("reset")
        if self.closed:
            raise ValueError("reset() of a closed handle")
        super().reset()
        self._record.fresh = False
        apply(self)

    def close(self) -> None:
        """End the handle and its connections; release then makes room for another one.

        In a forked child it does nothing: the connections are the parent's.
        """
        if self._record.forks == _forks[0]:
            self._check("close")
            super().close()

    def duphandle(self) -> NoReturn:
        """Refuse: a pooled handle is lent once."""
        raise TypeError("a pooled handle can't be duplicated: lease another one")

    def __copy__(self) -> NoReturn:
        raise TypeError("a pooled handle can't be copied: lease another one")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a pooled handle can't be copied: lease another one")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a pooled handle can't be pickled: its connections belong to this process")

    def __enter__(self) -> EasyHandle:  # noqa: PYI034 - this class is not for subclassing
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def __setattr__(self, name: str, value: object) -> None:
        # pycurl has no way to list its attributes, so their names are kept for `scrub`.
        self._check("setattr").attributes.add(name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        record = self._record
        state = "closed" if self.closed else record.state
        return f"<EasyHandle for {record.origin.url} ({state})>"

    def __del__(
        self, _forks: list[int] = _forks, _keep_for_ever: Callable[[object], None] = _keep_for_ever
    ) -> None:
        record = getattr(self, "_record", None)
        if record is not None and record.forks != _forks[0]:
            # A copy that a fork made.  Freeing it would say goodbye, over the very sockets that the
            # parent is using, and the servers would hang up on the parent.  A leak is preferred, also
            # at the child's exit: this is why a mere list that holds the handles wouldn't do.
            _keep_for_ever(self)
        else:
            super().__del__()  # type: ignore[misc]  # the stubs don't have it


_set_record: Final = EasyHandle._record.__set__  # type: ignore[attr-defined]  # noqa: SLF001  # a slot's descriptor


def _note(record: Record, option: int) -> None:
    """Remember what an option that is about to be set means for the handle's future."""
    if option in BOUND:
        record.doubt = record.doubt or "an option that binds its connection was set after the lease"
    if option in COOKIES:
        record.cookies = True


def _note_url(record: Record, value: object) -> None:
    """Doubt a handle that is sent elsewhere; refuse to take a credential there."""
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        return  # pycurl says what is wrong with it
    if text.startswith(record.prefix) and text[len(record.prefix) :][:1] in {"", "/", "?", "#"}:
        return  # the usual case, without taking it apart
    try:
        parts = split(text)
    except ValueError:
        same = own = False  # libcurl may read what `split` refuses, and nobody knows how
    else:
        origin = record.origin
        same = (parts.scheme, parts.host, parts.port) == (origin.scheme, origin.host, origin.port)
        own = parts.credential is not None
    if not same and record.origin.credential is not None:
        raise ValueError(f"this handle carries a credential for {record.prefix}, not for '{redact(text)}'")
    if not same or own:
        record.doubt = record.doubt or "a URL that isn't of its origin was set after the lease"


def apply(handle: EasyHandle) -> None:
    """Set what an unused handle of its origin has set."""
    setopt = pycurl.Curl.setopt
    for option, value in handle._record.options:  # noqa: SLF001 - this module is the handle's own
        setopt(handle, option, value)


def is_silent(socket: int) -> bool:
    """Whether nothing has come in on an idle connection: no bytes, and not its end."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | select.POLLRDHUP)
    # A number that isn't open any more (POLLNVAL) is that of a connection that libcurl has closed.
    return not any(event & ~select.POLLNVAL for _, event in poll.poll(0))
