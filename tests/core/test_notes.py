"""What becomes of the note of a lost lease when the one who would hear it has just been relieved of listening."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits, PoolObserver, ResourcePool
from tests.helpers.checkpoints import Interrupt, Visit, interrupt
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from tests.helpers.resources import Thing

pytestmark = [
    pytest.mark.usefixtures("no_backstop"),
    pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning"),
]


class Holding(PoolObserver):
    """Holds those who queue where they have their place in line already, and are about to fall asleep."""

    def __init__(self) -> None:
        self.gate = Gate()

    def queued(self, pool: ResourcePool[Any, Any], key: object) -> None:
        """Stand still."""
        self.gate.stop()


def lose_one(lost_at: int, further: int) -> Visit:
    """Serve the one who listens; on the way lose a lease at one place, and interrupt at another."""
    visit = Visit(lost_at)
    factory = Factory()
    observer = Holding()
    pool: ResourcePool[str, Thing] = ResourcePool(
        factory.create, factory.destroy, limits=PoolLimits(max_size=2), observer=observer
    )
    first, second = pool.lease("A"), [pool.lease("A")]

    def take() -> None:
        pool.lease("A").release()

    with visit, Threads() as threads:
        for number in (1, 2):
            threads.start(take)
            wait_until_queued(pool, number)
            observer.gate.wait_arrived(number)
        try:
            visit.run(first.release, second.clear, (further, interrupt))
        except Interrupt:
            first.release()  # it may have come before it began
        second.clear()
        observer.gate.open()
    assert pool.reap() == 0
    with visit, pool.lease_many(2, "A", timeout=0):
        pass
    assert_quiet(pool, keys="A", leased=0)
    pool.close()
    assert pool.stats().leaked in {1, 2}  # the other one, too, where the interrupt took it from its holder
    return visit


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_note_is_heard_whatever_comes_between() -> None:
    """G3, G5: a lease is lost while its note would ring a thread that is just being served, and an interrupt comes: it's found."""
    for lost_at in itertools.count():
        visit = lose_one(lost_at, 0)
        if not visit.reached:
            assert lost_at > 0
            break
        for further in itertools.count(1):
            if not lose_one(lost_at, further).reached:
                break
