"""One numbered order of steps over several threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sequencer:
    """Run the blocks of several threads in the order of their numbers.

    Each number from 0 on is used once.  A step that fails breaks the sequence for all,
    so that no thread waits for a step that will never come.

    >>> steps = Sequencer()
    >>> with steps(0):
    ...     pass
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._next = 0
        self._claimed: set[int] = set()
        self._broken = False

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        """Wait for this number's turn, run the block, and let the next one on."""
        with self._condition:
            if number in self._claimed:
                msg = f"step {number} is used twice"
                raise AssertionError(msg)
            self._claimed.add(number)
            came = self._condition.wait_for(lambda: self._broken or self._next == number, HANG_GUARD)
            if self._broken:
                msg = f"step {number} can't run: the sequence is broken"
                raise AssertionError(msg)
            if not came:
                self._broken = True
                self._condition.notify_all()
                msg = f"hang: step {number} waits, {self._next} is next"
                raise AssertionError(msg)
        try:
            yield
        except BaseException:
            with self._condition:
                self._broken = True
                self._condition.notify_all()
            raise
        with self._condition:
            self._next += 1
            self._condition.notify_all()
