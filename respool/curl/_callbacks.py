"""Callbacks that lose nothing of what they raise.

pycurl prints an Exception from a callback and lets perform fail with a number.  Here it's
kept in the handle's record, for perform to raise, and libcurl is told to give up in the way
that this callback has for it.  Owns the table of callbacks, and what wraps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import pycurl

if TYPE_CHECKING:
    from collections.abc import Callable


class Keeper(Protocol):
    """Where the first error of a handle's callbacks is kept."""

    error: BaseException | None


class Stop(BaseException):
    """Raised into libcurl by a callback that has no value for "give up".

    No Exception, since pycurl prints those; it keeps others pending until perform is over.
    """


#: Callbacks, with what each returns to make libcurl give up.  (Those of FTP and SSH are never called.)
CALLBACKS: Final[dict[int, object]] = {
    getattr(pycurl, name): abort
    for name, abort in (
        ("WRITEFUNCTION", -1),
        ("HEADERFUNCTION", -1),
        ("READFUNCTION", 0x10000000),  # CURL_READFUNC_ABORT
        ("XFERINFOFUNCTION", 1),
        ("PROGRESSFUNCTION", 1),
        ("DEBUGFUNCTION", 0),  # what it returns is not looked at: the transfer goes on
        ("SEEKFUNCTION", 1),
        ("IOCTLFUNCTION", 2),
        ("OPENSOCKETFUNCTION", -1),
        ("CLOSESOCKETFUNCTION", 1),
        ("SOCKOPTFUNCTION", 1),
        ("PREREQFUNCTION", 1),
        ("RESOLVER_START_FUNCTION", 1),
        ("TRAILERFUNCTION", Stop()),
    )
    if hasattr(pycurl, name)
}

#: Options that take an object with a method, and the callback that pycurl makes of it.
FILES: Final = {
    pycurl.WRITEDATA: (pycurl.WRITEFUNCTION, "write"),
    pycurl.WRITEHEADER: (pycurl.HEADERFUNCTION, "write"),
    pycurl.READDATA: (pycurl.READFUNCTION, "read"),
}

#: Callbacks that may ask for a memoryview of what came.
VIEWS: Final = frozenset({pycurl.WRITEFUNCTION, pycurl.HEADERFUNCTION})


def guard(callback: Callable[..., object], record: Keeper, abort: object) -> Callable[..., object]:
    """Wrap a callback: what it raises is kept for `perform`, and libcurl is told to give up."""

    def guarded(*args: object) -> object:
        try:
            return callback(*args)
        except BaseException as error:  # noqa: BLE001 - perform raises it again, KeyboardInterrupt too
            if record.error is None:
                record.error = error
            if isinstance(abort, Stop):
                raise abort from None
            return abort

    return guarded


def with_view(callback: Callable[..., object]) -> Callable[..., object]:
    """Let a callback have a view of a copy of what came."""

    def viewed(chunk: bytes) -> object:
        view = memoryview(chunk)
        try:
            return callback(view)
        finally:
            try:
                view.release()  # as pycurl does; what was sliced off it keeps the copy alive
            except BufferError:
                pass  # somebody exports it, numpy say: that keeps the copy alive as well

    return viewed
