"""Local files: read to the last byte asked for, whatever the system does in between."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool.io import LocalFile, Session
from tests.helpers.range_server import CONTENT
from tests.io.conftest import Guarded, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

TOTAL = len(CONTENT)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, None), (0, 1), (17, 5000), (TOTAL - 1, 1), (TOTAL - 5, 100), (TOTAL, None)]
)
def test_ranges(session: Session, path: Path, offset: int, size: int | None) -> None:
    """R49: any range of a file is read, clipped at its end."""
    expected = CONTENT[offset : None if size is None else offset + size]
    with session.open(path) as file:
        assert file.size == TOTAL
        assert file.read(offset=offset, size=size) == expected
        target = Guarded(TOTAL)
        assert file.read_into(target.view, offset=offset, size=size) == len(expected)
        assert target.held[: len(expected)] == expected
        future = file.pread(bytearray(TOTAL), offset=offset, size=size)
        assert future.result() == len(expected)
        assert file.read_many([(offset, 7)]) == [CONTENT[offset : offset + 7]]
        with pytest.raises(ValueError, match="beyond the end"):
            file.read(offset=TOTAL + 1)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("plain", "{path}"),
        ("plain", "file://{quoted}"),
        ("plain", "FILE://LocalHost{quoted}"),
        ("per%41cent", "{path}"),
        ("per%41cent", "file://{quoted}"),
        ("a ?#&ü", "file://{quoted}"),
        ("http:", "{path}"),
        ("\udcff\udcfe", "file://{quoted}"),
    ],
)
def test_addresses(session: Session, tmp_path: Path, name: str, address: str) -> None:
    """R49: a file is named by its path as it is, or by a file URL, percent-encoded."""
    import urllib.parse

    path = tmp_path / name
    path.write_bytes(b"here")
    quoted = urllib.parse.quote(os.fsencode(path))
    with session.open(address.format(path=path, quoted=quoted)) as file:
        assert isinstance(file, LocalFile)
        assert file.read() == b"here"
        assert file.name == str(path)


def test_relative_paths(session: Session, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R49: a relative path is one of the working directory at open; a scheme needs its slashes."""
    monkeypatch.chdir(path.parent)
    Path("http:x").write_bytes(b"no URL")
    with session.open("http:x") as odd, session.open(Path(path.name)) as file:
        monkeypatch.chdir("/")
        assert odd.read() == b"no URL"
        assert file.name == str(path)
        assert file.read(size=5) == CONTENT[:5]


def test_empty_file(session: Session, tmp_path: Path) -> None:
    """R49: a file of no bytes is read as such, at once."""
    (tmp_path / "empty").touch()
    with session.open(tmp_path / "empty") as file:
        assert file.size == 0
        assert file.read() == b""
        assert file.read_into(bytearray(5)) == 0
        with pytest.raises(ValueError, match="beyond the end"):
            file.read(offset=1)


def test_files_that_are_made_up(make_session: Callable[..., Session]) -> None:
    """R49: a /proc file of size 0 has an unknown size, and is read to its end in every way."""
    session = make_session(task_size=100)
    with session.open("/proc/self/maps") as file:
        assert file.size is None
        whole = file.read()
        assert whole.startswith(whole[:10])
        assert b"[stack]" in whole
        assert len(whole) > 1000
    content = Path("/proc/self/cmdline").read_bytes()
    with session.open("/proc/self/cmdline") as file:
        assert file.read() == content
        assert file.read(offset=3) == content[3:]
        assert file.read(size=1 << 20) == content
        memory = bytearray(len(content) + 5)
        assert file.read_into(memory) == len(content)
        assert file.pread(memory, offset=1).result() == len(content) - 1
        with file.buffered(7) as reader:
            assert reader.read() == content


def test_character_device(session: Session) -> None:
    """R49: a device that can be read at any offset is, as much as is asked for."""
    with session.open("/dev/zero") as file:
        assert file.size is None
        assert file.read(size=1000) == bytes(1000)


@pytest.mark.parametrize(
    ("make", "kind", "number"),
    [
        (lambda path: None, FileNotFoundError, errno.ENOENT),
        (os.mkdir, IsADirectoryError, errno.EISDIR),
        (os.mkfifo, OSError, errno.ESPIPE),
        (lambda path: socket.socket(socket.AF_UNIX).bind(os.fspath(path)), OSError, errno.ENXIO),
        (lambda path: path.symlink_to(path), OSError, errno.ELOOP),
    ],
    ids=["missing", "directory", "pipe", "socket", "loop"],
)
@pytest.mark.filterwarnings("ignore:unclosed <socket")
def test_what_is_no_file(
    session: Session, tmp_path: Path, make: Callable[[Any], object], kind: type[OSError], number: int
) -> None:
    """R49: a directory, a missing file, a pipe are OSErrors with errno and path, from open and without a hang."""
    path = tmp_path / "x"
    make(path)
    descriptors = open_descriptors()
    with pytest.raises(kind) as caught:
        session.open(path)
    assert caught.value.errno == number
    assert caught.value.filename == str(path)
    assert open_descriptors() == descriptors


def test_no_permission(session: Session, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R49: a file that may not be read is a PermissionError with errno and path, whoever runs the tests."""
    if os.geteuid() == 0:
        # The superuser may read everything, so the system's answer is given by hand.
        def refuse(name: str, *_: object) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

        monkeypatch.setattr(os, "open", refuse)
    else:
        path.chmod(0)
    with pytest.raises(PermissionError) as caught:
        session.open(path)
    assert caught.value.errno == errno.EACCES
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("offset", [1 << 31, (1 << 31) - 3, 1 << 32, (1 << 40) + 5])
def test_large_offsets(session: Session, tmp_path: Path, offset: int) -> None:
    """R49: offsets beyond 2 GiB are right."""
    path = tmp_path / "sparse"
    with path.open("wb") as out:
        out.seek(offset)
        out.write(b"far away")
    with session.open(path) as file:
        assert file.size == offset + 8
        assert file.read(offset=offset - 2) == b"\0\0far away"
        memory = bytearray(3)
        assert file.pread(memory, offset=offset + 4).result() == 3
        assert memory == b"awa"
