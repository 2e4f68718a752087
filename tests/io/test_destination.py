"""Destinations: what is taken, and what is refused before any request."""

from __future__ import annotations

import array
import ctypes
import mmap
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from respool.buffers import BufferPool
from respool.io.destination import host_view
from tests.helpers.range_server import CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from respool.io import File, Session
    from tests.helpers.range_server import RangeServer


@pytest.fixture(params=["remote", "local"])
def file(
    request: pytest.FixtureRequest,
    serve: Callable[..., RangeServer],
    session: Session,
    tmp_path: Path,
) -> Iterator[File]:
    """The same object as a remote and as a local file."""
    path = tmp_path / "object"
    path.write_bytes(CONTENT)
    with session.open(serve().url if request.param == "remote" else path) as opened:
        yield opened


def released() -> memoryview:
    """Return a memoryview that was released."""
    view = memoryview(bytearray(10))
    view.release()
    return view


class OnGPU:
    """Something with memory on a GPU."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {
        "data": (1, False),
        "shape": (10,),
        "typestr": "|u1",
        "version": 3,
    }


class Tensor:
    """Something with DLPack and no buffer protocol."""

    def __dlpack__(self) -> None:
        """Not asked."""


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: b"0123456789", TypeError),
        (lambda: memoryview(bytearray(10)).toreadonly(), TypeError),
        (lambda: "0123456789", TypeError),
        (lambda: None, TypeError),
        (lambda: [0] * 10, TypeError),
        (OnGPU, TypeError),
        (Tensor, TypeError),
        (lambda: memoryview(bytearray(20))[::2], BufferError),
        (lambda: memoryview(bytearray(10))[::-1], BufferError),
        (lambda: np.zeros((4, 4), order="F"), BufferError),
        (lambda: np.zeros((4, 4))[:, 1], BufferError),
        (released, ValueError),
        (lambda: bytearray(9), ValueError),
    ],
    ids=[
        "bytes",
        "read-only view",
        "text",
        "None",
        "list",
        "GPU",
        "DLPack only",
        "strided",
        "backwards",
        "Fortran order",
        "column",
        "released",
        "too small",
    ],
)
def test_refused_destinations(file: File, make: Callable[[], Any], error: type[Exception]) -> None:
    """R42: what can't be filled is TypeError, BufferError or ValueError before any request."""
    with pytest.raises(error):
        file.read_into(make(), size=10)
    with pytest.raises(error):
        file.pread(make(), size=10)


def test_no_request_for_refused_destinations(serve: Callable[..., RangeServer], session: Session) -> None:
    """R42: the server hears nothing of a read that was refused."""
    server = serve()
    with session.open(server.url) as file:
        for bad in (b"x", memoryview(bytearray(20))[::2], bytearray(1)):
            with pytest.raises((TypeError, BufferError, ValueError)):
                file.read_into(bad, size=10)
    assert not server.gets()


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(80),
        lambda: memoryview(bytearray(100))[10:90],
        lambda: array.array("d", [0.0] * 10),
        lambda: np.zeros(10),
        lambda: np.zeros((2, 5), dtype=">f8"),
        lambda: np.zeros((5, 4), dtype=np.float32),
        lambda: np.zeros(20, dtype=[("a", "<u2"), ("b", "<u2")]),
        lambda: np.zeros((), dtype="V80"),
        ctypes.c_double * 10,
        lambda: mmap.mmap(-1, 80),
    ],
    ids=[
        "bytearray",
        "view",
        "array",
        "float64",
        "big-endian",
        "float32",
        "records",
        "no dimension",
        "ctypes",
        "mmap",
    ],
)
def test_taken_destinations(file: File, make: Callable[[], Any]) -> None:
    """R42: items of any size and kind are filled by bytes."""
    destination = make()
    assert file.read_into(destination, offset=11) == 80
    assert bytes(memoryview(destination).tobytes()) == CONTENT[11:91]


def test_a_pooled_buffer_is_a_destination(file: File) -> None:
    """R42: a Buffer of a BufferPool is filled, on every version of Python."""
    with BufferPool(buffer_size=80) as pool, pool.lease() as buffer:
        assert file.read_into(buffer, offset=11) == 80
        assert bytes(buffer.view) == CONTENT[11:91]


@pytest.mark.parametrize(
    "empty", [bytearray(), np.zeros((0, 7)), memoryview(bytearray(5))[5:]], ids=["none", "rows", "view"]
)
def test_empty_destinations(serve: Callable[..., RangeServer], session: Session, empty: Any) -> None:
    """R42: a destination of no bytes is filled at once, without a request."""
    server = serve()
    with session.open(server.url) as file:
        assert file.read_into(empty) == 0
        future = file.pread(empty, offset=5)
        assert future.done()
        assert future.result() == 0
        assert file.read(size=0) == b""
    assert not server.gets()


def test_a_destination_larger_than_the_size(file: File) -> None:
    """R42: only the first `size` bytes are written."""
    destination = bytearray(b"." * 100)
    assert file.read_into(destination, size=10) == 10
    assert destination == CONTENT[:10] + b"." * 90


def test_a_destination_is_let_go(file: File) -> None:
    """R42: when a read has ended, its destination can be resized; until then it can't."""
    destination = bytearray(100)
    view = host_view(destination)
    with pytest.raises(BufferError):
        destination.append(0)
    view.release()
    file.read_into(destination)
    destination.append(0)
    file.pread(destination).result()
    destination.append(0)
    with pytest.raises(ValueError, match="beyond the end"):
        file.pread(destination, offset=len(CONTENT) + 1)
    destination.append(0)


@pytest.mark.parametrize("offset", [-1, -(1 << 70)])
def test_negative_offsets_and_sizes(file: File, offset: int) -> None:
    """R08: a negative offset or size is ValueError in every call."""
    for call in (
        lambda: file.read(offset=offset),
        lambda: file.read(size=offset),
        lambda: file.read_into(bytearray(5), offset=offset),
        lambda: file.pread(bytearray(5), size=offset),
        lambda: file.read_many([(0, offset)]),
        lambda: file.read_many([(offset, 0)]),
    ):
        with pytest.raises(ValueError, match=f"{offset}"):
            call()


def test_options_for_gpu_memory(file: File) -> None:
    """R43: what is for GPU memory is refused with host memory, as it isn't supported yet."""
    for options in ({"stream": 0}, {"stream": object()}, {"complete": "ordered"}):
        with pytest.raises(ValueError, match="GPU memory"):
            file.read_into(bytearray(5), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="complete must be"):
        file.read_into(bytearray(5), complete="done")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress must be callable"):
        file.read_into(bytearray(5), progress=1)  # type: ignore[arg-type]
    for timeout in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            file.read_into(bytearray(5), timeout=timeout)
    with pytest.raises(TypeError, match="timeout"):
        file.read_into(bytearray(5), timeout="1")  # type: ignore[arg-type]
