"""The life of a read, piece by piece, in every order in which things can come."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from respool.io._operation import Operation
from respool.io._transport import Outcome
from tests.helpers.checkpoints import Interrupt


class Pieces:
    """A job whose pieces are numbers, which the test carries out by hand."""

    def __init__(self, count: int = 3) -> None:
        self.left = list(range(count))
        self.started: list[int] = []
        self.settled: list[int] = []
        self.more: dict[int, list[int]] = {}
        self.errors: dict[int, BaseException] = {}
        self.released = 0
        self.start_error: BaseException | None = None
        self.value: Any = "done"

    def take(self) -> int | None:
        """Give the next one."""
        return self.left.pop(0) if self.left else None

    def start(self, piece: int, operation: Operation[int, Any]) -> None:
        """Note that it was started."""
        if self.start_error is not None:
            raise self.start_error
        self.started.append(piece)

    def settle(self, piece: int, outcome: Outcome) -> list[int]:
        """Note that it ended."""
        if piece in self.errors:
            raise self.errors[piece]
        self.settled.append(piece)
        return self.more.pop(piece, [])

    def advance(self, nbytes: int) -> None:
        """Take no note of bytes."""

    def result(self) -> Any:
        """Return the value, or raise it."""
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def release(self) -> None:
        """Count."""
        self.released += 1


def make(job: Pieces, window: int = 2) -> Operation[int, Any]:
    """Begin an operation on the pieces."""
    future: Future[Any] = Future()
    operation = Operation(job, future, window=window)
    operation.begin()
    return operation


def test_pieces_are_started_within_the_window() -> None:
    """R47: no more pieces are out than the window holds, and each that ends makes room for the next."""
    job = Pieces(4)
    operation = make(job)
    assert job.started == [0, 1]
    for piece in (1, 0, 3, 2):
        assert operation.claim()
        operation.finished(piece, Outcome())
    assert job.started == [0, 1, 2, 3]
    assert operation.future.result() == "done"
    assert job.released == 1


def test_nothing_to_do() -> None:
    """R47: an operation without pieces is over at once."""
    assert make(Pieces(0)).future.result() == "done"


def test_pieces_that_follow_from_others() -> None:
    """R35: a piece that follows from another belongs to the operation, which isn't over before it is."""
    job = Pieces(1)
    job.more[0] = [10]
    operation = make(job)
    assert operation.claim()
    operation.finished(0, Outcome())
    assert job.started == [0, 10]
    assert not operation.future.done()
    assert operation.claim()
    operation.finished(10, Outcome())
    assert operation.future.result() == "done"


def test_no_claim_after_the_end() -> None:
    """R45: what was queued when an operation stopped is never allowed to write."""
    job = Pieces()
    operation = make(job)
    operation.cancel()
    assert operation.future.cancelled()
    assert job.released == 1
    assert not operation.claim()
    assert operation.stopped
    assert not operation.begun


@pytest.mark.parametrize("how", ["cancel", "error", "outcome"])
def test_it_is_over_when_the_last_writer_is(how: str) -> None:
    """R45: a stopped operation settles, and lets go of the destination, only when nothing writes any more."""
    job = Pieces()
    operation = make(job)
    assert operation.claim()
    assert operation.claim()
    error = ValueError("why")
    job.errors[0] = error
    if how == "cancel":
        operation.cancel()
        operation.finished(0, Outcome())
    elif how == "error":
        operation.finished(0, Outcome())
    else:
        operation.finished(0, Outcome(error=error))
    assert operation.stopped
    assert not operation.future.done()
    assert job.released == 0
    operation.finished(1, Outcome(error=RuntimeError("a second error, too late")))
    assert job.released == 1
    assert job.started == [0, 1]
    if how == "cancel":
        assert operation.future.cancelled()
    else:
        assert operation.future.exception() is error


def test_the_first_cause_counts() -> None:
    """R14: an operation that's failing isn't cancelled any more, and one that's over isn't stopped."""
    job = Pieces(1)
    operation = make(job)
    assert operation.claim()
    assert operation.stop(ValueError("first"))
    assert not operation.stop(CancelledError())
    assert not operation.cancelled
    operation.finished(0, Outcome())
    with pytest.raises(ValueError, match="first"):
        operation.wait()
    ended = make(Pieces(0))
    assert not ended.stop(ValueError("late"))
    assert ended.wait() == "done"


def test_a_piece_that_cannot_be_started() -> None:
    """R47: what starting a piece raises is the operation's error; an interrupt leaves when nothing is under way."""
    job = Pieces()
    job.start_error = ValueError("closed")
    with pytest.raises(ValueError, match="closed"):
        make(job).wait()
    job = Pieces()
    job.start_error = Interrupt()
    with pytest.raises(Interrupt):
        make(job)
    assert job.released == 1


def test_a_piece_that_fails_before_it_begins() -> None:
    """R32: a piece that never gets what it needs ends the operation with its error."""
    operation = make(Pieces())
    operation.failed(0, TimeoutError("no handle"))
    with pytest.raises(TimeoutError, match="no handle"):
        operation.wait()


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_result_that_raises(raised: type[BaseException]) -> None:
    """R45: what telling the last progress raises is the operation's error, whatever it is."""
    job = Pieces(1)
    job.value = raised("progress")
    operation = make(job)
    assert operation.claim()
    operation.finished(0, Outcome())
    assert operation.future.done()
    assert not operation.future.cancelled()
    with pytest.raises(raised, match="progress") as caught:
        operation.wait()
    assert caught.value is job.value
    assert job.released == 1


def test_callbacks_that_use_the_operation() -> None:
    """R45: whoever is called back by the future may ask, cancel and stop without a deadlock."""
    job = Pieces(1)
    operation = make(job)
    seen: list[object] = []

    def back(future: Future[Any]) -> None:
        operation.cancel()
        seen.extend([operation.stop(ValueError("late")), future.result()])

    operation.future.add_done_callback(back)
    assert operation.claim()
    operation.finished(0, Outcome())
    assert seen == [False, "done"]
