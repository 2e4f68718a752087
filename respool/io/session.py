"""`Session`: the pools and threads of a `Config`, shared by the files opened with it.

This module owns their making, their counts and their end, and the default session of the
process.  What is read with them is the files' business.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar

from respool.buffers import BufferPool
from respool.errors import PoolTimeoutError
from respool.io._fork import renew_in_child
from respool.io._future import ReadFuture
from respool.io._operation import Operation
from respool.io._workers import Workers
from respool.io.config import Config, new_allocator
from respool.limits import PoolLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import TracebackType

    from respool.curl import EasyHandlePool
    from respool.curl.origin import Credential
    from respool.io._operation import Job
    from respool.io._transport import Transport
    from respool.io.file import File
    from respool.io.remote import Headers
    from respool.stats import PoolStats

R = TypeVar("R")
W = TypeVar("W")

#: Seconds that close waits for what it has broken off: libcurl looks up at least once a second.
_PATIENCE = 5.0


class _Parts:
    """What a session consists of, apart from it, so that its end can be tidied up after it's gone."""

    def __init__(self, config: Config) -> None:
        self.workers = Workers(config.concurrency)
        self.buffers = BufferPool(
            new_allocator(config.allocator),
            buffer_size=config.buffer_size,
            max_bytes=config.budget,
            name="respool.io buffers",
        )
        self.handles: EasyHandlePool | None = None
        self.transport: Transport | None = None
        self._renew()
        renew_in_child(self)

    def _renew(self) -> None:
        # Guards making the two above, and the set of what is under way.
        self.lock = threading.Lock()
        self.live: set[Operation[Any, Any]] = set()

    def after_fork(self) -> None:
        """Begin anew in a child, where the parent's reads are nobody's."""
        # They stay referenced: letting them go could run anyone's finalisers here.
        self.inherited = self.live
        self._renew()

    def break_off(self) -> list[Operation[Any, Any]]:
        """Stop what is under way; return it, as it may take a while."""
        with self.lock:
            live = list(self.live)
        for operation in live:
            operation.stop(ValueError("the session was closed while reading"))
        return live

    def end(self) -> None:
        """Break off what is under way, and close everything."""
        self.break_off()
        self.workers.close(_PATIENCE)
        for pool in (self.handles, self.buffers):
            if pool is not None:
                # What is still out goes when it comes back.
                with contextlib.suppress(PoolTimeoutError):
                    pool.close(timeout=0)


class Session:
    """Pools, threads and settings for reading; files are opened with one.

    Parameters
    ----------
    config : Config, optional
        The settings; one of the environment and the defaults by itself.
    **settings
        Settings by name, which go before those of `config`: ``Session(task_size="1MiB")``.

    Attributes
    ----------
    config : Config
        The settings in force.

    Raises
    ------
    TypeError, ValueError
        As for `Config`.

    Notes
    -----
    Nothing is started before it's needed: no thread, no connection, no memory.  In a forked
    child a session is as good as new; reads that were under way are the parent's.

    Thread safety: every method may be called from any thread.
    """

    __module__ = "respool.io"

    def __init__(self, config: Config | None = None, **settings: Any) -> None:  # noqa: ANN401 - as for Config
        if config is not None and not isinstance(config, Config):
            raise TypeError(f"config must be a Config, not {config!r}")
        base = Config() if config is None and not settings else config
        self.config: Config = (
            Config(**settings) if base is None else base.replace(**settings) if settings else base
        )
        self._closed = False
        self._parts = _Parts(self.config)
        # For one that is dropped, and for the exit of the interpreter.
        self._finalizer = weakref.finalize(self, self._parts.end)

    def open(
        self,
        url: str | os.PathLike[str],
        *,
        size: int | None = None,
        headers: Headers | None = None,
        auth: Credential | None = None,
    ) -> File:
        """Open something to read from with this session; see `respool.io.open`."""
        from respool.io._open import open_with

        self._check_open()
        return open_with(self, url, size=size, headers=headers, auth=auth)

    def stats(self) -> dict[str, PoolStats]:
        """Return a snapshot of each pool's counts.

        Returns
        -------
        dict
            ``"buffers"``, in whose stats ``cost`` is in bytes, and, once a remote file has been
            opened, ``"handles"``.
        """
        found = {"buffers": self._parts.buffers.stats()}
        handles = self._parts.handles
        if handles is not None:
            found["handles"] = handles.stats()
        return found

    def close(self) -> None:
        """Break off all reads, end the threads, and close the pools; calling it again does nothing.

        Reads under way end in ValueError, and nothing writes to their destinations any more
        when this returns.
        """
        self._closed = True
        for operation in self._parts.break_off():
            if not self._parts.workers.includes_me:
                operation.abandon()
        # Runs what it does once.
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def buffers(self) -> BufferPool:
        """The pool of buffers, for blocks that are read ahead."""
        return self._parts.buffers

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._parts.live)} reads under way"
        return f"<Session {state}>"

    def __reduce__(self) -> Any:  # noqa: ANN401
        raise TypeError("a session can't be pickled: its connections and threads belong to this process")

    def __del__(self) -> None:
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None and finalizer.alive and not self._closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    # For the files of this session

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the session is closed")

    @property
    def _workers(self) -> Workers:
        return self._parts.workers

    def _transport(self) -> Transport:
        """Return what carries requests, made on first use: it needs pycurl."""
        parts = self._parts
        if parts.transport is None:
            from respool.curl import EasyHandlePool
            from respool.io._easy_transport import EasyTransport

            with parts.lock:
                if parts.transport is None:
                    # A worker has one handle at a time, so there are never more than workers.
                    limits = PoolLimits(max_size=self.config.concurrency, max_per_key=self.config.per_origin)
                    parts.handles = EasyHandlePool(
                        limits=limits, connect_timeout=self.config.connect_timeout, name="respool.io handles"
                    )
                    parts.transport = EasyTransport(parts.handles, parts.workers, self.config)
        return parts.transport

    def _begin(
        self,
        job: Job[W, R],
        future: Future[R],
        *,
        deadline: float | None,
        expired: Callable[[], BaseException],
    ) -> Operation[W, R]:
        """Begin an operation: it's this session's until it's over.

        An interrupt leaves nothing under way: whoever gets no future can't wait for one.
        """
        parts = self._parts
        operation = Operation(job, future, window=self.config.concurrency, on_over=parts.live.discard)
        try:
            if isinstance(future, ReadFuture):
                future._attach(operation)  # noqa: SLF001 - a future is its session's
            with parts.lock:
                parts.live.add(operation)
            if self._closed:
                operation.stop(ValueError("the session is closed"))
            operation.begin(deadline, expired)
        except BaseException:
            operation.abandon()
            raise
        return operation

    def _complete(
        self,
        job: Job[W, R],
        future: Future[R],
        *,
        deadline: float | None,
        expired: Callable[[], BaseException],
    ) -> R:
        """Begin an operation and wait for its end; an interrupt leaves nothing under way."""
        operation = self._begin(job, future, deadline=deadline, expired=expired)
        try:
            return operation.wait()
        except BaseException:
            operation.abandon()
            raise


_default: Session | None = None
_default_lock = threading.Lock()
_inherited: list[Session] = []


def default_session() -> Session:
    """Return the process's own session, made on first use with the settings of the environment.

    It's closed at the exit of the interpreter.  One that was closed by hand is replaced.
    """
    global _default  # noqa: PLW0603 - the one of the process
    with _default_lock:
        if _default is None or _default.closed:
            _default = Session()
        return _default


def _after_fork_in_child() -> None:
    global _default, _default_lock  # noqa: PLW0603 - the one of the process
    _default_lock = threading.Lock()
    if _default is not None:
        # Kept: its end would say goodbye over the parent's connections.
        _inherited.append(_default)
        _default = None


os.register_at_fork(after_in_child=_after_fork_in_child)
