"""What may happen while a hook runs, for every hook and whatever becomes of it: a timeout, close(), a fork (G2, G3, G9, G10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from respool import PoolClosedError, PoolTimeoutError
from tests.helpers.forks import in_child
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

HOOKS = ["create", "validate", "reset", "destroy", "when"]
OUTCOMES: dict[str, BaseException | None] = {
    "succeeds": None,
    "fails": OSError("late"),
    "is interrupted": KeyboardInterrupt("late"),
}


class Use:
    """One use of the only resource, in which the hook in question stands at a gate and then does what it's to do."""

    def __init__(self, pool: ResourcePool[str, Thing], factory: Factory, hook: str, outcome: str) -> None:
        self.pool = pool
        self.factory = factory
        self.hook = hook
        self.error = OUTCOMES[outcome]
        self.gate = Gate()
        self.raised: BaseException | None = None

    def __call__(self) -> None:
        """Come to the hook and through it; what comes out is kept, and what is still held then given back."""
        if self.hook != "create":
            self.pool.lease("A").release()
        if self.hook != "when":
            self.factory.before[self.hook] = self.stand
        try:
            lease = self.pool.lease("A", timeout=60)
        except (
            OSError,
            KeyboardInterrupt,
            PoolClosedError,
        ) as error:  # create's, or an interrupted validate's
            self.raised = error
            return
        try:
            if self.hook == "destroy":
                lease.discard()
            else:
                lease.release(self.when if self.hook == "when" else None)
        except (OSError, KeyboardInterrupt) as error:
            self.raised = error
        lease.release()  # does nothing, but after a `when` that has raised

    def stand(self, *_: object) -> None:
        """Be the hook's start, once."""
        del self.factory.before[self.hook]
        self.gate.stop()
        if self.error is not None:
            raise self.error

    def when(self) -> bool:
        """Tell that it's free, unless it's to go wrong."""
        self.gate.stop()
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize("outcome", list(OUTCOMES))
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("event", ["a timeout", "a close", "a fork"])
def test_what_happens_while_a_hook_runs(
    make_pool: MakePool, factory: Factory, hook: str, outcome: str, event: str
) -> None:
    """G2, G3, G9, G10: beside a hook that stands still, others time out, close the pool or fork; however the hook ends, all adds up."""
    pool = make_pool(max_size=1, validate=factory.validate, reset=factory.reset)
    use = Use(pool, factory, hook, outcome)

    def child() -> tuple[int, int, int]:
        factory.renew()
        found = pool.stats().size
        with pool.lease("A", timeout=10) as one:
            inside = pool.stats().size
        return found, inside, one.number

    with Threads() as threads:
        using = threads.start(use)
        use.gate.wait_arrived()
        assert pool.stats().size == 1
        if event == "a timeout":
            for key in "AB":
                with pytest.raises(PoolTimeoutError):
                    pool.lease(key, timeout=0.001)
            waiting = threads.start(pool.lease, "A", 60)
            wait_until_queued(pool, 1)
            use.gate.open()
            waiting.result().release()
        elif event == "a close":
            waiting = threads.start(pool.lease, "B", 60)
            wait_until_queued(pool, 1)
            with pytest.raises(PoolTimeoutError):
                pool.close(0.001)
            with pytest.raises(PoolClosedError):
                waiting.result()
            use.gate.open()
        else:
            found, inside, number = in_child(child)
            assert (found, inside) == (0, 1)
            assert number == len(factory.made) + 1
            use.gate.open()
        using.result()
    assert isinstance(use.raised, (OSError, KeyboardInterrupt, PoolClosedError, type(None)))
    if outcome == "is interrupted":
        assert use.raised is use.error
    assert factory.most_alive == 1
    assert factory.misuse == []
    if event == "a close":
        pool.close(30)
        stats = assert_quiet(pool, leased=0, idle=0)
        assert stats.size == 0
    else:
        pool.lease("A", timeout=30).release()
        stats = assert_quiet(pool, keys="A", leased=0, idle=1)
        assert stats.timeouts == (2 if event == "a timeout" else 0)
    assert factory.alive == stats.size
