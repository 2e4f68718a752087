"""Forks in the very moment in which a `when` is asked (G8, G10)."""

from __future__ import annotations

import contextlib
import os
import traceback
from typing import TYPE_CHECKING

import pytest

from respool import PoolTimeoutError
from tests.helpers.whens import WAYS, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.helpers.resources import Factory, MakePool

pytestmark = pytest.mark.usefixtures("no_backstop")


def fork_here(seen: list[int]) -> None:
    """Fork in the middle of a call: the child goes on in it; the parent waits for its end and notes its status."""
    child = os.fork()
    if child:
        seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@contextlib.contextmanager
def child_ends(parent: int) -> Iterator[None]:
    """See that a child of this process that comes to the block's end, or to an error in it, ends there and tells by its status."""
    try:
        yield
    except BaseException:
        if os.getpid() == parent:
            raise
        traceback.print_exc()
        os._exit(1)
    if os.getpid() != parent:
        os._exit(0)


@pytest.mark.parametrize("call", ["try_lease", "lease", "lease_many", "reap", "release"])
def test_fork_inside_a_when(make_pool: MakePool, factory: Factory, call: str) -> None:
    """P74, G10: in a child forked by a `when`, no other inherited `when` is asked, and the pool is as good as new."""
    pool = make_pool(max_size=4)
    whens = [When() for _ in range(3)]
    last = pool.lease("A")
    parent, statuses = os.getpid(), list[int]()
    hand_in(pool, *whens)
    asked: list[int] = []

    def fork() -> None:
        if not statuses and os.getpid() == parent:
            asked[:] = [when.asked for when in whens]
            fork_here(statuses)

    calls: dict[str, Callable[[], object]] = {
        "try_lease": lambda: pool.try_lease("A"),
        "lease": lambda: pool.lease("A", timeout=0.05),
        "lease_many": lambda: pool.lease_many(3, "A", timeout=0.05),
        "reap": pool.reap,
        "release": lambda: last.release(lambda: fork()),  # noqa: PLW0108 - None isn't free
    }
    for when in whens:
        when.before = fork
    got = None
    with child_ends(parent):
        with contextlib.suppress(PoolTimeoutError):
            got = calls[call]()
        if os.getpid() != parent:
            if hasattr(got, "release"):
                got.release()
            assert [when.asked for when in whens] == asked
            leases = [pool.lease("A", timeout=0) for _ in range(4)]
            assert {lease.resource.number for lease in leases}.isdisjoint(range(1, 5))
            assert factory.destroyed == []
    assert statuses == [0]
    last.release()
    for when in whens:
        when.free = True
        assert when.misuse == []


@pytest.mark.parametrize("answer", [True, False, None])
@pytest.mark.parametrize("way", WAYS)
def test_fork_inside_the_first_ask(
    make_pool: MakePool, factory: Factory, way: str, *, answer: bool | None
) -> None:
    """P73, P74, G8, G10: a release whose own `when` forks gives nothing back in the child, whatever the answer there is (None: it raises)."""
    pool = make_pool(max_size=2)
    held = hold(pool, way)
    parent, statuses = os.getpid(), list[int]()

    def when() -> bool:
        if not statuses and os.getpid() == parent:
            fork_here(statuses)
        if os.getpid() == parent:
            return False
        if answer is None:
            raise OSError("not in a child")
        return answer

    with child_ends(parent):
        with contextlib.suppress(OSError):
            held.release(when)
        if os.getpid() != parent:
            stats = pool.stats()
            assert (stats.size, stats.idle, stats.leased, stats.pending) == (0, 0, 0, 0)
            assert pool.reap() == 0
            leases = [pool.lease("A", timeout=0) for _ in range(2)]
            assert {lease.resource for lease in leases}.isdisjoint(held.things)
            stats = pool.stats()
            assert (stats.size, stats.idle, stats.leased, stats.pending) == (2, 0, 2, 0)
            assert factory.destroyed == []
    assert statuses == [0]
    assert pool.stats().pending == len(held.things)
    pool.reap()
