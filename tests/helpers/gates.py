"""Hooks that the test opens: where a call stands still until the test lets it on.

A `Gate` is put into a hook of any kind.  A `RemoteHook` *is* a hook, and the test gives
each call its outcome ("remote control"): what happens, and in which order, is the test's
to say, and nothing depends on how long anything takes.
"""

from __future__ import annotations

import queue
import threading
from typing import Generic, TypeVar

from .threads import HANG_GUARD

T = TypeVar("T")


class Gate:
    """A place where threads stop until the test lets them pass.

    Shut when made, unless ``opened``.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self._condition = threading.Condition()
        self._opened = opened
        self._passes = 0
        self._arrived = 0
        self._inside = 0

    def stop(self) -> None:
        """Tell of the arrival, then wait until let through: what a hook calls."""
        with self._condition:
            self._arrived += 1
            self._inside += 1
            self._condition.notify_all()
            try:
                if not self._condition.wait_for(self._may_pass, HANG_GUARD):
                    msg = "hang: nobody has opened the gate"
                    raise AssertionError(msg)
                if not self._opened:
                    self._passes -= 1
            finally:
                self._inside -= 1

    def _may_pass(self) -> bool:
        return self._opened or self._passes > 0

    @property
    def arrived(self) -> int:
        """How many have come to the gate so far."""
        with self._condition:
            return self._arrived

    @property
    def inside(self) -> int:
        """How many stand at the gate now."""
        with self._condition:
            return self._inside

    def wait_arrived(self, n: int = 1) -> None:
        """Wait until ``n`` in all have come to the gate."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._arrived >= n, HANG_GUARD):
                msg = f"hang: {self._arrived} of {n} have come to the gate"
                raise AssertionError(msg)

    def let(self, n: int = 1) -> None:
        """Let ``n`` through, those there now or those to come."""
        with self._condition:
            self._passes += n
            self._condition.notify_all()

    def open(self) -> None:
        """Let everybody through from now on."""
        with self._condition:
            self._opened = True
            self._condition.notify_all()

    def shut(self) -> None:
        """Stop everybody who comes from now on."""
        with self._condition:
            self._opened = False
            self._passes = 0


class Call(Generic[T]):
    """One call of a `RemoteHook`, standing still until it is told how to end."""

    def __init__(self, args: tuple[object, ...]) -> None:
        self.args = args
        self.thread = threading.current_thread()
        self._told = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None

    def returns(self, value: T) -> None:
        """End the call with a value."""
        self._value.append(value)
        self._told.set()

    def raises(self, error: BaseException) -> None:
        """End the call with an error."""
        self._error = error
        self._told.set()

    def outcome(self) -> T:
        """Wait to be told how to end, then end so: what the hook calls."""
        if not self._told.wait(HANG_GUARD):
            msg = f"hang: the call with {self.args!r} was never told how to end"
            raise AssertionError(msg)
        if self._error is not None:
            raise self._error
        return self._value.pop()


class RemoteHook(Generic[T]):
    """A hook whose every call waits for the test to give it an outcome."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call[T]] = queue.SimpleQueue()

    def __call__(self, *args: object) -> T:
        """Stand still until the test has given this call its outcome."""
        call: Call[T] = Call(args)
        self._calls.put(call)
        return call.outcome()

    def next_call(self) -> Call[T]:
        """Wait for the next call that has no outcome yet, oldest first."""
        try:
            return self._calls.get(timeout=HANG_GUARD)
        except queue.Empty:
            msg = "hang: the hook was not called"
            raise AssertionError(msg) from None

    def has_call(self) -> bool:
        """Whether a call stands here that ``next_call`` has not taken."""
        return not self._calls.empty()
