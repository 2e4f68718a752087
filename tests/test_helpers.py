"""The helpers themselves: what would hide a failure must be known to show it."""

from __future__ import annotations

import threading

import pytest

from tests.helpers.gates import Gate, RemoteHook
from tests.helpers.sequencer import Sequencer
from tests.helpers.threads import Threads, run_together, wait_until


def _fail() -> None:
    raise ZeroDivisionError("in the thread")


def test_an_error_in_a_thread_fails_the_test() -> None:
    """The end of a Threads block raises what a thread raised, unless the test has asked for it."""
    with pytest.raises(ZeroDivisionError, match="in the thread"), Threads() as threads:
        threads.start(_fail)
    with Threads() as threads:
        assert isinstance(threads.start(_fail).error(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        run_together(_fail, lambda: None)


def test_an_error_in_the_block_is_not_hidden() -> None:
    """What the test itself raises comes out at once, with a note on what a thread had raised."""
    stop = threading.Event()

    def test() -> None:
        with Threads() as threads:
            threads.start(stop.wait)
            threads.start(_fail).wait()
            raise LookupError("in the test")

    with pytest.raises(LookupError) as caught:
        test()
    assert "in the thread" in caught.value.__notes__[0]
    stop.set()


def test_a_task_that_returns_is_no_error() -> None:
    """Asking a task that went well for its error fails."""
    with Threads() as threads, pytest.raises(AssertionError, match="returned 8"):
        threads.start(pow, 2, 3).error()


def test_a_wait_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hang is a failure that says what was waited for."""
    monkeypatch.setattr("tests.helpers.threads.HANG_GUARD", 0.01)
    with pytest.raises(AssertionError, match="hang: the moon"):
        wait_until(lambda: False, "the moon")


def test_a_gate_lets_as_many_through_as_it_is_told() -> None:
    """A gate holds everybody until told, and then lets just so many by."""
    gate = Gate()
    passed: list[int] = []

    def go(n: int) -> None:
        gate.stop()
        passed.append(n)

    with Threads() as threads:
        for n in range(3):
            threads.start(go, n)
        gate.wait_arrived(3)
        assert passed == []
        gate.let(2)
        wait_until(lambda: len(passed) == 2, "two through")
        assert gate.inside == 1
        gate.open()
    assert gate.arrived == 3
    gate.shut()
    gate.let()
    gate.stop()


def test_a_remote_hook_ends_as_told() -> None:
    """Each call of a remote hook waits for its own outcome."""
    hook: RemoteHook[str] = RemoteHook()
    with Threads() as threads:
        first = threads.start(hook, 1)
        call = hook.next_call()
        second = threads.start(hook, 2)
        other = hook.next_call()
        assert (call.args, other.args) == ((1,), (2,))
        assert call.thread is first.thread
        assert not hook.has_call()
        other.raises(LookupError())
        assert isinstance(second.error(), LookupError)
        assert not first.ended
        call.returns("done")
        assert first.result() == "done"


def test_steps_of_several_threads_come_in_order() -> None:
    """Numbered steps run in the order of their numbers, whichever thread comes first."""
    steps, seen = Sequencer(), []

    def walk(*numbers: int) -> None:
        for number in numbers:
            with steps(number):
                seen.append(number)

    run_together(lambda: walk(1, 2, 5), lambda: walk(0, 4), lambda: walk(3, 6))
    assert seen == list(range(7))


def test_a_failing_step_breaks_the_sequence() -> None:
    """After a failing step nobody waits for one that will not come."""
    steps = Sequencer()

    def fail() -> None:
        with steps(0):
            _fail()

    def follow() -> None:
        with steps(1):
            pass

    with Threads() as threads:
        after = threads.start(follow)
        assert isinstance(threads.start(fail).error(), ZeroDivisionError)
        assert "broken" in str(after.error())
    with pytest.raises(AssertionError, match="used twice"), steps(1):
        pass
