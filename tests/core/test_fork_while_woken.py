"""A fork by another thread while one who waited has been woken, and isn't out of line yet (P73, P74, G10)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from respool import PoolLimits, ResourcePool
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import HANG_GUARD, Threads

from .test_fork import assert_fresh, assert_works

if TYPE_CHECKING:
    from types import FrameType

    from tests.helpers.resources import Factory

pytestmark = pytest.mark.usefixtures("no_backstop")


def test_fork_while_the_main_thread_is_woken_but_still_in_line(factory: Factory) -> None:
    """P73, P74, G10: a ticket that can't be woken any more doesn't keep this pool, or the others, from starting empty in the child."""
    with (
        ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=2)) as pool,
        ResourcePool(factory.create, factory.destroy, limits=PoolLimits(max_size=2)) as other,
        Threads() as threads,
    ):
        other.lease("A").release()
        gate = Gate()

        def stop_there(frame: FrameType, event: str, arg: object) -> None:
            if event == "call" and frame.f_code.co_name == "_take_out":
                sys.setprofile(None)
                gate.stop()

        def fork() -> None:
            gate.wait_arrived()
            try:
                in_child(
                    lambda: [(assert_fresh(one, "A"), assert_works(one, 2, "A")) for one in (pool, other)]
                )
            finally:
                gate.open()

        worker = threads.start(fork)
        sys.setprofile(stop_there)  # in the main thread, which is woken in another way than others
        try:
            pool.lease("A", timeout=HANG_GUARD).release()
        finally:
            sys.setprofile(None)
        worker.result()
        assert_quiet(pool, leased=0, idle=1)
