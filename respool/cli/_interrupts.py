"""Ctrl-C while modules are being loaded.

This module owns the time in which a KeyboardInterrupt could come in a place from which nothing gets any further (the
import system's own callbacks), or would be told by the interpreter in its own way.  It imports nothing before it's
needed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers understand, without loading typing
    from types import FrameType


class Held:
    """Keeps back a Ctrl-C that comes in a block, and raises KeyboardInterrupt at its end instead.

    Only in the main thread, and only where Ctrl-C would raise it: who ignores or handles it (the background of a shell,
    an embedding program) keeps that.
    """

    def __init__(self) -> None:
        self._came = False
        self._holds = False

    def __enter__(self) -> None:
        import signal

        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        try:
            signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not the main thread, which is the one that would be interrupted
            return
        self._holds = True

    def __exit__(self, *raised: object) -> None:
        if not self._holds:
            return
        import signal

        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._came = True
