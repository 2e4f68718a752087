"""Every mixture of hooks that work, fail, are interrupted or stand still: no room is ever lost (G2, G3)."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

from respool import PoolTimeoutError, Quarantine
from tests.helpers.gates import Gate
from tests.helpers.invariants import assert_quiet
from tests.helpers.threads import Threads, wait_until_queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from respool import ResourcePool
    from tests.helpers.resources import Factory, MakePool, Thing

pytestmark = pytest.mark.usefixtures("no_backstop")

OUTCOMES: dict[str, list[type[BaseException] | None]] = {
    "create": [None, OSError, KeyboardInterrupt],
    "validate": [None, OSError, KeyboardInterrupt],
    "reset": [None, OSError, SystemExit],
    "destroy": [None, OSError, Quarantine, KeyboardInterrupt],
}
ENDS = ["release", "discard", "detach", "acquire and release", "acquire and discard"]


def mixtures() -> Iterator[dict[str, type[BaseException] | None]]:
    """Give one outcome for each hook, in all combinations."""
    for outcome in itertools.product(*OUTCOMES.values()):
        yield dict(zip(OUTCOMES, outcome, strict=True))


def use(pool: ResourcePool[str, Thing], key: str, end: str, timeout: float = 0) -> None:
    """Take one and end it so."""
    if end.startswith("acquire"):
        thing = pool.acquire(key, timeout)
        (pool.discard if end.endswith("discard") else pool.release)(thing)
    else:
        getattr(pool.lease(key, timeout), end)()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("max_idle", [None, 0])
def test_any_mixture_of_failures(
    make_pool: MakePool, factory: Factory, end: str, max_idle: int | None
) -> None:
    """G3: whatever each hook does, one after another or all at once, what is left adds up and still serves."""
    wrong: list[str] = []
    for mixture in mixtures():
        pool = make_pool(max_size=2, max_idle=max_idle, validate=factory.validate, reset=factory.reset)
        alive = factory.alive
        try:
            # Something idle to be validated, and something of another key to give way.
            for key in "AB":
                pool.lease(key, timeout=0).release()
            made = len(factory.made)
            for hook, kind in mixture.items():
                factory.errors[hook] = [] if kind is None else [kind(hook)]
            for key in "ABC":
                try:
                    use(pool, key, end)
                except BaseException as error:
                    if type(error) not in mixture.values() or isinstance(error, Quarantine):
                        raise
            factory.errors.clear()
            stats = assert_quiet(pool, keys="ABC", leased=0)
            assert stats.size == stats.idle + stats.quarantined
            assert stats.created == 2 + len(factory.made) - made
            assert factory.alive - alive == stats.idle + stats.detached
            if stats.quarantined < 2:
                use(pool, "D", "release")
            pool.close()
            assert_quiet(pool, leased=0, idle=0)
        except AssertionError as error:
            told = {hook: kind and kind.__name__ for hook, kind in mixture.items()}
            wrong.append(f"{told}: {str(error).splitlines()[0]}")
    assert wrong == []
    assert factory.misuse == []


@pytest.mark.parametrize("hook", list(OUTCOMES))
@pytest.mark.parametrize("outcome", ["succeeds", "fails", "is interrupted"])
def test_a_hook_that_stands_still(make_pool: MakePool, factory: Factory, hook: str, outcome: str) -> None:
    """G3: while a hook hangs others time out in order; when it ends, however, the next one is served."""
    gate = Gate()
    pool = make_pool(max_size=1, validate=factory.validate, reset=factory.reset)
    if hook != "create":
        pool.lease("A").release()
    factory.before[hook] = lambda *args: gate.stop()
    if outcome != "succeeds":
        factory.errors[hook] = [OSError("late") if outcome == "fails" else KeyboardInterrupt("late")]

    def hang() -> None:
        with contextlib.suppress(OSError if hook == "create" else (), KeyboardInterrupt):
            use(pool, "A", "discard" if hook == "destroy" else "release", 60)

    with Threads() as threads:
        threads.start(hang)
        gate.wait_arrived()
        with pytest.raises(PoolTimeoutError):
            pool.lease("A", timeout=0)
        with pytest.raises(PoolTimeoutError):
            pool.lease("B", timeout=0.001)
        assert pool.try_lease("A") is None
        assert pool.stats().size == 1
        waiting = threads.start(pool.lease, "A", 60)
        wait_until_queued(pool, 1)
        gate.open()
        waiting.result().release()
    stats = assert_quiet(pool, keys="A", leased=0, idle=1)
    assert stats.timeouts == 2
    assert factory.most_alive == 1
