"""What is different in a free-threaded interpreter (PEP 703), where no lock makes a line of Python code one step.

With the interpreter lock "is it still held? then it's mine" and "does anybody wait? no: push" are one step each, since
threads switch at calls, jumps back and function entries only.  Without it:

- Who gives something back *claims* it by one call of C code that takes the only item out of a list.
- All goes the slow way (`Engine.apply`), where whoever has pushed looks again whether somebody has begun to wait
  meanwhile, and if so takes back what was pushed and gives it to the pool (`Releasing.give_back`).
- Whoever pops what it has just seen must bear that somebody else was quicker.

Single operations on lists, dicts and deques are atomic there, too; the pool's lock is the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections import deque

__all__ = ["FREE_THREADED", "snapshot"]

T = TypeVar("T")

FREE_THREADED: Final[bool] = not getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the interpreter runs without its lock.  It may be turned on later, by an extension module, but never off."""


def snapshot(items: deque[T]) -> deque[T]:
    """Copy what others change meanwhile: one step with the interpreter lock, and not without, where it's tried until it succeeds."""
    while True:
        try:
            return items.copy()
        except (
            RuntimeError
        ):  # pragma: no cover - changed while it was copied, which only happens without the interpreter lock
            continue
