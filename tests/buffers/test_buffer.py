"""`Buffer` as its holder sees it, while leased and after it was freed."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.buffers import Buffer, BufferPool, HostAllocator, PageAlignedAllocator

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

SIZE = 10_000

needs_312 = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="needs Python 3.12: buffer protocol by __buffer__"
)


@pytest.fixture(
    params=[HostAllocator(), PageAlignedAllocator(), PageAlignedAllocator(huge_pages=True)], ids=repr
)
def pool(request: pytest.FixtureRequest) -> Iterator[BufferPool]:
    """A pool on each kind of memory."""
    with BufferPool(request.param, buffer_size=SIZE) as pool:
        yield pool


class TestView:
    """The memory as bytes."""

    def test_shape(self, pool: BufferPool) -> None:
        """A view is the bytes asked for: writable, format B, contiguous."""
        with pool.lease() as buffer:
            view = buffer.view
            assert (view.nbytes, view.format, view.ndim, view.readonly) == (SIZE, "B", 1, False)
            assert view.c_contiguous
            assert buffer.nbytes == SIZE
            assert buffer.capacity >= SIZE

    @PATIENT
    @given(data=st.data())
    def test_a_buffer_is_so_many_bytes(self, data: st.DataObject) -> None:
        """Any writes through any views, and through the address, are what a bytearray would hold after them."""
        size = data.draw(st.integers(1, 300))
        model = bytearray(size)
        with BufferPool(buffer_size=size) as pool, pool.lease() as buffer:
            buffer.view[:] = bytes(size)
            for _ in range(data.draw(st.integers(1, 8))):
                start = data.draw(st.integers(0, size))
                stop = data.draw(st.integers(start, size))
                text = data.draw(st.binary(min_size=stop - start, max_size=stop - start))
                model[start:stop] = text
                if data.draw(st.booleans()):
                    buffer.view[start:stop] = text
                else:
                    ctypes.memmove(buffer.address + start, text, len(text))
                assert buffer.view == model
                step = data.draw(st.sampled_from([1, 2, -1, 3]))
                assert buffer.view[start:stop:step] == model[start:stop:step]
            assert ctypes.string_at(buffer.address, size) == model

    def test_released_view_is_only_that(self, pool: BufferPool) -> None:
        """`with buffer.view as view:` ends that view, and takes nothing from the next holder."""
        with pool.lease() as buffer:
            with buffer.view as view:
                view[0] = 1
            assert buffer.view[0] == 1
        with pool.lease() as again:
            assert again is buffer
            again.view[0] = 2

    def test_release_keeps_the_memory(self, pool: BufferPool) -> None:
        """The next holder gets the same memory at the same address, uncleared."""
        with pool.lease() as buffer:
            address = buffer.address
            buffer.view[:3] = b"abc"
        with pool.lease() as again:
            assert again.address == address
            assert bytes(again.view[:3]) == b"abc"

    def test_read_only_attributes(self, pool: BufferPool) -> None:
        """A holder can't change what a buffer is."""
        with pool.lease() as buffer:
            for name in ("view", "address", "nbytes", "capacity"):
                with pytest.raises(AttributeError):
                    setattr(buffer, name, 1)


class TestProtocol:
    """The buffer protocol on 3.12 and later."""

    @needs_312
    def test_goes_where_bytearray_can(self, pool: BufferPool) -> None:
        """memoryview, bytes, struct, file.readinto and slices take a Buffer itself."""
        import struct

        with pool.lease() as buffer:
            as_any: Any = buffer
            view = memoryview(as_any)
            assert view.nbytes == SIZE
            view[:4] = b"wxyz"
            struct.pack_into("<I", as_any, 4, 0x01020304)
            assert bytes(as_any)[:8] == b"wxyz\x04\x03\x02\x01"
            view.release()
            with Path(__file__).open("rb", buffering=0) as file:
                count = file.readinto(as_any)
            assert count
            assert buffer.view[:count] == Path(__file__).read_bytes()[:count]

    @needs_312
    def test_view_of_the_protocol_keeps_the_memory(self) -> None:
        """A memoryview of a Buffer is as safe to hold after free as one of its views."""
        with BufferPool(buffer_size=SIZE) as pool:
            with pool.lease() as buffer:
                view = memoryview(buffer)  # type: ignore[arg-type]
                view[:2] = b"ok"
            assert pool.clear() == 1
            assert bytes(view[:2]) == b"ok"
            with pytest.raises(ValueError, match="freed"):
                memoryview(buffer)  # type: ignore[arg-type]

    def test_numpy_sees_the_view(self, pool: BufferPool) -> None:
        """Numpy makes an array of a view without a copy."""
        import numpy as np

        with pool.lease() as buffer:
            array = np.frombuffer(buffer.view, dtype=np.uint8)
            array[:] = 7
            assert set(bytes(buffer.view)) == {7}
            assert array.ctypes.data == buffer.address
            del array


class TestFreed:
    """After the pool has freed a buffer."""

    def test_stale_buffer_raises(self, pool: BufferPool) -> None:
        """Attributes that lead to memory are a ValueError; sizes and repr still tell."""
        with pool.lease() as buffer:
            assert repr(buffer) == f"<Buffer of {SIZE} bytes at {buffer.address:#x}>"
        pool.clear()
        with pytest.raises(ValueError, match="the buffer has been freed"):
            _ = buffer.view
        with pytest.raises(ValueError, match="the buffer has been freed"):
            _ = buffer.address
        assert (buffer.nbytes, repr(buffer)) == (SIZE, f"<Buffer of {SIZE} bytes, freed>")

    def test_views_still_held(self, pool: BufferPool) -> None:
        """A buffer freed while views of it are held leaves the budget; the views stay safe; no hook fails."""
        lease = pool.lease()
        view = lease.resource.view
        window = view[10:20]
        window[:] = b"0123456789"
        lease.discard()
        stats = pool.stats()
        assert (stats.size, stats.cost, stats.destroyed_for["discarded"]) == (0, 0, 1)
        assert not any(stats.hook_errors.values())
        assert bytes(window) == b"0123456789"
        window[0] = 0
        view.release()
        assert window[0] == 0

    def test_numpy_array_still_held(self, pool: BufferPool) -> None:
        """The same with an export that can't be released from Python."""
        import numpy as np

        with pool.lease() as buffer:
            array = np.frombuffer(buffer.view, dtype=np.uint8)
            array[:] = 9
        assert pool.clear() == 1
        assert pool.stats().cost == 0
        assert not any(pool.stats().hook_errors.values())
        assert int(array.sum()) == 9 * SIZE

    def test_nothing_refers_to_a_freed_buffer(self, pool: BufferPool) -> None:
        """A freed buffer dies with its holder's reference."""
        with pool.lease() as buffer:
            ref = weakref.ref(buffer)
        pool.clear()
        del buffer
        gc.collect()
        assert ref() is None

    def test_detached(self, pool: BufferPool) -> None:
        """A detached buffer is the caller's: usable after the pool is closed, gone with its reference."""
        buffer: Buffer = pool.lease().detach()
        assert pool.stats().cost == 0
        pool.close()
        buffer.view[:2] = b"ok"
        assert bytes(buffer.view[:2]) == b"ok"
