"""Sessions: their pools and threads, their end, forks, pickles, and what needs no pycurl."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

import respool.io
from respool import PoolStats
from respool.io import Config, LocalFile, ObjectChangedError, RemoteFile, Session
from respool.io import session as module
from tests.helpers import lies
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.programs import printed_by
from tests.helpers.range_server import CONTENT, honest
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.range_server import Exchange, RangeServer

TOTAL = len(CONTENT)


def test_stats(serve: Callable[..., RangeServer], session: Session, tmp_path: Path) -> None:
    """R46: a session's stats are those of its pools, by name."""
    (tmp_path / "x").write_bytes(b"x")
    with session.open(tmp_path / "x") as local:
        local.read()
    assert set(session.stats()) == {"buffers"}
    with session.open(serve().url) as file:
        file.read()
        file.read()
    stats = session.stats()
    assert set(stats) == {"buffers", "handles"}
    assert all(isinstance(found, PoolStats) for found in stats.values())
    assert stats["handles"].leased == 0
    assert 1 <= stats["handles"].created <= 4
    assert stats["handles"].acquired == 11


def test_close(serve: Callable[..., RangeServer], session: Session) -> None:
    """U32: close breaks reads off, ends every thread, closes every connection, and may be called again."""
    gate = Gate()
    threads = set(threading.enumerate())

    def slow(exchange: Exchange) -> None:
        gate.stop()
        honest(exchange)

    server = serve(slow)
    file = session.open(server.url)
    memory = [bytearray(10) for _ in range(20)]
    reads = [file.pread(target) for target in memory]
    gate.wait_arrived(4)
    session.close()
    for read, target in zip(reads, memory, strict=True):
        with pytest.raises(ValueError, match="session was closed"):
            read.result()
        target.append(0)
    gate.open()
    server.wait_closed()
    mine = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not [name for name in mine if name.startswith("respool")]
    session.close()
    assert session.closed
    assert repr(session) == "<Session closed>"
    with pytest.raises(ValueError, match="session is closed"):
        session.open(server.url)
    with pytest.raises(ValueError, match="session is closed"):
        file.read()
    with pytest.raises(ValueError, match="session is closed"), session:
        pass
    assert file.closed


def test_close_from_a_callback(serve: Callable[..., RangeServer], session: Session) -> None:
    """U32: a session may be closed by one of its own threads."""
    ended = threading.Event()
    with session.open(serve().url) as file:
        future = file.pread(bytearray(10))
        future.add_done_callback(lambda _: (session.close(), ended.set()))
        assert future.result() == 10
        assert ended.wait(30)
    assert session.closed


@pytest.mark.parametrize("kind", ["remote", "local"])
def test_close_from_progress(
    serve: Callable[..., RangeServer], session: Session, tmp_path: Path, kind: str
) -> None:
    """U32: a session may be closed by the progress callback of a read, which ends then."""
    path = tmp_path / "x"
    path.write_bytes(CONTENT * 40)
    with session.open(serve(content=CONTENT * 40).url if kind == "remote" else path) as file:
        memory = bytearray(file.size or 0)
        with pytest.raises(ValueError, match="session was closed while reading"):
            file.read_into(memory, progress=lambda done, total: session.close())
        memory.append(0)
    assert session.closed


def test_dropped_session(serve: Callable[..., RangeServer]) -> None:
    """U32: a session that is dropped without close warns, and its connections and threads end all the same."""
    server = serve()
    session = Session()
    with session.open(server.url) as file:
        file.read(size=10)
    pools = weakref.ref(session.buffers)
    last = [session, file]
    del session, file
    with pytest.warns(ResourceWarning, match="unclosed <Session"):
        last.clear()
    server.wait_closed()
    left = pools()
    assert left is None or left.closed


def test_nothing_is_started_early() -> None:
    """R47: making a session starts no thread and takes no memory from its allocator."""
    before = threading.active_count()
    with Session(Config(buffer_size="1GiB")) as session:
        assert threading.active_count() == before
        assert session.stats()["buffers"].created == 0


def test_no_pickles_of_sessions(session: Session) -> None:
    """R48: a session can't be pickled or copied, and says so."""
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="can't be pickled"):
            call(session)


def test_pickled_remote_file(serve: Callable[..., RangeServer], session: Session) -> None:
    """R48: a pickled file reopens with size and validator, without a request and without secrets."""
    server = serve()
    url = server.url.replace("//", "//user:pa55word@")
    with session.open(url, headers={"X-Key": "5ecret"}) as file:
        data = pickle.dumps(file)
    assert b"pa55word" not in data
    assert b"5ecret" not in data
    asked = len(server.asked)
    with pickle.loads(data) as other:  # noqa: S301 - our own
        assert isinstance(other, RemoteFile)
        assert other.session is module.default_session()
        assert (other.size, other.name) == (TOTAL, server.url)
        assert len(server.asked) == asked
        assert other.read(offset=3, size=5) == CONTENT[3:8]
        assert server.asked[-1].one("if-match") == '"v1"'
        assert server.asked[-1].one("authorization") is None
        server.get = lies.changed
        with pytest.raises(ObjectChangedError):
            other.read(size=5)
        other.session.close()


def test_pickling_a_signed_url(serve: Callable[..., RangeServer], session: Session) -> None:
    """R48: a file whose URL may hold a signature isn't pickled, and the error doesn't show it."""
    with session.open(serve().url + "?X-Amz-Signature=5ecret") as file:
        with pytest.raises(pickle.PicklingError, match="signature") as caught:
            pickle.dumps(file)
        assert "5ecret" not in str(caught.value)


def test_pickled_local_file(session: Session, tmp_path: Path) -> None:
    """R48: a pickled local file reopens, and not another version of it."""
    path = tmp_path / "x"
    path.write_bytes(b"one")
    with session.open(path) as file:
        data = pickle.dumps(file)
    with pickle.loads(data) as other:  # noqa: S301 - our own
        assert isinstance(other, LocalFile)
        assert other.read() == b"one"
        other.session.close()
    path.write_bytes(b"another")
    with pytest.raises(ObjectChangedError, match="replaced or written"):
        pickle.loads(data)  # noqa: S301 - our own
    with session.open("/proc/self/cmdline") as file:
        data = pickle.dumps(file)
    with pickle.loads(data) as other:  # noqa: S301 - our own
        assert other.read()


def test_fork(serve: Callable[..., RangeServer], session: Session, tmp_path: Path) -> None:
    """R48: after a fork parent and child read on, each over connections of its own."""
    gate = Gate(opened=True)

    def slow(exchange: Exchange) -> None:
        gate.stop()
        honest(exchange)

    server = serve(slow)
    path = tmp_path / "x"
    path.write_bytes(CONTENT)
    with session.open(server.url) as file, session.open(path) as local:
        assert file.read(size=1000) == CONTENT[:1000]
        gate.shut()
        under_way = file.pread(bytearray(10))
        wait_until(lambda: gate.inside == 1, "a read under way")
        connections = server.connections

        def child() -> tuple[bool, bool, int, int, str]:
            gate.open()
            same = file.read(offset=5, size=200_000) == CONTENT[5:200_005]
            future = local.pread(bytearray(10), offset=3)
            stats = session.stats()["handles"]
            return same, future.result() == 10, stats.created, stats.leased, repr(session)

        # The child's gate is a copy: it doesn't let the parent's server on.
        server.get = honest
        same, local_read, created, leased, shown = in_child(child)
        assert same
        assert local_read
        assert 1 <= created <= 4
        assert leased == 0
        assert shown == "<Session 0 reads under way>"
        assert server.connections > connections
        gate.open()
        assert under_way.result() == 10
        made = server.connections
        assert file.read(offset=7, size=1000) == CONTENT[7:1007]
        assert server.connections == made


def test_fork_with_locks_held(serve: Callable[..., RangeServer], session: Session, tmp_path: Path) -> None:
    """R48: a fork while other threads hold the reader's locks leaves none of them held in the child."""
    path = tmp_path / "x"
    path.write_bytes(CONTENT)
    with session.open(serve().url) as remote, session.open(path) as local:
        assert isinstance(remote, RemoteFile)
        assert isinstance(local, LocalFile)
        parts = session._parts

        def child() -> bool:
            right = remote.read(size=10) == local.read(size=10) == CONTENT[:10]
            right = right and local.pread(bytearray(5)).result() == 5
            local.close()
            session.close()
            return right

        with (
            remote._pinned._lock,
            local._descriptor._lock,
            parts.lock,
            parts.workers._lock,
            module._default_lock,
        ):
            assert in_child(child)
        assert remote.read(size=10) == local.read(size=10)


def test_default_session_of_a_child(serve: Callable[..., RangeServer]) -> None:
    """R48: a child has a default session of its own, and closing it leaves the parent's alone."""
    url = serve().url
    with respool.io.open(url) as file:
        assert file.read(size=5) == CONTENT[:5]
        parents = id(file.session)

        def child() -> tuple[bool, bool]:
            with respool.io.open(url) as own:
                right = own.read(size=5) == CONTENT[:5]
                other = id(own.session) != parents
                own.session.close()
            return right, other

        assert in_child(child) == (True, True)
        assert file.read(size=5) == CONTENT[:5]
        file.session.close()


def test_exit_without_close(serve: Callable[..., RangeServer]) -> None:
    """U32: a program that ends without closing anything ends at once and silently, also with reads under way."""
    gate = Gate()

    def slow(exchange: Exchange) -> None:
        gate.stop()

    server = serve(slow)
    lines = printed_by(
        f"""
        import respool.io
        file = respool.io.open({server.url!r}, size=10)
        reads = [file.pread(bytearray(10)) for _ in range(100)]
        while not reads[0].running():
            pass
        print("end")
        """
    )
    assert lines == ["end"]
    gate.open()
    server.wait_closed()


def test_import_without_pycurl(tmp_path: Path) -> None:
    """R44: without pycurl local files are read, and a remote one says which extra is missing."""
    (tmp_path / "x").write_bytes(b"local")
    lines = printed_by(
        f"""
        import sys
        sys.modules["pycurl"] = None
        import respool.io
        print("asyncio" in sys.modules, "threading" in sys.modules and "respool.io.session" in sys.modules)
        with respool.io.open({os.fspath(tmp_path / "x")!r}) as file:
            print(file.read())
        try:
            respool.io.open("http://127.0.0.1:1/")
        except ImportError as error:
            print("respool[" in str(error))
        file.session.close()
        """
    )
    assert lines == ["False False", "b'local'", "True"]


def test_public_names() -> None:
    """R44: the public names are there, are listed, and show the public module."""
    for name in respool.io.__all__:
        value = getattr(respool.io, name)
        assert value.__module__ == "respool.io", name
        assert value.__doc__
        assert name in dir(respool.io)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = respool.io.nonsense  # type: ignore[attr-defined]
