"""The places in the package's code where CPython lets something else in, visited one by one.

A signal handler, an asynchronous exception and (from Python 3.12 on) the collector run only
where the interpreter looks for them: at the entry of a Python function, after a call of
something written in C, and when a loop jumps back.  A `Visit` runs an operation and, at the
n-th such place inside ``respool``, calls an action: one that raises is an interrupt, one that
uses the pool is a signal handler or a finaliser, one that waits is a thread that was stopped
there.  So what a storm of signals hits by luck is hit here in order, and every time.

A place where an interrupt would reach another ``except`` or ``finally`` than an exception
raised by a trace function does is left out: the visit would be no true picture of it.
"""

from __future__ import annotations

import dis
import gc
import itertools
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import respool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType, TracebackType

R = TypeVar("R")

PACKAGE = str(Path(respool.__file__).parent) + "/"
_CALLS = {dis.opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") if name in dis.opmap}
_JUMPS_BACK = {code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name and "NO_INT" not in name}


class Interrupt(KeyboardInterrupt):
    """The interrupt that a test sends, told apart from a real Ctrl-C."""


def interrupt(*args: object) -> NoReturn:
    """Be the interrupt."""
    raise Interrupt


@cache
def _instructions(code: CodeType) -> tuple[bytes, dict[int, int], tuple[tuple[int, int, int], ...]]:
    """Return a function's byte code, which instruction stands before which, and its handlers."""
    offsets = [instruction.offset for instruction in dis.get_instructions(code)]
    before = dict(zip(offsets[1:], offsets, strict=False))
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return code.co_code, before, tuple((entry.start, entry.end, entry.target) for entry in table)


def _handler(code: CodeType, offset: int) -> int | None:
    """Return where an exception at this instruction would be handled."""
    for start, end, target in _instructions(code)[2]:
        if start <= offset < end:
            return target
    return None


def _lets_in(code: CodeType, last: int, now: int, *, called_python: bool) -> bool:
    """Tell whether the interpreter looks for signals between two instructions run in turn."""
    operations, before, _ = _instructions(code)
    if operations[last] in _CALLS:
        # A Python function called from Python looks at its entry, not at its return.
        return not called_python and _handler(code, last) == _handler(code, now)
    if operations[last] in _JUMPS_BACK and now <= last:
        same = _handler(code, now)
        return _handler(code, last) == same and _handler(code, before.get(now, now)) == same
    return False


class Visit:
    """One run of an operation, with something done at one place inside it.

    ``reached`` tells the place, and is empty when the operation ended before it.  As a
    context manager it adds the place to whatever error leaves the block.
    """

    def __init__(self, place: int) -> None:
        self.place = place
        self.reached = ""
        self._left = place
        self._action: Callable[[], object] = int
        self._then: tuple[int, Callable[[], object]] | None = None
        self._last: dict[int, tuple[int, bool]] = {}

    def __repr__(self) -> str:
        return f"<visit {self.place}: {self.reached or 'not reached'}>"

    def run(
        self,
        operation: Callable[[], R],
        action: Callable[[], object],
        then: tuple[int, Callable[[], object]] | None = None,
    ) -> R:
        """Run the operation in this thread, with the action at the place; what it returns.

        With ``then``, another action so many places further on: ``reached`` is that place, and empty if it isn't reached.
        """
        self._action = action
        self._then = then
        earlier, collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # what the collector happens to run has no place in the order of places
        sys._getframe().f_trace_opcodes = True  # 3.12 looks here whether anybody wants opcodes
        sys.settrace(self._enter)
        try:
            return operation()
        finally:
            sys.settrace(earlier)
            if collects:
                gc.enable()

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        """Trace the entry of any Python function."""
        parent, name = frame.f_back, frame.f_code.co_name
        special = name.startswith("__") and name != "__exit__"  # called by C code on behalf of the parent
        if parent is not None and id(parent) in self._last and not special:
            self._last[id(parent)] = (self._last[id(parent)][0], True)
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        self._last.pop(id(frame), None)
        frame.f_trace = self._step
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        self._arrive(frame, "entry")
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        """Trace one instruction of a function of the package."""
        if event == "opcode":
            now = frame.f_lasti
            last, called_python = self._last.get(id(frame), (now, False))
            self._last[id(frame)] = (now, False)
            if _lets_in(frame.f_code, last, now, called_python=called_python):
                self._arrive(frame, "after a call or at a loop's jump back")
        elif event == "return":
            self._last.pop(id(frame), None)
        return self._step

    def _arrive(self, frame: FrameType, what: str) -> None:
        """Count a place, and act at the one wanted."""
        self._left -= 1
        if self._left >= 0 or self.reached:
            return
        code = frame.f_code
        action = self._action
        if self._then is not None:
            (self._left, self._action), self._then = self._then, None
        else:
            self.reached = f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_qualname}, {what}"
            sys.settrace(None)
        action()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"at {self!r}")


def every_checkpoint(first: int = 0, step: int = 1) -> Iterator[Visit]:
    """Yield visits to one place after the other, until an operation ends before its place."""
    for place in itertools.count(first, step):
        visit = Visit(place)
        yield visit
        if not visit.reached:
            assert place > first, "the operation passed no checkpoint inside respool at all"
            return
