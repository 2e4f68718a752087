"""`ReadRequest`: a read whose arguments have been checked.

This module owns what a `File` hands on to whoever does the read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Progress: TypeAlias = Callable[[int, int | None], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRequest:
    """A read with its arguments checked: what a subclass of `File` is given to do.

    Attributes
    ----------
    offset, length : int
        Which bytes; length ≥ 1, and clipped where the file's size is known.
    view : memoryview
        Where they go: at least `length` bytes, of which the first are filled.
    deadline : float or None
        On the monotonic clock, in seconds.
    timeout : float or None
        What the deadline came from, for messages.
    progress : callable or None
        As given by the caller.
    """

    offset: int
    length: int
    view: memoryview
    deadline: float | None
    timeout: float | None
    progress: Progress | None
