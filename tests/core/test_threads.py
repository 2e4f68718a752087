"""Starting the pools' own threads: no interrupt may break it (G3)."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool import _threads
from respool._threads import Starter
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def daemon(target: Callable[[], object]) -> threading.Thread:
    """Make a thread like those of the pools."""
    return threading.Thread(target=target, name="respool-test", daemon=True)


def test_it_has_begun_when_start_returns() -> None:
    """G3: whoever starts a thread finds it alive."""
    starter, end = Starter(), threading.Event()
    thread = daemon(end.wait)
    assert not starter.is_busy()
    assert starter.start(thread, None)
    assert thread.is_alive()
    assert starter.is_busy()
    end.set()
    thread.join()
    assert not starter.is_busy()


def test_only_one_is_started() -> None:
    """G3: of two who both found no thread, the second does not start another one; after it, the next may."""
    starter, end = Starter(), threading.Event()
    first, second, third = (daemon(end.wait) for _ in range(3))
    assert starter.start(first, None)
    assert not starter.start(second, None)
    assert starter.start(third, first)
    assert second.ident is None
    end.set()


def test_nobody_else_starts_one_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: while a start goes on, another caller leaves it at that, also where the first was interrupted; afterwards it may."""
    starter, go, end, reached = Starter(), threading.Event(), threading.Event(), threading.Event()
    thread, other, last = daemon(end.wait), daemon(end.wait), daemon(end.wait)
    start = _threads._start

    def slow(token: Any) -> None:
        reached.set()
        go.wait(30)
        start(token)

    monkeypatch.setattr(_threads, "_start", slow)
    with Threads() as threads:
        starting = threads.start(starter.start, thread, None)
        reached.wait(30)
        assert starter.is_busy()
        assert not starter.start(other, thread)
        go.set()
        assert starting.result()
    assert thread.is_alive()
    assert other.ident is None
    assert starter.start(last, thread)
    end.set()


def test_there_can_be_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: a start that the system refuses is an error, whichever of its threads is refused, and the next one may succeed."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    starter, end = Starter(), threading.Event()
    for target, name in ((_threads, "start_new_thread"), (threading.Thread, "start")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                starter.start(daemon(end.wait), starter.thread)
        assert not starter.is_busy()
    assert starter.start(daemon(end.wait), starter.thread)
    end.set()


def test_the_thread_in_between_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: an exception that kills a thread before it runs, meant for its maker as CPython 3.11 has it, doesn't make that one wait for ever."""

    class Misdirected(BaseException):
        """Was meant for another thread."""

    def killed(function: Callable[..., object], arguments: tuple[Any, ...]) -> int:
        def dying(*_: object) -> None:
            raise Misdirected

        return _thread.start_new_thread(dying, arguments)

    seen: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_type))
    monkeypatch.setattr(_threads, "start_new_thread", killed)
    starter, end = Starter(), threading.Event()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        starter.start(daemon(end.wait), None)
    assert seen == [Misdirected]
    monkeypatch.undo()
    assert starter.start(daemon(end.wait), starter.thread)
    end.set()


def test_an_interrupt_at_every_place() -> None:
    """G3: wherever a start is interrupted, the next one succeeds, and in the end one thread lives: the latest."""
    for visit in every_checkpoint():
        starter, end, made = Starter(), threading.Event(), list[threading.Thread]()

        def begin(starter: Starter = starter, end: threading.Event = end, made: list[Any] = made) -> None:
            before = starter.thread
            if before is None or not before.is_alive():
                made.append(daemon(end.wait))
                starter.start(made[-1], before)

        with visit:
            try:
                visit.run(begin, interrupt)
            except Interrupt:
                pass
            wait_until(lambda s=starter: not s._begun.locked(), "the end of what was begun")
            begin()
            assert starter.thread is not None
            assert starter.thread.is_alive()
            assert [thread for thread in made if thread.is_alive()] == [starter.thread]
            end.set()
