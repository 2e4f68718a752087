"""How a read is cut into tasks: pure arithmetic on offsets.

This module owns which bytes a read means and where its tasks begin and end.  It knows
neither servers nor buffers.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Task(NamedTuple):
    """One contiguous piece of a read, fetched by one request.

    Attributes
    ----------
    offset : int
        Where in the object it begins, in bytes.
    length : int
        How many bytes, ≥ 1.
    position : int
        Where in the destination its first byte goes.
    """

    offset: int
    length: int
    position: int


def checked_int(what: str, value: object) -> int:
    """Return what's an int, or can stand for one; raises TypeError for all else, and for a bool."""
    if isinstance(value, bool):
        raise TypeError(f"{what} must be an int, not {value!r}")
    try:
        return operator.index(value)  # type: ignore[arg-type]  # what has no index raises
    except TypeError:
        raise TypeError(f"{what} must be an int, not {value!r}") from None


def checked_bytes(what: str, value: int) -> int:
    """Return an offset or size as an int ≥ 0.

    Raises
    ------
    TypeError
        It's no integer, or a bool.
    ValueError
        It's negative.
    """
    number = checked_int(what, value)
    if number < 0:
        raise ValueError(f"{what} must not be negative, but is {number}")
    return number


def counted(count: int) -> str:
    """Return a number of bytes in words."""
    return "1 byte" if count == 1 else f"{count} bytes"


def checked_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return offset and size of each range, each as `checked_bytes` gives it.

    Raises
    ------
    TypeError
        It's no iterable, or something in it is no pair of integers.
    ValueError
        One of the numbers is negative.
    """
    try:
        given = iter(ranges)
    except TypeError:
        raise TypeError(
            f"ranges must be an iterable of (offset, size), not {type(ranges).__name__}"
        ) from None
    found: list[tuple[int, int]] = []
    for pair in given:
        try:
            offset, size = pair
        except (TypeError, ValueError):
            raise TypeError(f"ranges must be pairs of offset and size, not {pair!r}") from None
        found.append((checked_bytes("offset", offset), checked_bytes("size", size)))
    return found


def clip(offset: int, size: int | None, known: int | None, room: int | None = None) -> int | None:
    """Return how many bytes a read means.

    Parameters
    ----------
    offset : int
        Where it begins, ≥ 0.
    size : int, optional
        How many bytes were asked for, ≥ 0; None asks for all that there is, or that fits.
    known : int, optional
        The object's size where it's known.
    room : int, optional
        Bytes that the destination has room for; None for no bound.

    Returns
    -------
    int or None
        The number of bytes, with ranges past the end clipped; None where it can't be told
        (size and object's size unknown, no destination).

    Raises
    ------
    ValueError
        The offset is beyond the known end, or the destination is smaller than `size`.
    """
    if room is not None and size is not None and size > room:
        raise ValueError(f"the destination has {counted(room)}, but size={size} were asked for")
    bounds = [bound for bound in (size, room) if bound is not None]
    if known is not None:
        if offset > known:
            raise ValueError(f"offset {offset} is beyond the end: the object has {counted(known)}")
        bounds.append(known - offset)
    return min(bounds) if bounds else None


def split(offset: int, length: int, task_size: int, position: int = 0) -> Iterator[Task]:
    """Cut ``length`` bytes at ``offset`` into tasks, lazily and in order.

    Parameters
    ----------
    offset : int
        Where the read begins, ≥ 0.
    length : int
        How many bytes, ≥ 0; 0 gives no task.
    task_size : int
        Most bytes in one task, ≥ 1.
    position : int
        Where in the destination the first of them goes, ≥ 0.

    Yields
    ------
    Task
        Contiguous tasks that cover the range exactly.
    """
    done = 0
    while done < length:
        step = min(task_size, length - done)
        yield Task(offset + done, step, position + done)
        done += step
