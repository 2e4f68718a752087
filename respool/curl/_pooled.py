"""What a pool does with its handles: lend them, judge them when they come back, scrub and end them.

The functions are for the pool alone: `lend`, `refusal` (may it come back now?), `unfit` (may it
be kept?), `scrub` (as good as new), `quiet` (may it be lent again?) and `end`.  Who has a
handle, and how many there may be, is the core's business.
"""

# ruff: noqa: SLF001 - a handle's record is shared with its pool

from __future__ import annotations

from typing import TYPE_CHECKING

import pycurl

from respool.errors import PoolError

from ._callbacks import CALLBACKS, guard
from ._easy import IDLE, LENT, OWN, apply, forks, is_silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._easy import EasyHandle


def set_body_sink(handle: EasyHandle, sink: Callable[[memoryview], object]) -> None:
    """Give the body to trusted code, as views of libcurl's own memory: nothing of them may be kept."""
    record = handle._check("setopt")
    pycurl.Curl.setopt(
        handle,
        pycurl.WRITEFUNCTION,
        guard(sink, record, CALLBACKS[pycurl.WRITEFUNCTION]),
        use_memoryview=True,
    )


def lend(handle: EasyHandle, url: str | None) -> None:
    """Let it be used, with this URL of its origin set, if any."""
    if url is not None:
        pycurl.Curl.setopt(handle, pycurl.URL, url)
    handle._record.state = LENT


def disown(handle: EasyHandle) -> None:
    """Let its user have it for good."""
    handle._record.state = OWN


def inherited(handle: EasyHandle) -> bool:
    """Whether it came by a fork: its connections are another process's."""
    return handle._record.forks != forks()


def refusal(handle: EasyHandle) -> str | None:
    """Tell why it can't be taken back now, or None.  It isn't touched."""
    if handle.multi() is not None:
        return "is still in a CurlMulti: remove it there first"
    if not handle.closed:
        try:
            # pycurl knows best: it refuses this as long as a perform runs, on whichever thread.
            pycurl.Curl.getinfo(handle, pycurl.RESPONSE_CODE)
        except pycurl.error:
            return "is in use: perform() is running on it"
    return None


def unfit(handle: EasyHandle) -> str | None:
    """Tell why nobody should get it again, or None."""
    record = handle._record
    if record.error is not None:
        return "a callback raised"  # in a multi: perform would have taken the error out
    return "it was closed" if handle.closed else record.doubt


def quiet(handle: EasyHandle) -> bool:
    """Whether its idle connection is as it should be: nobody has sent anything, or hung up."""
    socket = handle._record.socket
    return socket < 0 or is_silent(socket)


def scrub(handle: EasyHandle) -> None:
    """Make it as good as new, keeping the connection; drops all that refers to its user's objects.

    Raises
    ------
    PoolError
        It isn't fit for that, which shows only now where it was given back before its transfer was over.
    """
    record = handle._record
    why = unfit(handle)
    if why is not None:
        raise PoolError(f"{handle!r} can't be kept: {why}")
    record.state = IDLE  # first: whoever kept a reference is locked out before the work begins
    record.error = record.doubt = None
    record.fresh = False
    attributes, record.attributes = record.attributes, set()
    for name in attributes:
        try:
            pycurl.Curl.__delattr__(handle, name)
        except AttributeError:
            pass  # its user had deleted it
    pycurl.Curl.setopt(handle, pycurl.SHARE, None)
    pycurl.Curl.reset(handle)
    if record.cookies:
        # Clearing the cookies leaves the engine running, so that the next user would collect some and send
        # them.  Only this frees it: attach a share for cookies, which replaces it, and detach that again.
        share = pycurl.CurlShare()
        share.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_COOKIE)
        pycurl.Curl.setopt(handle, pycurl.SHARE, share)
        pycurl.Curl.setopt(handle, pycurl.SHARE, None)
        share.close()
        record.cookies = False
    # Cookies that came in by a way not noted above would end here.
    pycurl.Curl.setopt(handle, pycurl.COOKIELIST, "ALL")
    apply(handle)


def end(handle: EasyHandle) -> None:
    """Close it and its connections."""
    record = handle._record
    record.state = IDLE
    record.error = None
    pycurl.Curl.close(handle)
