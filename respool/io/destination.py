"""Destinations of reads: writable memory as plain bytes.

This module owns the checks that a destination gets before any request is made, the view
through which it's filled, and memory that becomes a bytes object.  Only host memory is
taken so far.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from respool.buffers import Buffer

if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    from typing_extensions import Buffer as SupportsBuffer

    class _Array(Protocol):
        """numpy's arrays, which tell type checkers of their buffer from Python 3.12 on only."""

        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    #: What type checkers let pass as a destination; `host_view` checks what it really is.
    Destination: TypeAlias = SupportsBuffer | Buffer | _Array


def host_view(destination: Destination) -> memoryview:
    """Return a destination as a one-dimensional, writable memoryview of bytes.

    The destination can't be resized or freed while the view lives: whoever asked for the
    view releases it when nothing writes any more.

    Parameters
    ----------
    destination : buffer
        Anything writable with the buffer protocol and C-contiguous memory, of items of any
        size, or a pooled `respool.buffers.Buffer`.

    Returns
    -------
    memoryview
        Its ``nbytes`` is the room there is; it may be 0.

    Raises
    ------
    TypeError
        It's no buffer, read-only, or GPU memory.
    BufferError
        Its memory isn't C-contiguous.
    ValueError
        It has been released.
    """
    target: Any = destination
    if isinstance(target, Buffer):
        target = target.view
    if hasattr(target, "__cuda_array_interface__"):
        raise TypeError(f"a destination in GPU memory isn't supported yet: {type(target).__name__}")
    try:
        raw = memoryview(target)
    except TypeError:
        gpu = " (GPU memory isn't supported yet)" if hasattr(target, "__dlpack__") else ""
        raise TypeError(
            f"a destination must be a writable buffer, not {type(target).__name__}{gpu}"
        ) from None
    with raw:
        if raw.readonly:
            raise TypeError(f"the destination is read-only: {type(target).__name__}")
        if not raw.c_contiguous:
            raise BufferError(
                f"the destination isn't C-contiguous: {type(target).__name__}, strides {raw.strides}"
            )
    # Unlike memoryview.cast, this takes any item format, and shapes with zeros in them.
    return pickle.PickleBuffer(target).raw()


def new_bytes(length: int) -> io.BytesIO:
    """Return memory that becomes a bytes object without a copy: BytesIO gives its own away."""
    target = io.BytesIO()
    if length:
        target.seek(length - 1)
        target.write(b"\0")
    return target


def taken(target: io.BytesIO, count: int) -> bytes:
    """Return the first bytes of what `new_bytes` gave, once nothing has a view of it any more."""
    target.truncate(count)
    return target.getvalue()
