"""Waiting for a read in the main thread, while signals come."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import _base
from typing import TYPE_CHECKING, Any

import pytest

from respool.io._awaited import Awaited
from tests.helpers import checkpoints
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable


def wait(future: Awaited[int]) -> None:
    """Wait in vain."""
    with contextlib.suppress(TimeoutError):
        future.result(0.001)
    with contextlib.suppress(TimeoutError):
        future.exception(0)


def look(future: Awaited[int]) -> None:
    """Look at it."""
    assert not future.done()
    assert not future.cancelled()
    assert repr(future)


def attach(future: Awaited[int]) -> None:
    """Ask to be called."""
    future.add_done_callback(repr)


def settle(future: Awaited[int]) -> None:
    """Settle it, and read it."""
    future.set_running_or_notify_cancel()
    future.set_result(1)
    assert future.result() == 1
    assert future.exception() is None


@pytest.mark.parametrize("use", [wait, look, attach, settle])
def test_an_interrupt_leaves_no_lock_taken(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Awaited[int]], None]
) -> None:
    """Wherever a signal handler raises while the main thread uses a future, others can settle it."""
    standard: Any = (checkpoints.PACKAGE, threading.__file__, _base.__file__)
    monkeypatch.setattr(checkpoints, "PACKAGE", standard)
    for visit in every_checkpoint():
        future: Awaited[int] = Awaited()
        with visit, contextlib.suppress(Interrupt):
            visit.run(lambda future=future: use(future), interrupt)
        with Threads() as threads:
            assert threads.start(future._condition.acquire, False).result(), visit  # noqa: FBT003 - without waiting


def test_the_result_of_a_wait() -> None:
    """A wait in the main thread ends with the result, the error, or TimeoutError when the time is over."""
    future: Awaited[int] = Awaited()
    with pytest.raises(TimeoutError):
        future.result(0)
    with Threads() as threads:
        threads.start(future.set_result, 5)
        assert future.result() == 5
    assert future.exception() is None


def test_waits_in_vain_leave_nothing_behind() -> None:
    """Who asks again and again for a read that isn't over doesn't make it grow."""
    future: Awaited[int] = Awaited()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            future.result(0)
        with pytest.raises(TimeoutError):
            future.exception(0.001)
    assert future._done_callbacks == []  # type: ignore[attr-defined]
    future.set_result(1)
    assert future.result() == 1
