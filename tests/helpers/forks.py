"""Running a call in a forked child and hearing from it.

The child answers over a pipe and ends by ``os._exit``: no exit handler of the test session
runs in it.  Whatever it prints, or reports as unraisable, is a failure: a fork handler is
to be silent.  A child that hangs tells where, and is a failure too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import tempfile
import traceback
import warnings
from typing import TYPE_CHECKING, TextIO, TypeVar, cast

from .threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


def _child(call: Callable[[], object], answer: int, errors: TextIO) -> None:
    """Be the child: run the call, send its outcome, and vanish."""
    # A hang ends by this alarm, which tells where.  (The handler's own watchdog thread would not survive
    # a fork of the child's.)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=errors, chain=True)
    signal.alarm(int(HANG_GUARD / 2))
    outcome: tuple[bool, object]
    try:
        outcome = (True, call())
    except BaseException:
        outcome = (False, traceback.format_exc())
    with os.fdopen(answer, "wb") as pipe:
        pickle.dump(outcome, pipe)
    errors.flush()
    os._exit(0)


def in_child(call: Callable[[], R]) -> R:
    """Fork, run ``call`` in the child, and return what it returned there."""
    ours, theirs = os.pipe()
    hook = sys.unraisablehook
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors, os.fdopen(ours, "rb") as pipe:
        with contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: "fork() with threads may deadlock"
            sys.unraisablehook = sys.__unraisablehook__
            child = os.fork()
            if child == 0:
                _child(call, theirs, errors)
            sys.unraisablehook = hook
        os.close(theirs)
        sent = pipe.read()
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        printed = errors.read()
    assert os.waitstatus_to_exitcode(status) == 0, f"the child ended with status {status}:\n{printed}"
    went_well, value = pickle.loads(sent)  # noqa: S301 - sent by the child of this very test
    assert went_well, f"in the child:\n{value}"
    assert printed == "", f"the child printed:\n{printed}"
    return cast("R", value)
