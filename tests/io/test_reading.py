"""Reading in other ways than one range at a time: `buffered`, `read_many`, to an end that nobody tells."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

from respool.io import (
    RangeIntegrityError,
    Session,
)
from tests.helpers import lies
from tests.helpers.range_server import CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.helpers.range_server import RangeServer, Script

TOTAL = len(CONTENT)


@pytest.mark.parametrize("block", [1, 7, 1 << 16, 1 << 20])
def test_buffered(serve: Callable[..., RangeServer], session: Session, block: int) -> None:
    """R01: `buffered` is a file object as other code wants it."""
    content = CONTENT[:2000]
    with session.open(serve(content=content).url) as file, file.buffered(block) as reader:
        assert isinstance(reader, io.BufferedReader)
        assert reader.readable()
        assert reader.seekable()
        assert reader.read(10) == content[:10]
        assert reader.seek(-20, os.SEEK_END) == 1980
        assert reader.tell() == 1980
        assert reader.read() == content[-20:]
        assert reader.read(5) == b""
        assert reader.seek(5000) == 5000
        assert reader.read(5) == b""
        assert reader.seek(100) == 100
        assert reader.seek(10, os.SEEK_CUR) == 110
        into = bytearray(50)
        assert reader.readinto(into) == 50
        assert into == content[110:160]
        with pytest.raises(ValueError, match="negative"):
            reader.seek(-5)
        assert reader.raw.name == file.name
        reader.close()
        assert not file.closed


def test_buffered_lines(session: Session, tmp_path: Path) -> None:
    """R01: a text wrapper over `buffered` reads lines."""
    path = tmp_path / "lines"
    path.write_text("one\ntwo\nthree", encoding="utf-8")
    with session.open(path) as file, io.TextIOWrapper(file.buffered(4), encoding="utf-8") as lines:
        assert list(lines) == ["one\n", "two\n", "three"]


def test_buffered_arguments(serve: Callable[..., RangeServer], session: Session) -> None:
    """R42: a block of no bytes is ValueError, and of no number TypeError."""
    with session.open(serve().url) as file:
        for block in (0, -1):
            with pytest.raises(ValueError, match="block"):
                file.buffered(block)
        with pytest.raises(TypeError, match="block"):
            file.buffered(1.5)  # type: ignore[arg-type]


def test_read_many(serve: Callable[..., RangeServer], session: Session) -> None:
    """R01: several ranges are read at once, in their order, overlapping and clipped ones too."""
    ranges = [(TOTAL - 5, 10), (0, 3), (100, 70_000), (2, 0), (1, 3), (TOTAL, 4)]
    with session.open(serve().url) as file:
        assert file.read_many(ranges) == [CONTENT[offset : offset + size] for offset, size in ranges]
        assert file.read_many([]) == []
        with pytest.raises(TypeError, match="size must be an int"):
            file.read_many([(0, None)])  # type: ignore[list-item]


def test_read_many_fails_as_one(serve: Callable[..., RangeServer], session: Session) -> None:
    """R14: the first range that fails ends all of them."""
    with session.open(serve(lies.cut_after(1)).url) as file, pytest.raises(RangeIntegrityError):
        file.read_many([(place, 10) for place in range(50)])
    assert repr(session) == "<Session 0 reads under way>"


@pytest.mark.parametrize("get", [lies.chunked, lies.content_range("bytes {first}-{last}/{total}")])
def test_reading_to_an_unknown_end(serve: Callable[..., RangeServer], session: Session, get: Script) -> None:
    """R12: an object whose size only the read's answers tell is read to its end."""
    silent = lies.head_of("Transfer-Encoding: chunked")
    server = serve(lies.first_then(lies.content_range("bytes {first}-{last}/*"), get), silent)
    with session.open(server.url) as file:
        assert file.size is None
        assert file.read(offset=5) == CONTENT[5:]
        assert file.size == TOTAL


def test_reading_a_whole_object_of_unknown_size(
    serve: Callable[..., RangeServer], make_session: Callable[..., Session]
) -> None:
    """R02: with allow_full_response, an object whose size nobody tells is read to its end."""
    session = make_session(task_size=64_000, allow_full_response=True)
    silent = lies.head_of("Transfer-Encoding: chunked")
    with session.open(serve(lies.ignores_range_chunked, silent).url) as file:
        assert file.size is None
        assert file.read() == CONTENT
        assert file.size == TOTAL
    # Here the size is a multiple of the task's: the end is met by a read of nothing.
    with session.open(serve(lies.ignores_range_chunked, silent, content=CONTENT[:128_000]).url) as file:
        assert file.read() == CONTENT[:128_000]
