"""Leaving a read early: interrupts, cancellation, and callbacks that raise; nothing is written after that."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT
from tests.helpers.threads import HANG_GUARD, Threads, wait_asleep, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer, Script


def half_then_stop(gate: Gate) -> Script:
    """Send half of a body, and the other half when the test says so."""

    def script(exchange: Exchange) -> None:
        first, last = exchange.wanted
        part = exchange.part()
        exchange.head(
            "206 Partial Content",
            f"Content-Range: bytes {first}-{last}/{len(CONTENT)}",
            f"Content-Length: {len(part)}",
        )
        exchange.send(part[: len(part) // 2])
        gate.stop()
        exchange.send(part[len(part) // 2 :])

    return script


def interrupt_main() -> None:
    """Send Ctrl-C to the main thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_ctrl_c(serve: Callable[..., RangeServer], session: Session) -> None:
    """U34, R45: Ctrl-C leaves a read with KeyboardInterrupt, its destination is free and never written again."""
    gate = Gate()
    server, memory = serve(half_then_stop(gate)), bytearray(200_000)
    with session.open(server.url) as file, Threads() as threads:

        def press() -> None:
            gate.wait_arrived(4)
            interrupt_main()

        threads.start(press)
        with pytest.raises(KeyboardInterrupt):
            file.read_into(memory)
        memory.append(0)
        held = bytes(memory)
        gate.open()
        server.wait_closed()
        assert memory == held
        # The session goes on.
        server.get = half_then_stop(Gate(opened=True))
        assert file.read_into(memory, offset=5) == 200_001


@pytest.mark.parametrize("call", ["read", "read_many"])
def test_ctrl_c_in_other_calls(serve: Callable[..., RangeServer], session: Session, call: str) -> None:
    """U34: Ctrl-C leaves every reading call, and nothing stays under way."""
    gate = Gate()
    server = serve(half_then_stop(gate))
    with session.open(server.url) as file, Threads() as threads:

        def press() -> None:
            gate.wait_arrived(2)
            interrupt_main()

        threads.start(press)
        read = {
            "read": lambda: file.read(size=200_000),
            "read_many": lambda: file.read_many([(0, 100), (200, 100), (400, 100)]),
        }[call]
        with pytest.raises(KeyboardInterrupt):
            read()
        assert repr(session) == "<Session 0 reads under way>"
        gate.open()
        server.wait_closed()


def test_second_ctrl_c(serve: Callable[..., RangeServer], session: Session) -> None:
    """U34: an impatient second Ctrl-C doesn't get the destination back while a thread may still write to it."""
    signals = 0

    def count(_number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, count)
    try:
        writing = Gate()
        memory, returned = bytearray(100_000), threading.Event()
        with session.open(serve().url) as file, Threads() as threads:

            def press() -> None:
                writing.wait_arrived()
                for number in (1, 2, 3):
                    interrupt_main()
                    wait_until(lambda number=number: signals == number, f"signal {number}")
                    wait_asleep([threading.main_thread()])
                    assert not returned.is_set()
                writing.open()

            def read() -> None:
                try:
                    # Progress is told by the thread that writes, which stands still there.
                    file.read_into(memory, progress=lambda done, total: writing.stop())
                finally:
                    returned.set()

            threads.start(press)
            with pytest.raises(KeyboardInterrupt):
                read()
            memory.append(0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_cancel_in_the_queue(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R45: a queued read is cancelled at once, was never sent, and lets its destination go."""
    gate = Gate()
    session = make_session(concurrency=1)
    server, memory = serve(half_then_stop(gate)), bytearray(50)
    with session.open(server.url) as file:
        first = file.pread(bytearray(50))
        gate.wait_arrived()
        queued = file.pread(memory, offset=100)
        assert not queued.running()
        assert queued.cancel()
        assert queued.cancelled()
        assert queued.done()
        memory.append(0)
        assert queued.cancel()
        assert concurrent.futures.wait([queued]).done == {queued}
        gate.open()
        assert first.result() == 50
        assert not first.cancel()
    assert len(server.gets()) == 1


def test_cancel_in_the_middle(serve: Callable[..., RangeServer], session: Session) -> None:
    """R45: a read is cancelled in mid-body: the server sees the close, and nothing is written after it has settled."""
    gate = Gate()
    server, memory = serve(half_then_stop(gate)), bytearray(50_000)
    with session.open(server.url) as file:
        future = file.pread(memory)
        gate.wait_arrived()
        assert future.running()
        assert future.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            future.result()
        assert not future.running()
        memory.append(0)
        held = bytes(memory)
        gate.open()
        server.wait_closed()
        assert memory == held


def test_await(serve: Callable[..., RangeServer], session: Session) -> None:
    """R45: a read can be awaited, and cancelling the task cancels it."""
    gate = Gate()
    server = serve()

    async def main() -> None:
        memory = bytearray(50)
        with session.open(server.url) as file:
            assert await file.pread(memory, offset=3) == 50
            assert memory == CONTENT[3:53]
            counts = await asyncio.gather(*(file.pread(bytearray(10), offset=place) for place in range(20)))
            assert counts == [10] * 20
            server.get = half_then_stop(gate)
            future = file.pread(memory)
            task = asyncio.ensure_future(future)
            await asyncio.to_thread(gate.wait_arrived)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(concurrent.futures.wait, [future])
            assert future.cancelled()
            memory.append(0)

    asyncio.run(main())
    gate.open()


class OwnError(Exception):
    """Raised by a callback of the test."""


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_progress_that_raises(
    serve: Callable[..., RangeServer], session: Session, path: Path, kind: str
) -> None:
    """R45: what a progress callback raises ends the read, and is raised as it is."""
    memory = bytearray(200_000)

    def progress(done: int, total: int | None) -> None:
        raise OwnError(done, total)

    with session.open(serve().url if kind == "remote" else path) as file:
        with pytest.raises(OwnError):
            file.read_into(memory, progress=progress)
        memory.append(0)
        with pytest.raises(OwnError):
            file.pread(memory, progress=progress).result()
        memory.append(0)
        assert file.read_into(memory) == 200_002


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("size", [5_000, 200_000])
@pytest.mark.parametrize("kind", ["remote", "local"])
def test_last_progress_that_raises(  # noqa: PLR0917 - fixtures and parameters
    serve: Callable[..., RangeServer],
    session: Session,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    size: int,
    raised: type[BaseException],
) -> None:
    """R45: whatever the last call of progress raises, SystemExit included, ends the read; nothing hangs or stays out."""
    memory, error = bytearray(size), raised("at the end")

    def progress(done: int, total: int | None) -> None:
        if done == total:
            raise error

    with session.open(serve().url if kind == "remote" else path) as file:
        # More often than there are threads: none of them is lost to it.
        for _ in range(6):
            future = file.pread(memory, size=size, progress=progress)
            with pytest.raises(raised) as caught:
                future.result(HANG_GUARD)
            assert caught.value is error
            assert not future.running()
            memory.append(0)
            with pytest.raises(raised) as caught:
                file.read_into(memory, size=size, progress=progress)
            assert caught.value is error
            memory.append(0)
        assert repr(session) == "<Session 0 reads under way>"
        assert file.read_into(memory, size=size) == size
    handles = session.stats().get("handles")
    assert handles is None or (handles.leased, handles.leaked) == (0, 0)
    assert caplog.text == ""


def test_progress(serve: Callable[..., RangeServer], session: Session) -> None:
    """R46: progress is told at least every 64 KiB, only grows, and ends at the size."""
    told: list[tuple[int, int | None]] = []
    with session.open(serve().url) as file:
        assert file.read_into(
            bytearray(len(CONTENT)), progress=lambda done, total: told.append((done, total))
        ) == len(CONTENT)
        counts = [done for done, _ in told]
        assert counts == sorted(set(counts))
        assert counts[-1] == len(CONTENT)
        steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        # A piece of what libcurl hands over is at most its buffer.
        assert max(steps) <= (64 << 10) + (256 << 10)
        assert {total for _, total in told} == {len(CONTENT)}
        told.clear()
        file.read_into(bytearray(5), progress=lambda done, total: told.append((done, total)))
        assert told == [(5, 5)]


def test_progress_that_cancels(serve: Callable[..., RangeServer], session: Session) -> None:
    """R45: a progress callback may cancel its own read."""
    ready = threading.Event()
    with session.open(serve().url) as file:

        def progress(done: int, total: int | None) -> None:
            ready.wait(30)
            future.cancel()

        future = file.pread(bytearray(len(CONTENT)), progress=progress)
        ready.set()
        concurrent.futures.wait([future])
        assert future.cancelled()


def test_stats(serve: Callable[..., RangeServer], session: Session) -> None:
    """R46: a read's stats tell requests, bytes on the wire, reuse, protocol, peer, transport and time."""
    server = serve()
    with session.open(server.url) as file:
        future = file.pread(bytearray(len(CONTENT)))
        assert future.result() == len(CONTENT)
        stats = future.stats
        tasks = -(-len(CONTENT) // 64_000)
        assert stats.tries == tasks == len(server.gets())
        assert stats.resumes == 0
        assert stats.wire_bytes > len(CONTENT)
        assert tasks - stats.reused == server.connections - 1
        assert (stats.protocol, stats.transport) == ("HTTP/1.1", "easy")
        assert stats.peer == server.origin.removeprefix("http://")
        assert stats.seconds > 0
        assert future.stats == stats
        again = file.pread(bytearray(10))
        again.result()
        assert (again.stats.tries, again.stats.reused) == (1, 1)
