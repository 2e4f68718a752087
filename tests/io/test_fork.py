"""Reads that were under way when the process forked: they are the parent's, and a child that asks hears so."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from concurrent.futures._base import CANCELLED
from typing import TYPE_CHECKING

import pytest

from respool import LeaseLostError
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT, Exchange, honest
from tests.helpers.threads import HANG_GUARD, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from respool.io import ReadFuture, Session
    from tests.helpers.range_server import RangeServer

TOLD = "this read was under way when the process forked: it is the parent's, and never ends here"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds up the server's answers to reads."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def under_way(serve: Callable[..., RangeServer], session: Session, gate: Gate) -> Iterator[ReadFuture]:
    """A read that the server keeps waiting."""

    def slow(exchange: Exchange) -> None:
        gate.stop()
        honest(exchange)

    with session.open(serve(slow).url, size=len(CONTENT)) as file:
        future = file.pread(bytearray(10))
        wait_until(lambda: gate.inside == 1, "a read under way")
        yield future
        gate.open()
        assert future.result() == 10


def lost(call: Callable[[], object]) -> str:
    """What the error says that a call ends in."""
    with pytest.raises(LeaseLostError) as caught:
        call()
    return str(caught.value)


def test_result_in_a_child(under_way: ReadFuture) -> None:
    """R48: a child that asks for the result of its parent's read gets an error at once, instead of waiting for ever."""

    def child() -> tuple[str, str, str]:
        async def awaited() -> int:
            return await under_way

        return (
            lost(under_way.result),
            lost(lambda: under_way.result(timeout=20)),
            lost(lambda: asyncio.run(awaited())),
        )

    assert set(in_child(child)) == {TOLD}
    assert not under_way.done()


def test_all_else_in_a_child(under_way: ReadFuture) -> None:
    """R48: such a read is over for whatever looks at it: it can't be cancelled, and nothing waits for it."""

    def child() -> tuple[bool, ...]:
        called: list[object] = []
        under_way.add_done_callback(called.append)
        return (
            isinstance(under_way.exception(), LeaseLostError),
            under_way.done(),
            called == [under_way],
            wait([under_way], timeout=20).done == {under_way},
            not under_way.running(),
            not under_way.cancel(),
            not under_way.cancelled(),
            under_way.stats.transport is not None,
        )

    assert all(in_child(child))
    assert not under_way.done()


def test_callbacks_are_the_parents(under_way: ReadFuture) -> None:
    """R48: what was to be called at the read's end is called in the parent, and there once; the fork calls nothing."""
    called: list[ReadFuture] = []
    under_way.add_done_callback(lambda _: called.append(under_way))
    assert in_child(lambda: (under_way.done(), len(called))) == (True, 0)
    assert called == []


def test_fork_with_its_locks_held(under_way: ReadFuture) -> None:
    """R48: so it is where another thread was just at the future when the process forked."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with under_way._condition, under_way._tally._lock:
            held.set()
            assert over.wait(HANG_GUARD)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(HANG_GUARD)
        told, transport = in_child(lambda: (lost(under_way.result), under_way.stats.transport))
    finally:
        over.set()
        holder.join()
    assert (told, transport is not None) == (TOLD, True)


def test_what_was_over_stays(serve: Callable[..., RangeServer], session: Session, gate: Gate) -> None:
    """R48: a read that had ended before the fork, well or not, has ended like that in the child too."""
    with session.open(serve().url) as file:
        good = file.pread(bytearray(10), offset=5)
        assert good.result() == 10

        def slow(exchange: Exchange) -> None:
            gate.stop()
            honest(exchange)

        server = serve(slow)
        with session.open(server.url, size=len(CONTENT)) as other:
            cancelled = other.pread(bytearray(10))
            cancelled.cancel()
            wait([cancelled], timeout=30)

        def child() -> tuple[int, bool, bool]:
            return good.result(), good.exception() is None, cancelled.cancelled()

        assert in_child(child) == (10, True, True)


def test_cancelled_half_way(under_way: ReadFuture) -> None:
    """R48: one that was just being cancelled by another thread has ended as cancelled, for whoever waits as well."""
    before, under_way._state = under_way._state, CANCELLED
    try:
        cancelled, over = in_child(
            lambda: (under_way.cancelled(), wait([under_way], timeout=20).done == {under_way})
        )
    finally:
        under_way._state = before
    assert (cancelled, over) == (True, True)


def test_child_reads_on(serve: Callable[..., RangeServer], session: Session, under_way: ReadFuture) -> None:
    """R48: reads that the child begins itself, with the same session, are its own and end as usual."""
    with session.open(serve().url) as file:

        def child() -> tuple[int, str]:
            into = bytearray(100)
            return file.pread(into, offset=7).result(), lost(under_way.result)

        assert in_child(child) == (100, TOLD)
