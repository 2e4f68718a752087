"""Ctrl-C, from the first moment of a command to its last.

This module owns three of its moments.  While modules are being loaded, a KeyboardInterrupt could come in a place from
which nothing gets any further (the import system's own callbacks), or would be told by the interpreter in its own way:
`Held`.  While a command tidies up after a first Ctrl-C, which may take long where something doesn't answer, a second one
ends it at once: `Interrupts`, with `LeftOver` for what must not stay.  And when the command is over, one comes too late.

It imports nothing before it's needed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # what type checkers understand, without loading typing
    import os
    from types import FrameType
    from typing import Any, NoReturn

INTERRUPTED = 130

#: Paths of files and folders that are to go whatever happens.
_left_over: list[str | os.PathLike[str]] = []


class LeftOver:
    """A file or folder that is removed at the end of a block, by whoever opened the block.

    Where the process has to end before that, it's removed then.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        _left_over.append(self._path)

    def __exit__(self, *raised: object) -> None:
        _left_over.remove(self._path)


class Interrupts:
    """What Ctrl-C does to a command: KeyboardInterrupt the first time, the end of the process the second.

    Only in the main thread, and only where Ctrl-C would raise it: who ignores or handles it (the background of a shell,
    an embedding program) keeps that.
    """

    def __init__(self) -> None:
        self._begun = False
        self._told = False

    def begin(self) -> None:
        """Be in charge from now on."""
        import signal

        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        try:
            signal.signal(signal.SIGINT, self.first)
        except ValueError:  # not the main thread, which is the one that would be interrupted
            return
        self._begun = True

    def first(self, number: int, frame: FrameType | None) -> NoReturn:
        """Interrupt what goes on, and wait for a second one."""
        import signal

        del number, frame
        signal.signal(signal.SIGINT, self._second)
        raise KeyboardInterrupt

    def tell(self) -> None:
        """Say in a line that the command was interrupted."""
        self._told = True
        # Without a stderr there's none to be told, and without one that works neither.
        if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison] - it is where 2 was closed
            try:
                print("respool: interrupted", file=sys.stderr, flush=True)
            except OSError:
                pass  # the exit code tells

    def end(self, *, for_good: bool) -> None:
        """Be in charge no more: the exit code is known.

        Parameters
        ----------
        for_good : bool
            Whether the process ends now, too, in which nothing is left for a Ctrl-C to interrupt.
        """
        if not self._begun:
            return
        import signal

        # Ignored, it stays so until the very end; any handler is taken away a little before.
        signal.signal(signal.SIGINT, signal.SIG_IGN if for_good else signal.default_int_handler)

    def _second(self, number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        import os

        for path in _left_over:
            try:
                os.unlink(path)  # noqa: PTH108 - nothing more is to be loaded in the middle of whatever this interrupts
            except IsADirectoryError:
                import shutil  # by which the folder was made

                shutil.rmtree(path, ignore_errors=True)
            except OSError:
                pass  # it was never made, or has been renamed
        # Past sys.stderr, in the middle of whose writing this may be.
        try:
            if os.isatty(2):
                os.write(2, b"\x1b[?25h\n")  # the cursor, which a progress bar hides
            if not self._told:
                os.write(2, b"respool: interrupted\n")
        except OSError:
            pass  # the exit code tells
        os._exit(INTERRUPTED)


class Held:
    """Keeps back a Ctrl-C that comes in a block, and lets it do its work at the end instead.

    Only where it would raise KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._came = False
        self._before: Any = None

    def __enter__(self) -> None:
        import signal

        before = signal.getsignal(signal.SIGINT)
        ours = getattr(before, "__func__", None) is Interrupts.first
        if before is not signal.default_int_handler and not ours:
            return
        try:
            signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not the main thread
            return
        self._before = before

    def __exit__(self, *raised: object) -> None:
        if self._before is None:
            return
        import signal

        signal.signal(signal.SIGINT, self._before)
        if self._came:
            self._before(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._came = True
