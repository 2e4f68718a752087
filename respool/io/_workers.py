"""`Workers`: a bounded number of threads that run jobs, fairly between lanes.

This module owns the threads: when they start, what they take next, and their end.  A
*lane* is whatever shares a limit; for requests it's the origin.  Jobs beyond a lane's limit
wait here, where waiting costs no thread, and never hold up another lane.

`concurrent.futures.ThreadPoolExecutor` has no lanes, and at the exit of the interpreter it
finishes everything that was queued.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from respool.io._fork import renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

#: Seconds after which a thread with nothing to do ends.
_IDLE: Final = 10.0


class _Lane:
    """Jobs that share a limit."""

    __slots__ = ("jobs", "key", "limit", "running", "up")

    def __init__(self, key: Hashable, limit: int) -> None:
        self.key = key
        self.limit = limit
        #: Whether it's among the lanes that are ready.
        self.up = False
        self.running = 0
        self.jobs: deque[Callable[[], None]] = deque()


class Workers:
    """Threads for blocking jobs.

    Parameters
    ----------
    threads : int
        Most threads at once; each is started when a job finds none idle.
    name : str
        What the threads are called.

    Notes
    -----
    The threads are daemons: they never keep the process alive, and a job that blocks for
    good doesn't hang its exit.  After a fork the child begins with no threads and no jobs.

    Thread safety: every method may be called from any thread.  A job may call `put`.
    """

    def __init__(self, threads: int, name: str = "respool-io") -> None:
        self._most = threads
        self._name = name
        self._reset()
        renew_in_child(self)

    def _reset(self) -> None:
        # Guards everything below.  Nothing slow and no foreign code runs under it.
        self._lock = threading.Lock()
        self._wanted = threading.Condition(self._lock)
        self._lanes: dict[Hashable, _Lane] = {}
        # The lanes from which a job may be taken now, in the order of their turns.
        self._ready: deque[_Lane] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    def after_fork(self) -> None:
        """Begin anew in a child: the threads are gone, and the lock may be held by one of them."""
        # The parent's jobs stay referenced: letting them go could run anyone's finalisers here.
        self._inherited = self._lanes
        closed = self._closed
        self._reset()
        self._closed = closed

    def put(self, job: Callable[[], None], lane: Hashable = None, limit: int | None = None) -> None:
        """Queue a job.

        Parameters
        ----------
        job : callable
            Run once, in one of the threads.  What it raises is logged.
        lane : hashable
            What it shares a limit with.
        limit : int, optional
            Most jobs of the lane at once; None for as many as there are threads.

        Raises
        ------
        ValueError
            The workers are closed.
        RuntimeError
            There's no thread, and the system won't start one.
        """
        with self._lock:
            if self._closed:
                raise ValueError("the session is closed")
            found = self._lanes.get(lane)
            if found is None:
                found = self._lanes[lane] = _Lane(lane, self._most if limit is None else limit)
            found.jobs.append(job)
            self._offer_locked(found)
            # A thread that was woken still counts as idle until it has run, so what counts
            # is how many jobs could be taken.
            if self._runnable_locked() > self._idle and len(self._threads) < self._most:
                self._start_locked()
            else:
                self._wanted.notify()

    def _offer_locked(self, lane: _Lane) -> None:
        """Put a lane up for its next turn, if it has a job that may run and isn't up already."""
        if not lane.up and lane.jobs and lane.running < lane.limit:
            lane.up = True
            self._ready.append(lane)

    def _runnable_locked(self) -> int:
        """Return how many jobs could run now, were there threads enough."""
        return sum(min(len(lane.jobs), lane.limit - lane.running) for lane in self._ready)

    def _start_locked(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system won't have more of them: then those there are must do.
            self._threads.discard(thread)
            if not self._threads:
                raise
        except BaseException:
            # An interrupt; the thread may have started all the same.
            if not thread.is_alive():
                self._threads.discard(thread)
            raise

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while (taken := self._take()) is not None:
                lane, job = taken
                try:
                    job()
                except BaseException:
                    logging.getLogger("respool").exception("a job of the readers failed; please report this")
                finally:
                    # The last reference to a destination may be the job's.
                    del job, taken
                    self._give_back(lane)
        finally:
            with self._lock:
                self._threads.discard(me)

    def _take(self) -> tuple[_Lane, Callable[[], None]] | None:
        """Wait for a job; None when the thread is to end."""
        with self._wanted:
            while not self._ready:
                if self._closed:
                    return None
                self._idle += 1
                try:
                    woken = self._wanted.wait(_IDLE)
                finally:
                    self._idle -= 1
                if not woken and not self._ready:
                    # Out of the set before the lock is: a put that comes now must not
                    # count on this thread.
                    self._threads.discard(threading.current_thread())
                    return None
            lane = self._ready.popleft()
            lane.up = False
            job = lane.jobs.popleft()
            lane.running += 1
            # Behind the other lanes, not in front of them again.
            self._offer_locked(lane)
            return lane, job

    def _give_back(self, lane: _Lane) -> None:
        with self._lock:
            lane.running -= 1
            self._offer_locked(lane)
            if not lane.running and not lane.jobs and self._lanes.get(lane.key) is lane:
                del self._lanes[lane.key]

    @property
    def includes_me(self) -> bool:
        """Whether the calling thread is one of them."""
        return threading.current_thread() in self._threads

    def close(self, timeout: float | None = None) -> bool:
        """Drop what is queued, refuse more, and wait for the jobs that run.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; None waits for ever.

        Returns
        -------
        bool
            Whether all threads have ended.  The calling thread, if it's one of them, isn't
            waited for.
        """
        with self._lock:
            self._closed = True
            dropped = [lane.jobs for lane in self._lanes.values()]
            for lane in self._lanes.values():
                lane.jobs = deque()
                lane.up = False
            self._ready.clear()
            self._wanted.notify_all()
            threads = self._threads - {threading.current_thread()}
        # Outside the lock, as it may be the last reference to anything.
        del dropped
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
