"""`EasyHandlePool`: libcurl easy handles kept by origin, so that their connections are reused.

This module owns the pool's face, as far as handles are lent; ``_managed`` has the rest of it.
Limits, waiting and integrity are `respool.ResourcePool`'s, of which it's composed; what a handle
is is ``_easy``'s, how it becomes as good as new ``_pooled``'s, and how one is lent and comes back
``_lease``'s.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from respool.limits import PoolLimits
from respool.pool import ResourcePool

from ._managed import Managed
from ._targets import read_target

try:
    from ._bound import BoundEasyHandlePool
    from ._easy import EasyHandle
    from ._group import lent_many
    from ._lease import acquired, give_back, lent, throw_away
    from ._options import Settings
    from ._pooled import end, quiet, scrub
except ImportError as error:
    if error.name != "pycurl" and not str(error.name).startswith("pycurl."):
        raise
    raise ImportError("easy handles need pycurl: pip install respool[curl]", name="pycurl") from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.observers import PoolObserver

    from ._group import EasyLeaseGroup
    from ._lease import EasyLease
    from ._targets import Target


def _milliseconds(name: str, value: object) -> int | None:
    """Check seconds for an option that libcurl counts in milliseconds, 0 meaning none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if not value > 0:  # this way round, NaN fails too
        raise ValueError(f"{name} must be more than 0 or None, not {value!r}")
    return None if value == math.inf else min(math.ceil(value * 1000), 2**31 - 1)


class EasyHandlePool(Managed):
    """A pool of `pycurl.Curl` handles, one stack of idle ones for each origin.

    Parameters
    ----------
    limits : PoolLimits
        As for `ResourcePool`; keys are `Origin`.  The default sets no limit.
    connect_timeout : float, optional
        Seconds for name, connection and TLS together; None leaves libcurl's own (300).
    transfer_timeout : float, optional
        Seconds for each whole transfer; None for no limit.
    fail_on_error : bool
        Whether an HTTP status of 400 or more fails the transfer (libcurl error 22), and so
        costs the handle.
    name : str
        What the pool is called in messages.
    observer : PoolObserver, optional
        Told what happens; None logs hook errors and leaks.  It sees the `ResourcePool` within.
    track_leases : bool
        Keep the stack of each acquire, for reports of leaks and timeouts.

    Raises
    ------
    TypeError, ValueError
        A timeout that is no number, or not more than 0.
    ImportError
        Without pycurl, already from the import of this name.

    Notes
    -----
    A handle comes as good as new: without options, headers, cookies, share, callbacks,
    attributes and references to an earlier user's objects, but with its connection.  It speaks
    http and https only, and never uses signals.

    Handles are destroyed on release when a transfer failed on them, a callback or the
    with-block raised, they were closed, or a connection-bound option (proxy, TLS, credentials,
    name resolution) or the URL of another origin was set on them after the lease.  Such options
    belong in `Origin.of`.

    A handle keeps one connection, the last that it used, so limits on handles are limits on idle connections
    too.  It's destroyed when it's next asked for, and another one is taken, if something has come in on that
    connection while it was idle, or the server has hung up.  With ``idle_timeout`` and ``max_lifetime``
    connections are closed in time, whether anybody takes a handle or not.

    There is no ``adopt``: of a handle made elsewhere nobody could tell what is set on it.

    Without a proxy in the origin, libcurl takes one from the environment (``https_proxy``,
    ``no_proxy``) at each transfer.

    Waiting for a handle is first come, first served and counts against the ``timeout`` of the
    acquire only, not against libcurl's timeouts.  A forked child starts with an empty pool;
    handles that it inherited are neither used nor closed there.

    Thread safety: every method may be called from any thread; a handle is for one thread at a time.

    Examples
    --------
    >>> from respool.curl import EasyHandlePool
    >>> pool = EasyHandlePool()
    >>> with pool.lease("https://example.com/object") as easy:  # doctest: +SKIP
    ...     body = easy.perform_rb()
    >>> pool.close()
    """

    __module__ = "respool.curl"
    __slots__ = ()

    def __init__(
        self,
        *,
        limits: PoolLimits = PoolLimits(),  # noqa: B008 - frozen, so sharing it is no harm
        connect_timeout: float | None = 10,
        transfer_timeout: float | None = None,
        fail_on_error: bool = False,
        name: str = "handles",
        observer: PoolObserver | None = None,
        track_leases: bool = False,
    ) -> None:
        settings = Settings(
            connect_timeout_ms=_milliseconds("connect_timeout", connect_timeout),
            transfer_timeout_ms=_milliseconds("transfer_timeout", transfer_timeout),
            fail_on_error=bool(fail_on_error),
        )
        # The hooks don't refer to this object: a pool that did would be found dropped only by the collector.
        self._pool = ResourcePool(
            lambda origin: EasyHandle(origin, settings),
            lambda _origin, handle: end(handle),
            lambda _origin, handle: quiet(handle),
            reset=lambda _origin, handle: scrub(handle),
            limits=limits,
            name=name,
            observer=observer,
            track_leases=track_leases,
        )

    def lease(self, key: Target, timeout: float | None = None) -> EasyLease:
        """Lease a handle: ``with pool.lease(url) as easy:`` gives it back at the block's end.

        Parameters
        ----------
        key : str or Origin
            A URL, which is set on the handle (its user and password become the credential and
            are left out of it), or an `Origin`, whose options are set and no URL.
        timeout : float, optional
            Seconds to wait for room; None waits for ever, 0 doesn't wait.

        Returns
        -------
        EasyLease
            It owns the handle until released, discarded or detached.

        Raises
        ------
        ValueError, TypeError
            A URL that isn't one, or an origin that lost its secrets; no text shows any.
        PoolTimeoutError, PoolExhaustedError, PoolClosedError
            As for `ResourcePool.lease`.
        """
        origin, url = read_target(key)
        return lent(self._pool.lease(origin, timeout), url)

    def try_lease(self, key: Target) -> EasyLease | None:
        """Lease a handle that can be had without waiting, or return None."""
        origin, url = read_target(key)
        lease = self._pool.try_lease(origin)
        return None if lease is None else lent(lease, url)

    def lease_many(self, n: int, key: Target, timeout: float | None = None) -> EasyLeaseGroup:
        """Lease several handles of one origin at once: all of them or none.

        Nothing is held while waiting, so two such calls never wait for each other.

        Parameters
        ----------
        n : int
            How many, at least 1.
        key, timeout
            As for `lease`.

        Returns
        -------
        EasyLeaseGroup
            Release it, or use it as a context manager, which gives the tuple of the handles.

        Raises
        ------
        PoolExhaustedError
            So many are more than any limit allows, or the queue is full.
        Exception
            As for `lease`.
        """
        origin, url = read_target(key)
        return lent_many(self._pool.lease_many(n, origin, timeout), url)

    def acquire(self, key: Target, timeout: float | None = None) -> EasyHandle:
        """Take a bare handle, to be given back by `release` or `discard`; else as `lease`."""
        origin, url = read_target(key)
        return acquired(self._pool, self._pool.acquire(origin, timeout), url)

    def try_acquire(self, key: Target) -> EasyHandle | None:
        """Take a bare handle that can be had without waiting, or return None."""
        origin, url = read_target(key)
        handle = self._pool.try_acquire(origin)
        return None if handle is None else acquired(self._pool, handle, url)

    def release(self, handle: EasyHandle, when: Callable[[], object] | None = None) -> None:
        """Give a bare handle back; kept or destroyed as its lease would.

        Parameters
        ----------
        handle : EasyHandle
            The handle.
        when : callable, optional
            Tells whether it's free, if it isn't free at once; see `EasyLease.release`.

        Raises
        ------
        InvalidReleaseError
            It isn't the caller's to give: foreign, idle, given back before or held by a lease;
            or it is in use or in a ``CurlMulti``, and then stays the caller's.
        """
        give_back(self._pool, handle, when)

    def discard(self, handle: EasyHandle) -> None:
        """Destroy a bare handle and close its connection; raises as `release` does."""
        throw_away(self._pool, handle)

    def bind(self, key: Target) -> BoundEasyHandlePool:
        """Return this pool for one origin: the URL is read and the key looked up now, once."""
        origin, url = read_target(key)
        return BoundEasyHandlePool(self._pool.bind(origin), url)

    def __repr__(self) -> str:
        return repr(self._pool).replace("respool.ResourcePool", "respool.curl.EasyHandlePool", 1)
