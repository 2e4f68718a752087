"""Interrupts by the thousand: real signals to the main thread, asynchronous exceptions to others.

Both are bounded, send one at a time, and hit only where the test has said that it can bear
it, so that what is tested is the pool's code and not the test's own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from respool import LeaseLeakWarning

from .checkpoints import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType


class SignalStorm:
    """A block in which a timer's signals call ``handler`` in the main thread, ``times`` in all.

    Each signal is followed by the next only after the handler has returned, at delays that
    drift through the work.  The test has to carry ``@pytest.mark.timeout(60, method="thread")``:
    the timer is the one that a signal timeout would use.
    """

    def __init__(self, handler: Callable[[], object], times: int) -> None:
        self.handled = 0
        self._handler = handler
        self._times = times
        self._delays = itertools.cycle([microseconds * 1e-6 for microseconds in range(20, 320, 7)])

    @property
    def blowing(self) -> bool:
        """Whether more signals are to come."""
        return self.handled < self._times

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.handled += 1
        try:
            self._handler()
        finally:
            self._next()

    def _next(self) -> None:
        if self.blowing:
            signal.setitimer(signal.ITIMER_REAL, next(self._delays))

    def __enter__(self) -> Self:
        self._earlier: Any = signal.signal(signal.SIGALRM, self._handle)
        self._next()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._times = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._earlier)


class Shield:
    """A signal handler that raises `Interrupt`, but only into an ``exposed`` call, and once."""

    def __init__(self) -> None:
        self._exposed = False
        self.hits = 0

    def handler(self) -> None:
        """Interrupt, when that is allowed now."""
        if self._exposed:
            self._exposed = False
            self.hits += 1
            raise Interrupt

    def exposed(self, call: Callable[[], object]) -> bool:
        """Run the call; tell whether it was interrupted."""
        try:
            self._exposed = True
            call()
            self._exposed = False
        except Interrupt:
            return True
        return False


class Target:
    """One worker thread, that may be hit inside its exposed calls, by one exception at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exposed = False
        self._fired = False
        self._thread = 0
        self.hits = 0
        self.swallowed = 0

    def exposed(self, call: Callable[[], object]) -> bool:
        """Run the call in this, the worker's thread; tell whether it was interrupted."""
        self._thread = threading.get_ident()
        try:
            self._exposed = True
            call()
            with self._lock:
                self._exposed = False
            if self._let_arrive():
                return False
        except Interrupt:
            self._exposed = False
            self._fired = False
            self.hits += 1
            return True
        # It arrived where nothing can be raised, as in a finaliser.
        self.swallowed += 1
        self._fired = False
        return False

    def _let_arrive(self) -> bool:
        """Let one that is on its way arrive, at a jump back at the latest; tell whether there's none.

        In a function of its own, since from Python 3.12 on a loop's jump back isn't inside the ``try`` around it.
        """
        return any(not self._fired for _ in range(1000))

    def fire(self) -> bool:
        """Send an exception, from any other thread; tell whether it was on its way."""
        with self._lock:
            if not self._exposed or self._fired:
                return False
            self._fired = True
            sent = ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(Interrupt)
            )
            assert sent == 1
            return True


def fire_at(targets: list[Target], times: int, *, until: Callable[[], bool]) -> int:
    """Hit the targets in turn, until so many were sent or ``until`` says so; how many were sent."""
    sent = 0
    for target in itertools.cycle(targets):
        if sent >= times or until():
            return sent
        sent += target.fire()
        os.sched_yield()
    return sent


@contextmanager
def weather() -> Iterator[None]:
    """Let threads switch often, and bear what interrupts leave: leaks, and errors in finalisers."""
    hook, interval = sys.unraisablehook, sys.getswitchinterval()

    def bear(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Interrupt):
            hook(unraisable)

    sys.unraisablehook = bear
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LeaseLeakWarning)
            yield
    finally:
        sys.setswitchinterval(interval)
        sys.unraisablehook = hook
