"""`EasyHandlePool`: libcurl easy handles kept by origin, so that their connections are reused.

This module owns the pool's face.  Limits, waiting and integrity are `respool.ResourcePool`'s,
of which it's composed; what a handle is and how it becomes as good as new is ``_easy``'s, and
how one is lent and comes back ``_lease``'s.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from respool._keys import ALL, All
from respool.limits import PoolLimits
from respool.pool import ResourcePool

from .origin import Origin, split

try:
    from ._easy import EasyHandle, end, scrub
    from ._lease import EasyLease, acquired, give_back, lent, throw_away
    from ._options import Settings
except ImportError as error:
    if error.name != "pycurl" and not str(error.name).startswith("pycurl."):
        raise
    raise ImportError("easy handles need pycurl: pip install respool[curl]", name="pycurl") from error

if TYPE_CHECKING:
    from types import TracebackType

    from respool.bound import BoundPool
    from respool.observers import PoolObserver
    from respool.stats import PoolStats

Target: TypeAlias = str | Origin

# Most URLs are plain ASCII without a user or a fragment.  Theirs is read once for each origin.
_PLAIN: Final = re.compile(r"(https?://[a-z0-9.:-]+)([/?][!-\"$-~]*)?\Z")


@lru_cache(maxsize=1024)
def _plain_origin(prefix: str) -> Origin:
    return Origin.of(prefix)


def _target(target: Target) -> tuple[Origin, str | None]:
    """Return the key, and the URL to set where the target is one."""
    if isinstance(target, Origin):
        target.secrets()  # raises for one that has lost them, before anybody waits for it
        return target, None
    plain = _PLAIN.match(target) if isinstance(target, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if plain is not None:
        origin = _plain_origin(plain[1])
        tail = plain[2] or "/"
        return origin, f"{origin.url}{tail}" if tail[0] == "/" else f"{origin.url}/{tail}"
    parts = split(target)
    return Origin.of(parts), parts.url


def _milliseconds(name: str, value: object) -> int | None:
    """Check seconds for an option that libcurl counts in milliseconds, 0 meaning none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds or None, not {value!r}")
    if not value > 0:  # this way round, NaN fails too
        raise ValueError(f"{name} must be more than 0 or None, not {value!r}")
    return None if value == math.inf else min(math.ceil(value * 1000), 2**31 - 1)


def _key(key: Target | All) -> Origin | All:
    return key if isinstance(key, All) else _target(key)[0]


class EasyHandlePool:
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
    __slots__ = ("__weakref__", "_pool")

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
        self._pool: ResourcePool[Origin, EasyHandle] = ResourcePool(
            lambda origin: EasyHandle(origin, settings),
            lambda _origin, handle: end(handle),
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
        origin, url = _target(key)
        return lent(self._pool.lease(origin, timeout), url)

    def try_lease(self, key: Target) -> EasyLease | None:
        """Lease a handle that can be had without waiting, or return None."""
        origin, url = _target(key)
        lease = self._pool.try_lease(origin)
        return None if lease is None else lent(lease, url)

    def acquire(self, key: Target, timeout: float | None = None) -> EasyHandle:
        """Take a bare handle, to be given back by `release` or `discard`; else as `lease`."""
        origin, url = _target(key)
        return acquired(self._pool, self._pool.acquire(origin, timeout), url)

    def try_acquire(self, key: Target) -> EasyHandle | None:
        """Take a bare handle that can be had without waiting, or return None."""
        origin, url = _target(key)
        handle = self._pool.try_acquire(origin)
        return None if handle is None else acquired(self._pool, handle, url)

    def release(self, handle: EasyHandle) -> None:
        """Give a bare handle back; kept or destroyed as its lease would.

        Raises
        ------
        InvalidReleaseError
            It isn't the caller's to give: foreign, idle, given back before or held by a lease;
            or it is in use or in a ``CurlMulti``, and then stays the caller's.
        """
        give_back(self._pool, handle)

    def discard(self, handle: EasyHandle) -> None:
        """Destroy a bare handle and close its connection; raises as `release` does."""
        throw_away(self._pool, handle)

    def bind(self, key: Target) -> BoundEasyHandlePool:
        """Return this pool for one origin: the URL is read and the key looked up now, once."""
        origin, url = _target(key)
        return BoundEasyHandlePool(self._pool.bind(origin), url)

    def clear(self, key: Target | All = ALL) -> int:
        """Destroy idle handles, of one origin or all, and leased ones as they come back; how many idle."""
        return self._pool.clear(_key(key))

    def stats(self, key: Target | All = ALL) -> PoolStats:
        """Return a snapshot of the counters, of one origin or all."""
        return self._pool.stats(_key(key))

    def close(self, timeout: float | None = None) -> None:
        """Close the pool: nothing is handed out any more, idle handles are destroyed, leased ones as they come back.

        Raises
        ------
        PoolTimeoutError
            Handles were still out after ``timeout`` seconds.  The pool is closed all the same.
        """
        self._pool.close(timeout)

    @property
    def limits(self) -> PoolLimits:
        """The limits, as given."""
        return self._pool.limits

    @property
    def name(self) -> str:
        """What the pool is called in messages."""
        return self._pool.name

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed."""
        return self._pool.closed

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def __reduce_ex__(self, protocol: object) -> Any:  # noqa: ANN401 - it never returns
        raise TypeError(
            "an EasyHandlePool can't be pickled or copied: its connections belong to this process"
        )

    def __repr__(self) -> str:
        return repr(self._pool).replace("respool.ResourcePool", "respool.curl.EasyHandlePool", 1)


class BoundEasyHandlePool:
    """An `EasyHandlePool` for one origin; made by `EasyHandlePool.bind`.  Methods as there, without the key."""

    __module__ = "respool.curl"
    __slots__ = ("__weakref__", "_pool", "_url")

    def __init__(self, pool: BoundPool[Origin, EasyHandle], url: str | None) -> None:
        self._pool = pool
        self._url = url

    @property
    def key(self) -> Origin:
        """The origin that this is bound to."""
        return self._pool.key

    def lease(self, timeout: float | None = None) -> EasyLease:
        """Lease a handle."""
        return lent(self._pool.lease(timeout), self._url)

    def try_lease(self) -> EasyLease | None:
        """Lease a handle that can be had without waiting, or return None."""
        lease = self._pool.try_lease()
        return None if lease is None else lent(lease, self._url)

    def acquire(self, timeout: float | None = None) -> EasyHandle:
        """Take a bare handle."""
        return acquired(self._pool, self._pool.acquire(timeout), self._url)

    def try_acquire(self) -> EasyHandle | None:
        """Take a bare handle that can be had without waiting, or return None."""
        handle = self._pool.try_acquire()
        return None if handle is None else acquired(self._pool, handle, self._url)

    def release(self, handle: EasyHandle) -> None:
        """Give a bare handle back."""
        give_back(self._pool, handle)

    def discard(self, handle: EasyHandle) -> None:
        """Destroy a bare handle."""
        throw_away(self._pool, handle)

    def clear(self) -> int:
        """Destroy the idle handles of this origin."""
        return self._pool.clear()

    def stats(self) -> PoolStats:
        """Return a snapshot of this origin's counters."""
        return self._pool.stats()

    def __repr__(self) -> str:
        return repr(self._pool).replace("respool.BoundPool", "respool.curl.BoundEasyHandlePool", 1)
