"""The threads that do blocking jobs, and the clock that ends what waits for them."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from respool.io import _deadlines
from respool.io._workers import Workers
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.threads import let_pass, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Three threads."""
    workers = Workers(3)
    yield workers
    assert workers.close(30)


def test_no_more_threads_than_allowed(workers: Workers) -> None:
    """R47: jobs are run by as many threads as are needed, and by no more than allowed."""
    gate, done = Gate(), []
    for number in range(50):
        workers.put(lambda number=number: (gate.stop(), done.append(number)))  # type: ignore[misc]
    gate.wait_arrived(3)
    assert gate.arrived == 3
    gate.open()
    wait_until(lambda: len(done) == 50, "50 jobs")
    assert sorted(done) == list(range(50))


def test_one_job_one_thread(workers: Workers) -> None:
    """R47: an idle thread is used before another is started."""
    threads = set()
    for _ in range(20):
        ended = threading.Event()
        workers.put(lambda ended=ended: (threads.add(threading.current_thread()), ended.set()))  # type: ignore[misc]
        assert ended.wait(30)
        wait_until(lambda: workers._idle == 1, "an idle thread")
    assert len(threads) == 1


def test_jobs_that_come_at_once_run_at_once(workers: Workers) -> None:
    """R47: a thread that was woken but hasn't run yet isn't counted upon twice."""
    first = threading.Event()
    workers.put(first.set)
    first.wait(30)
    wait_until(lambda: workers._idle == 1, "an idle thread")
    gate = Gate()
    workers.put(gate.stop)
    workers.put(gate.stop)
    workers.put(gate.stop)
    gate.wait_arrived(3)
    gate.open()


def test_lanes(workers: Workers) -> None:
    """R41: a lane never has more jobs at once than its limit, and those that wait there hold up no other lane."""
    slow, free = Gate(), threading.Event()
    for _ in range(10):
        workers.put(slow.stop, lane="slow", limit=2)
    slow.wait_arrived(2)
    workers.put(free.set, lane="free", limit=2)
    assert free.wait(30)
    assert slow.arrived == 2
    slow.let(1)
    slow.wait_arrived(3)
    assert slow.inside == 2
    slow.open()
    slow.wait_arrived(10)


def test_lanes_take_turns() -> None:
    """R41: a lane that has many jobs doesn't go before one that has few."""
    workers = Workers(1)
    gate, order = Gate(), []
    workers.put(gate.stop)
    gate.wait_arrived()
    for number in range(3):
        workers.put(lambda number=number: order.append(f"a{number}"), lane="a")  # type: ignore[misc]
    workers.put(lambda: order.append("b0"), lane="b")
    gate.open()
    wait_until(lambda: len(order) == 4, "all jobs")
    assert order == ["a0", "b0", "a1", "a2"]
    assert workers.close(30)


def test_a_job_that_raises(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    """R47: a job that raises, which none should, is logged and costs no thread."""
    ended = threading.Event()
    with caplog.at_level(logging.ERROR, logger="respool"):
        workers.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        wait_until(lambda: caplog.records, "a log record")
        workers.put(ended.set)
        assert ended.wait(30)
    assert "please report" in caplog.text


def test_close() -> None:
    """U32: close drops what is queued, refuses more, and waits for what runs; a second close does nothing."""
    workers, gate = Workers(1), Gate()
    workers.put(gate.stop)
    gate.wait_arrived()
    dropped = threading.Event()
    workers.put(dropped.set)
    assert not workers.close(0)
    with pytest.raises(ValueError, match="closed"):
        workers.put(gate.stop)
    gate.open()
    assert workers.close(30)
    assert workers.close()
    assert not dropped.is_set()


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: where the system gives no further thread those there are do; where it gives none that's an error."""
    workers, gate = Workers(4), Gate()
    workers.put(gate.stop)
    gate.wait_arrived()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        workers.put(ended.set)
        with pytest.raises(RuntimeError, match="can't start"):
            Workers(1).put(gate.stop)
    gate.open()
    assert ended.wait(30)
    assert workers.close(30)


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: a thread that has had nothing to do for a while ends, and another takes its place when needed."""
    monkeypatch.setattr("respool.io._workers._IDLE", 0.01)
    workers = Workers(2)
    for _ in range(3):
        ended = threading.Event()
        workers.put(ended.set)
        assert ended.wait(30)
        wait_until(lambda: not workers._threads, "the end of idle threads")
    assert workers.close(30)


def test_fork(workers: Workers) -> None:
    """R48: a child begins with no threads and none of the parent's jobs."""
    gate = Gate()
    for _ in range(5):
        workers.put(gate.stop)
    gate.wait_arrived(3)

    def child() -> int:
        ended = threading.Event()
        workers.put(ended.set)
        assert ended.wait(30)
        return len(workers._threads)

    assert in_child(child) == 1
    gate.open()
    gate.wait_arrived(5)


def test_deadlines_come_in_order() -> None:
    """R32: deadlines come when they're due, earlier ones first whenever they were set."""
    came: list[str] = []
    now = time.monotonic()
    _deadlines.at(now + 0.06, lambda: came.append("late"))
    _deadlines.at(now + 0.02, lambda: came.append("early"))
    off = _deadlines.at(now + 0.04, lambda: came.append("off"))
    _deadlines.at(now - 5, lambda: came.append("past"))
    off.call_off()
    wait_until(lambda: "late" in came, "the last deadline")
    assert came == ["past", "early", "late"]
    assert off.spent
    assert time.monotonic() >= now + 0.06


def test_a_deadline_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """R32: one that raises, which none should, is logged and stops no other."""
    came = threading.Event()
    with caplog.at_level(logging.ERROR, logger="respool"):
        _deadlines.at(0, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        _deadlines.at(0, came.set)
        assert came.wait(30)
    assert "please report" in caplog.text


def test_spent_deadlines_take_no_memory() -> None:
    """R47: deadlines that were called off don't pile up."""
    far = time.monotonic() + 3600
    for _ in range(5000):
        _deadlines.at(far, lambda: None).call_off()
    assert len(_deadlines._clock._heap) < 1000


def test_the_clock_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: the clock's thread ends when there's nothing to wait for, and is there again when there is."""
    monkeypatch.setattr(_deadlines, "_IDLE", 0.01)
    clock = _deadlines._Clock()
    for _ in range(2):
        came = threading.Event()
        clock.add(_deadlines.Deadline(time.monotonic(), came.set))
        assert came.wait(30)
        wait_until(lambda: not clock._running, "the end of the clock's thread")
    let_pass(time.monotonic())


def test_deadlines_of_a_child() -> None:
    """R48: a child's deadlines come, and the parent's don't come there."""
    parents = threading.Event()
    deadline = _deadlines.at(time.monotonic() + 3600, parents.set)

    def child() -> bool:
        came = threading.Event()
        _deadlines.at(time.monotonic(), came.set)
        return came.wait(30) and not parents.is_set()

    assert in_child(child)
    deadline.call_off()
