"""An allocator that keeps books of its own, and returns what the test tells it to."""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Books:
    """An allocator whose every allocation and free is counted, by identity.

    ``make(nbytes)`` may be replaced; it returns (or raises) what allocate does.
    """

    def __init__(self, make: Callable[[int], Any] = bytearray, *, alignment: int = 1) -> None:
        self.alignment = alignment
        self.make = make
        self.asked: list[int] = []
        self.freed: list[Any] = []
        self.free_error: BaseException | None = None
        self._lock = threading.Lock()
        self._out: dict[int, Any] = {}
        self.most_out = 0

    @property
    def out(self) -> int:
        """How many pieces of memory are allocated and not freed."""
        return len(self._out)

    def allocate(self, nbytes: int) -> Any:
        """Make one and note it."""
        memory = self.make(nbytes)
        with self._lock:
            self.asked.append(nbytes)
            self._out[id(memory)] = memory
            self.most_out = max(self.most_out, len(self._out))
        return memory

    def free(self, memory: Any) -> None:
        """Take back the very object, once; close a mapping, as an allocator would."""
        with self._lock:
            assert self._out.pop(id(memory), None) is memory, "freed what wasn't allocated, or twice"
            self.freed.append(type(memory))
        if isinstance(memory, mmap.mmap):
            memory.close()
        if self.free_error is not None:
            raise self.free_error
