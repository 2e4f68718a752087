"""Plans: what a read means, and how it's cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.io.plan import checked_bytes, clip, split

SIZES = st.integers(0, 1 << 70)


@given(st.integers(0, 1 << 62), st.integers(0, 2000), st.integers(1, 300), st.integers(0, 500))
def test_tasks_cover_the_range_exactly(offset: int, length: int, task_size: int, position: int) -> None:
    """R01: the tasks of a read are contiguous, none empty or too large, and cover it exactly, here and there."""
    tasks = list(split(offset, length, task_size, position))
    assert sum(task.length for task in tasks) == length
    assert all(1 <= task.length <= task_size for task in tasks)
    assert len(tasks) == -(-length // task_size)
    at = 0
    for task in tasks:
        assert (task.offset, task.position) == (offset + at, position + at)
        at += task.length


def test_a_plan_is_lazy() -> None:
    """R47: planning a read of 16 EiB costs no more than the tasks that are looked at."""
    first = list(itertools.islice(split(5, 1 << 64, 1), 3))
    assert first == [(5, 1, 0), (6, 1, 1), (7, 1, 2)]


@given(SIZES, st.none() | SIZES, st.none() | SIZES, st.none() | SIZES)
def test_clipping(offset: int, size: int | None, known: int | None, room: int | None) -> None:
    """R07, R08, R42: a read is as long as all bounds allow; beyond the end, or into too little room, is ValueError."""
    bad = (known is not None and offset > known) or (room is not None and size is not None and size > room)
    if bad:
        with pytest.raises(ValueError, match=r"beyond the end|the destination has"):
            clip(offset, size, known, room)
        return
    length = clip(offset, size, known, room)
    bounds = [size, room, None if known is None else known - offset]
    if length is None:
        assert bounds == [None] * 3
    else:
        assert length in bounds
        assert all(bound is None or length <= bound for bound in bounds)


@pytest.mark.parametrize("value", [-1, -(1 << 80)])
def test_negative_numbers(value: int) -> None:
    """R08: a negative offset or size is ValueError with the value in its text."""
    with pytest.raises(ValueError, match=f"offset must not be negative, but is {value}"):
        checked_bytes("offset", value)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", b"1", None, float("nan")])
def test_no_numbers(value: int) -> None:
    """R08: what is no integer, bools included, is TypeError with the value in its text."""
    with pytest.raises(TypeError, match="size must be an int, not"):
        checked_bytes("size", value)


def test_integers_of_other_libraries() -> None:
    """R08: NumPy's integers are integers."""
    numpy = pytest.importorskip("numpy")
    assert checked_bytes("size", numpy.int64(7)) == 7
