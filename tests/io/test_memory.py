"""Bounded memory: what is received, read ahead and queued never grows with what a server sends."""

from __future__ import annotations

import hashlib
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.errors import PoolTimeoutError
from respool.io import Config, HTTPStatusError, RangeIntegrityError, ReadTimeoutError
from respool.io._stream import blocks
from tests.helpers import lies
from tests.helpers.gates import Gate
from tests.helpers.range_server import CONTENT, honest
from tests.helpers.threads import Threads, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool.io import Session
    from tests.helpers.range_server import Exchange, RangeServer

MIB = 1 << 20


def resident() -> int:
    """Return the process's resident memory, in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def test_ten_gigabytes_instead_of_one_megabyte(serve: Callable[..., RangeServer], session: Session) -> None:
    """R47: a 200 with 10 GiB to a range of 1 MiB is refused at its head: the connection is closed, not drained."""
    server = serve(
        lies.endless_body("200 OK", f"Content-Length: {10 << 30}"),
        lies.head_of(f"Content-Length: {10 << 30}"),
    )
    with session.open(server.url) as file:
        memory = bytearray(MIB)
        before = resident()
        with pytest.raises(RangeIntegrityError):
            file.read_into(memory, offset=5)
        assert resident() - before < 32 * MIB
    server.wait_closed()
    # What the kernel had taken before the close; nothing of it was read for long.
    assert server.sent < 64 * MIB


def test_slice_of_ten_gigabytes(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: also where whole objects are allowed, nothing behind the range is read."""
    session = make_session(allow_full_response=True)
    server = serve(
        lies.endless_body("200 OK", f"Content-Length: {10 << 30}"),
        lies.head_of(f"Content-Length: {10 << 30}"),
    )
    with session.open(server.url) as file:
        memory = bytearray(b"x" * MIB)
        assert file.read_into(memory, offset=5) == MIB
        assert memory == bytes(MIB)
    server.wait_closed()
    assert server.sent < 64 * MIB


def zeros(exchange: Exchange) -> None:
    """Serve ranges of a large object of zeros that exists nowhere."""
    first, last = exchange.asked.range or (0, 0)
    exchange.head(
        "206 Partial Content",
        f"Content-Range: bytes {first}-{last}/{256 * MIB}",
        f"Content-Length: {last - first + 1}",
    )
    block, left = bytes(MIB), last - first + 1
    while left:
        exchange.send(block[: min(left, MIB)])
        left -= min(left, MIB)


@pytest.mark.slow
def test_stream_within_a_budget(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: an object of 256 MiB goes through a budget of 8 MiB, and memory grows by no more."""
    session = make_session(buffer_size="2MiB", max_bytes="8MiB", task_size="1MiB")
    server = serve(zeros, lies.head_of(f"Content-Length: {256 * MIB}"))
    with session.open(server.url) as file:
        for _ in blocks(file, size=8 * MIB):
            pass
        before, seen, most = resident(), 0, 0
        with closing(blocks(file)) as stream:
            for view in stream:
                seen += view.nbytes
                most = max(most, session.stats()["buffers"].cost)
        assert seen == 256 * MIB
        assert 0 < most <= 8 * MIB
        assert resident() - before < 32 * MIB
    assert session.stats()["buffers"].leased == 0


def test_a_thousand_queued_reads(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: a thousand queued reads are no more requests, threads or handles at once than the limits say."""
    gate = Gate()

    def slow(exchange: Exchange) -> None:
        gate.stop()
        honest(exchange)

    session = make_session(concurrency=4, per_origin=3, task_size=10)
    server = serve(slow)
    threads = threading.active_count()
    with session.open(server.url) as file:
        memory = [bytearray(30) for _ in range(1000)]
        reads = [file.pread(target, offset=place) for place, target in enumerate(memory)]
        gate.wait_arrived(3)
        assert len(server.gets()) == 3
        assert session.stats()["handles"].leased == 3
        # The server has a thread for each connection.
        assert threading.active_count() <= threads + 4 + server.connections
        gate.open()
        for place, read in enumerate(reads):
            assert read.result() == 30
            assert memory[place] == CONTENT[place : place + 30]
    assert server.connections <= 4
    assert session.stats()["handles"].created <= 4


def test_other_origins_are_not_held_up(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R41: reads that wait at one origin's limit don't hold up another origin."""
    gate = Gate()

    def slow(exchange: Exchange) -> None:
        gate.stop()
        honest(exchange)

    session = make_session(concurrency=4, per_origin=2)
    one, other = serve(slow), serve()
    with session.open(one.url) as blocked, session.open(other.url) as free:
        reads = [blocked.pread(bytearray(10)) for _ in range(20)]
        gate.wait_arrived(2)
        assert free.read(offset=1, size=10) == CONTENT[1:11]
        assert len(one.gets()) == 2
        gate.open()
        assert [read.result() for read in reads] == [10] * 20


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, None), (0, 0), (5, 100_000), (299_990, None), (300_000, None), (299_990, 50), (0, 64_000)],
)
def test_blocks(
    serve: Callable[..., RangeServer],
    make_session: Callable[..., Session],
    tmp_path: Path,
    offset: int,
    size: int | None,
) -> None:
    """R47: blocks come in order, none empty or larger than a buffer, and all buffers go back."""
    session = make_session(buffer_size=32_000, task_size=10_000)
    path = tmp_path / "object"
    path.write_bytes(CONTENT)
    for address in (serve().url, path):
        with session.open(address) as file:
            taken = [bytes(view) for view in blocks(file, offset=offset, size=size)]
        assert b"".join(taken) == CONTENT[offset : None if size is None else offset + size]
        assert all(0 < len(block) <= 32_000 for block in taken)
        assert session.stats()["buffers"].leased == 0


def test_blocks_of_unknown_size(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: where the size isn't known, blocks go on to the end; beyond it nothing is asked for."""
    session = make_session(buffer_size=32_000)
    silent = lies.head_of("Transfer-Encoding: chunked")
    for content in (CONTENT, CONTENT[:64_007]):
        for size in (None, 1_000_000):
            server = serve(
                lies.first_then(lies.content_range("bytes {first}-{last}/*")), silent, content=content
            )
            with session.open(server.url) as file:
                assert file.size is None
                taken = [bytes(view) for view in blocks(file, offset=7, size=size)]
                assert b"".join(taken) == content[7:]
                assert all((asked.range or (0, 0))[0] < len(content) for asked in server.gets())
    with session.open("/proc/self/maps") as file:
        assert b"[stack]" in b"".join([bytes(view) for view in blocks(file)])


@pytest.mark.parametrize("size", [None, 1_000_000])
def test_blocks_up_to_an_end_that_only_a_refusal_tells(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session], size: int | None
) -> None:
    """R47: where no answer ever tells the size, and a block ends where the object does, the 416 to the next is the end."""
    session = make_session(buffer_size=32_000)

    def silent(exchange: Exchange) -> None:
        beyond = exchange.wanted[0] >= len(exchange.content)
        (lies.not_satisfiable() if beyond else lies.content_range("bytes {first}-{last}/*"))(exchange)

    server = serve(silent, lies.head_of("Transfer-Encoding: chunked"), content=CONTENT[:64_000])
    with session.open(server.url) as file:
        assert b"".join(bytes(view) for view in blocks(file, size=size)) == CONTENT[:64_000]
        assert file.size is None
        # What begins beyond the end is no end.
        with pytest.raises(HTTPStatusError) as caught:
            next(blocks(file, offset=64_000, size=size))
        assert caught.value.status == 416
    assert session.stats()["buffers"].leased == 0


def test_blocks_with_one_buffer(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: with a budget of a single buffer a stream goes on without reading ahead."""
    session = make_session(buffer_size=32_768, max_bytes=32_768)
    with session.open(serve().url) as file:
        assert b"".join(bytes(view) for view in blocks(file, ahead=5)) == CONTENT
    assert session.stats()["buffers"].created == 1


@pytest.mark.parametrize("where", ["argument", "variable", "session"])
def test_buffers_for_which_there_is_no_memory(
    make_session: Callable[..., Session], path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """R47: a size of buffers for which there's no memory is told by the name that it was given under."""
    what = "buffer_size" if where == "argument" else "RESPOOL_BUFFER_SIZE"
    if where == "argument":
        session = make_session(buffer_size=1 << 60)
    else:
        monkeypatch.setenv("RESPOOL_BUFFER_SIZE", str(1 << 60))
        session = make_session(Config(), concurrency=2) if where == "session" else make_session()
    with session.open("/proc/self/maps") as file, pytest.raises(MemoryError) as caught:
        next(blocks(file))
    assert str(caught.value).startswith(f"{what}={1 << 60}: can't allocate a buffer of {1 << 60} bytes")
    assert session.stats()["buffers"].size == 0


def test_two_streams_and_one_buffer(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: a stream that waits for another's buffer waits no longer than its timeout."""
    session = make_session(buffer_size=32_768, max_bytes=32_768)
    with session.open(serve().url) as file, closing(blocks(file)) as first:
        next(first)
        with pytest.raises(ReadTimeoutError, match="no buffer came free") as caught:
            next(iter(blocks(file, timeout=0.01)))
        assert not isinstance(caught.value, PoolTimeoutError)
        first.close()
        assert b"".join(bytes(view) for view in blocks(file, timeout=5)) == CONTENT


def test_streams_side_by_side(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R47: many streams share a few buffers and none waits for ever."""
    session = make_session(buffer_size=32_768, max_bytes=3 * 32_768, concurrency=4)
    with session.open(serve().url) as file, Threads() as threads:

        def stream() -> bytes:
            digest = hashlib.sha256()
            for view in blocks(file):
                digest.update(view)
            return digest.digest()

        tasks = [threads.start(stream) for _ in range(8)]
        expected = hashlib.sha256(CONTENT).digest()
        assert {task.result() for task in tasks} == {expected}
    assert session.stats()["buffers"].size <= 3


def test_stream_that_is_left(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R47: a stream that's closed in the middle breaks off what it reads ahead and gives every buffer back."""
    gate = Gate()

    def slow(exchange: Exchange) -> None:
        if exchange.wanted[0]:
            gate.stop()
        honest(exchange)

    session = make_session(buffer_size=32_768)
    with session.open(serve(slow).url) as file:
        stream = blocks(file, ahead=2)
        assert bytes(next(stream)) == CONTENT[:32_768]
        gate.wait_arrived(2)
        assert session.stats()["buffers"].leased == 3
        stream.close()
        stats = session.stats()["buffers"]
        assert (stats.leased, stats.idle) == (0, 3)
        gate.open()


def test_stream_that_fails(serve: Callable[..., RangeServer], make_session: Callable[..., Session]) -> None:
    """R47: a stream that meets an error gives every buffer back and raises it."""
    session = make_session(buffer_size=32_768)

    def lie(exchange: Exchange) -> None:
        (lies.status("500 Oops") if exchange.wanted[0] > 100_000 else honest)(exchange)

    with session.open(serve(lie).url) as file:
        taken = []
        with pytest.raises(HTTPStatusError):
            taken.extend(bytes(view) for view in blocks(file))
        assert CONTENT.startswith(b"".join(taken))
        wait_until(lambda: session.stats()["buffers"].leased == 0, "the return of all buffers")
        with pytest.raises(ValueError, match="beyond the end"):
            next(blocks(file, offset=len(CONTENT) + 1))
