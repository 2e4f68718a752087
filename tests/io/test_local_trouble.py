"""Local files under trouble: short reads, signals, files that change, closing, deadlines and cancelling."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from respool.io import RangeIntegrityError, ReadTimeoutError, Session
from respool.io import local as module
from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT
from tests.helpers.threads import Threads
from tests.io.conftest import Guarded, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

TOTAL = len(CONTENT)


def test_short_reads(session: Session, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R49: a read that the system does in pieces goes on until all is there."""
    real, sizes = os.preadv, []

    def short(fd: int, buffers: list[memoryview], offset: int) -> int:
        with buffers[0][: 1 + len(sizes) % 7] as piece:
            count = real(fd, [piece], offset)
        sizes.append(count)
        return count

    monkeypatch.setattr(module.os, "preadv", short)
    with session.open(path) as file:
        assert file.read(offset=5, size=1000) == CONTENT[5:1005]
        memory = bytearray(1000)
        assert file.pread(memory, offset=6).result() == 1000
        assert memory == CONTENT[6:1006]
    assert max(sizes) == 7


@pytest.mark.timeout(60, method="thread")
def test_signals_all_the_time(session: Session, tmp_path: Path) -> None:
    """R49: signals every half millisecond don't shorten or break a read."""
    path = tmp_path / "large"
    content = CONTENT * 200
    path.write_bytes(content)
    caught = 0

    def count(_number: int, _frame: FrameType | None) -> None:
        nonlocal caught
        caught += 1

    before = signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        with session.open(path) as file:
            while caught < 20:
                assert file.read() == content
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("way", ["read", "read_into", "pread", "read_many"])
def test_file_that_shrinks(session: Session, path: Path, way: str) -> None:
    """R49: a file that has shrunk is an error that tells what was asked for and what there was."""
    with session.open(path) as file:
        os.truncate(path, TOTAL - 100)
        read: Callable[[], object] = {
            "read": lambda: file.read(offset=TOTAL - 150, size=120),
            "read_into": lambda: file.read_into(bytearray(120), offset=TOTAL - 150),
            "pread": lambda: file.pread(bytearray(120), offset=TOTAL - 150).result(),
            "read_many": lambda: file.read_many([(TOTAL - 150, 120)]),
        }[way]
        with pytest.raises(RangeIntegrityError, match="shrank") as caught:
            read()
        assert (caught.value.offset, caught.value.size, caught.value.got) == (TOTAL - 150, 120, 50)
        assert caught.value.filename == str(path)
        assert file.read(size=10) == CONTENT[:10]


def test_file_that_shrinks_meanwhile(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R49: also where it shrinks in the middle of a read."""
    path = tmp_path / "large"
    path.write_bytes(bytes(3 << 20))
    monkeypatch.setattr(module, "_STEP", 1 << 20)
    with session.open(path) as file, pytest.raises(RangeIntegrityError) as caught:
        file.read_into(bytearray(3 << 20), progress=lambda done, total: os.truncate(path, 1_500_000))
    assert caught.value.got == 1_500_000


def test_file_that_grows(session: Session, path: Path) -> None:
    """R49: a file stands for what it was at open: what is added isn't read."""
    with session.open(path) as file:
        with path.open("ab") as out:
            out.write(b"more")
        assert file.size == TOTAL
        assert file.read() == CONTENT
        assert file.read_into(bytearray(TOTAL + 4)) == TOTAL
    with session.open(path) as file:
        assert file.read(offset=TOTAL) == b"more"


def test_file_that_is_replaced(session: Session, path: Path) -> None:
    """R49: an open file stays the one that was opened, whatever its name leads to later."""
    with session.open(path) as file:
        path.unlink()
        path.write_bytes(b"another")
        assert file.read(size=10) == CONTENT[:10]


def test_close_while_reading(session: Session, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R49: closing a file lets reads under way end on the right file, and only then is its descriptor free."""
    gate, real = Gate(), os.preadv

    def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
        gate.stop()
        return real(fd, buffers, offset)

    file = session.open(path)
    monkeypatch.setattr(module.os, "preadv", slow)
    memory = bytearray(100)
    future = file.pread(memory, offset=3)
    gate.wait_arrived()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()
    # Would be given the number of the closed file, were it free.
    with open(os.devnull, "rb"):  # noqa: PTH123 - a descriptor of its own
        gate.open()
        assert future.result() == 100
    assert memory == CONTENT[3:103]


def test_dropped_file(session: Session, path: Path) -> None:
    """R49: a file that is dropped without close warns, and gives its descriptor back."""
    descriptors = open_descriptors()
    file = session.open(path)
    last = [file]
    del file
    with pytest.warns(ResourceWarning, match="unclosed file .*an object"):
        last.clear()
    assert open_descriptors() == descriptors


@contextlib.contextmanager
def slow_disk(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> Iterator[None]:
    """Make every read of a local file stop at a gate."""
    real = os.preadv

    def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
        gate.stop()
        return real(fd, buffers, offset)

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "preadv", slow)
        yield


def test_timeout_in_the_queue(
    make_session: Callable[..., Session], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: a local read that gets no worker in time ends in ReadTimeoutError, and one under way at its next step."""
    session, gate = make_session(concurrency=1), Gate()
    with session.open(path) as file, slow_disk(monkeypatch, gate):
        first = file.pread(bytearray(100))
        gate.wait_arrived()
        target = Guarded(100)
        with pytest.raises(ReadTimeoutError):
            file.pread(target.view, timeout=0.01).result()
        assert target.untouched
        gate.open()
        assert first.result() == 100
        with pytest.raises(ReadTimeoutError):
            file.read_into(target.view, timeout=0)
        assert target.untouched


def test_cancelling(
    make_session: Callable[..., Session], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R45: a queued local read is cancelled at once, one under way at its next step."""
    session, gate = make_session(concurrency=1), Gate()
    with session.open(path) as file, slow_disk(monkeypatch, gate):
        memory, queued_memory = bytearray(100), bytearray(100)
        first = file.pread(memory)
        gate.wait_arrived()
        queued = file.pread(queued_memory)
        assert queued.cancel()
        assert queued.done()
        queued_memory.append(0)
        assert first.running()
        assert first.cancel()
        assert not first.done()
        gate.open()
        with pytest.raises(Exception, match=r"^$") as caught:
            first.result()
        assert type(caught.value).__name__ == "CancelledError"
        memory.append(0)


def test_many_threads(session: Session, path: Path) -> None:
    """R49: one file is read from many threads at once."""
    with session.open(path) as file, Threads() as threads:
        tasks = [
            threads.start(lambda place=place: file.read(offset=place * 999, size=999)) for place in range(50)
        ]
        for place, task in enumerate(tasks):
            assert task.result() == CONTENT[place * 999 : place * 999 + 999]


def test_no_thread_for_a_plain_read(session: Session, path: Path) -> None:
    """R49: read and read_into of a local file are done by the calling thread."""
    before = set(threading.enumerate())
    with session.open(path) as file:
        file.read()
        file.read_into(bytearray(5))
    assert set(threading.enumerate()) <= before


def test_stats_of_a_local_read(session: Session, path: Path) -> None:
    """R46: a local read's stats say that it was one."""
    with session.open(path) as file:
        future = file.pread(bytearray(5))
        future.result()
        assert (future.stats.tries, future.stats.wire_bytes, future.stats.reused) == (1, 0, 0)
        assert (future.stats.protocol, future.stats.transport, future.stats.peer) == ("file", "local", None)
        assert future.stats.seconds > 0


def test_a_descriptor_that_closes(path: Path) -> None:
    """R49: a descriptor that's being closed takes no new user, and is closed once, by the last one."""
    descriptor = module._Descriptor(os.open(path, os.O_RDONLY))
    number = descriptor.fd
    assert descriptor.use("one")
    assert descriptor.use("other")
    descriptor.close()
    assert not descriptor.use("third")
    descriptor.leave("one")
    os.fstat(number)
    descriptor.leave("one")
    os.fstat(number)
    descriptor.leave("other")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    descriptor.close()
    descriptor.leave("other")
    assert descriptor.fd == -1
