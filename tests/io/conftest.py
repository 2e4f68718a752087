"""Fixtures for tests of the reader: range servers, sessions that end, destinations with guards."""

from __future__ import annotations

import dataclasses
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.io import Config, RemoteIOError, Session
from tests.helpers.range_server import CONTENT, RangeServer, honest, honest_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.range_server import Script

# CPython 3.12.1 crashes when a generator that was begun under a tracing function is resumed by
# another thread, here the one of a read's tasks; 3.11 and 3.13 do not.
collect_ignore = ["test_interrupted_everywhere.py"] if sys.version_info[:2] == (3, 12) else []

GUARD = b"\xa5" * 64
OLD = 0x5A


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep proxies and settings of the machine's environment out of the tests."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or (name.startswith("RESPOOL_") and name in SETTINGS):
            monkeypatch.delenv(name)


SETTINGS = {f"RESPOOL_{field.name.upper()}" for field in dataclasses.fields(Config)}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be ended after the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the usual content."""
    path = tmp_path / "an object"
    path.write_bytes(CONTENT)
    return path


def open_descriptors() -> int:
    """Return how many file descriptors the process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def serve(stack: ExitStack) -> Callable[..., RangeServer]:
    """Start range servers: ``serve(get_script, head=..., content=...)``."""

    def start(get: Script = honest, head: Script = honest_head, **options: Any) -> RangeServer:
        return stack.enter_context(RangeServer(get, head, **options))

    return start


@pytest.fixture
def make_session(stack: ExitStack) -> Callable[..., Session]:
    """Make sessions that are closed before the servers of ``serve`` end, as those began earlier or later."""

    def make(config: Config | None = None, **settings: Any) -> Session:
        return stack.enter_context(Session(config, **settings))

    return make


@pytest.fixture
def session(make_session: Callable[..., Session]) -> Session:
    """A session with small tasks, so that a read is several of them."""
    return make_session(task_size=64_000, concurrency=4, per_origin=4)


class Guarded:
    """A destination between guard bytes, with old bytes in it that show what was written."""

    def __init__(self, size: int) -> None:
        self.memory = bytearray(GUARD + bytes([OLD]) * size + GUARD)
        self.size = size

    @property
    def view(self) -> memoryview:
        """The destination."""
        return memoryview(self.memory)[len(GUARD) : len(GUARD) + self.size]

    @property
    def held(self) -> bytes:
        """What the destination holds; the guards are looked at, too."""
        assert self.memory.startswith(GUARD), "bytes in front of the destination were overwritten"
        assert self.memory.endswith(GUARD), "bytes behind the destination were overwritten"
        return bytes(self.view)

    @property
    def untouched(self) -> bool:
        """Whether nothing was written at all."""
        return self.held == bytes([OLD]) * self.size


def refuse(
    serve: Callable[..., RangeServer],
    session: Session,
    lie: Script,
    *,
    offset: int = 1000,
    size: int = 5000,
    known: bool = True,
) -> RemoteIOError:
    """Read through a lie: the error, once it's clear that nothing was written and that honesty is read after it."""
    server = serve(lie)
    target = Guarded(size)
    # With a size given, the first answer of all is the lie: nothing was pinned before.
    with session.open(server.url, size=None if known else len(CONTENT)) as file:
        with pytest.raises(RemoteIOError) as caught:
            file.read_into(target.view, offset=offset, size=size)
        assert target.untouched
        assert (caught.value.url, caught.value.offset, caught.value.size) == (server.url, offset, size)
        server.get = honest
        assert file.read_into(target.view, offset=offset, size=size) == size
        assert target.held == CONTENT[offset : offset + size]
    return caught.value
