"""A process that has hardly a file descriptor left."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def descriptors_left(count: int) -> Iterator[int]:
    """Leave this many that can be opened, for the length of a block; give the limit on their numbers.

    No other thread may open any meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 1 + count  # noqa: PTH208 - names, not paths
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                break
        for _ in range(count):
            os.close(held.pop())
        yield limit
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
