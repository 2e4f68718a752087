"""A real pool against a naive model, over random calls of one thread: all numbers, who gets what, and what goes for it.

Time is the test's, hooks fail when a thing says so, and one thread never waits: `max_waiters` is 0, so that a call which would is
refused. RESPOOL_MODEL_EXAMPLES asks for longer runs than CI's: the number of random histories, of 50 calls each.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from respool import PoolClosedError, PoolError, PoolExhaustedError, PoolTimeoutError
from tests.core.pool_things import PENDING, STUCK, Limits, Thing, When
from tests.core.pool_twin import KEYS, HookError, PoolTwin

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = int(os.environ.get("RESPOOL_MODEL_EXAMPLES", "200"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if "RESPOOL_MODEL_NO_SHRINK" not in os.environ:
    PHASES.append(Phase.shrink)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + EXAMPLES)]

MOST_PENDING = 3
"""An acquire asks four of those pending: with no more than this it asks all, in whatever order."""

picks = st.integers(0, 11)
keys = st.sampled_from("aaaabbbccd")  # the first ones are used more often


def mostly(usual: object, *others: object) -> st.SearchStrategy[Any]:
    """Give the usual thing more often than all others together."""
    return st.sampled_from([usual] * (len(others) + 1) + list(others))


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    """Give a limit that is there more often than not."""
    return st.integers(low, high) | st.integers(high - 2, high) | st.none()


LIMITS = st.builds(
    Limits,
    max_size=optional(1, 8),
    max_cost=mostly(None, *range(2, 20)),
    max_idle=mostly(None, 0, 1, 2, 3),
    caps=st.fixed_dictionaries({key: optional(1, 5) for key in KEYS}),
    idle_timeout=mostly(None, 5.0, 20.0),
    max_lifetime=mostly(None, 10.0, 30.0, 30.0),
    jitter=st.sampled_from([0.0, 0.1, 1.0]),
)


class PoolMachine(PoolTwin, RuleBasedStateMachine):
    """G2, G3, G6, G8: all that one thread can do with a pool."""

    @initialize(
        limits=LIMITS,
        costs=st.fixed_dictionaries({key: st.integers(0, 4) for key in KEYS}),
        resets=st.booleans(),
        validates=st.booleans(),
    )
    def make(self, limits: Limits, costs: dict[str, int], *, resets: bool, validates: bool) -> None:
        """Make a pool."""
        self.begin(limits, costs, resets=resets, validates=validates)

    # -- acquiring -------------------------------------------------------------------------------------

    @rule(
        wanted=st.lists(keys, min_size=1, max_size=4),
        way=st.sampled_from(["lease", "lease 5", "lease 0", "try", "acquire", "acquire 0", "try acquire"]),
        bound=st.booleans(),
    )
    def acquire(self, wanted: list[str], way: str, *, bound: bool) -> None:
        """Want one, and perhaps more, one after the other."""
        for key in wanted:
            self._acquire(key, way, bound=bound)

    def _acquire(self, key: str, way: str, *, bound: bool) -> None:
        self._settle_answers()
        kind, _, timeout = way.partition(" ")
        options: dict[str, Any] = {"timeout": float(timeout)} if timeout in {"0", "5"} else {}
        name = {"try": "try_lease", "try acquire": "try_acquire"}.get(way, kind)
        face: Any = self.pool
        arguments: tuple[str, ...] = (key,)
        if bound and self.model.of(key):
            face, arguments = self.pool.bind(key), ()
        expected = self.model.acquire(key, 1, batch=False)
        self.call(
            key, expected, lambda: getattr(face, name)(*arguments, **options), patient=timeout in {"", "5"}
        )

    @precondition(lambda self: not self.model.closed)
    @rule(wanted=st.lists(keys, min_size=2, max_size=5), seconds=mostly(0, 1.0, 4.0, 9.5), bad=st.booleans())
    def use(self, wanted: list[str], seconds: float, *, bad: bool) -> None:
        """Have some for a while, give them back in order, and perhaps find the last one bad the next time."""
        for key in wanted:
            self._acquire(key, "lease", bound=False)
        self.wait(seconds)
        while self.holds and len(self.holds) > len(wanted) // 2:
            self.take_back(self.holds.pop(0))
        if self.model.idle and bad:
            self.model.idle[-1].valid = "no" if seconds else "error"
        self.wait(seconds)
        self._acquire(wanted[0], "try", bound=True)

    @rule(key=keys, number=st.integers(1, 4), timeout=st.sampled_from([None, 0, 5.0]))
    def acquire_many(self, key: str, number: int, timeout: float | None) -> None:
        """Want several at once."""
        self._settle_answers()
        expected = self.model.acquire(key, number, batch=True)
        self.call(key, expected, lambda: self.pool.lease_many(number, key, timeout), patient=timeout != 0)

    def _settle_answers(self) -> None:
        """Where several would say yes when asked, have them asked first: in what order they come back is the pool's choice."""
        if self.saying_yes() > 1:
            self.reap()

    # -- giving back -----------------------------------------------------------------------------------

    @precondition(lambda self: self.holds)
    @rule(picked=st.lists(picks, min_size=1, max_size=4))
    def give_back(self, picked: list[int]) -> None:
        """Give back what is held."""
        for pick in picked:
            if self.holds:
                self.take_back(self.holds.pop(pick % len(self.holds)))

    @precondition(lambda self: self.holds)
    @rule(pick=picks, answer=mostly("no", "yes", "error"))
    def give_back_when(self, pick: int, answer: str) -> None:
        """Give back what may not be free yet."""
        hold = self.holds[pick % len(self.holds)]
        if answer == "no" and len(self.model.of(None, PENDING)) + len(hold.things) > MOST_PENDING:
            return
        when = When(answer)
        release: Callable[..., None] = self.pool.release if hold.by is None else type(hold.by).release
        subject = hold.by or hold.things[0]
        if self.model.give_back_when(self.in_order(hold), when):
            self.holds.remove(hold)
            release(subject, when)
            self.is_spent(hold)
        else:
            with pytest.raises(LookupError):
                release(subject, when)
        self.model.end_of_call()

    @precondition(lambda self: self.holds)
    @rule(pick=picks, way=st.sampled_from(["discard", "detach", "leak"]))
    def end_a_use(self, pick: int, way: str) -> None:
        """End a use in another way."""
        if way == "leak" and self.holds[pick % len(self.holds)].by is not None:
            self.leak(pick % len(self.holds))
            return
        hold = self.holds.pop(pick % len(self.holds))
        if way == "detach" and hasattr(hold.by, "detach"):
            (thing,) = hold.things
            self.model.leave(thing, "detached")
            assert hold.by.detach() is thing
        else:
            for thing in hold.things:
                self.model.destroy(thing, "discarded")
            (self.pool.discard if hold.by is None else type(hold.by).discard)(hold.by or hold.things[0])
        self.is_spent(hold)
        self.model.end_of_call()

    # -- what goes wrong, and when ---------------------------------------------------------------------

    @precondition(lambda self: self.model.things)
    @rule(
        pick=picks,
        how=st.sampled_from([("valid", "no"), ("valid", "error"), ("reset", "error"), ("destroy", "error")])
        | st.just(("destroy", "quarantine")),
    )
    def spoil(self, pick: int, how: tuple[str, str]) -> None:
        """One is not as it should be, which will show."""
        setattr(self.model.things[pick % len(self.model.things)], *how)

    @precondition(lambda self: not self.plan)
    @rule(good=st.integers(0, 2), how=st.sampled_from(["error", "none", "held"]))
    def spoil_create(self, good: int, how: str) -> None:
        """The create after the next few fails."""
        self.plan = ["good"] * good + [how]
        self.model.creates = self.plan.copy()

    @precondition(lambda self: self.model.of(None, PENDING, STUCK))
    @rule(pick=picks, answer=st.sampled_from(["yes", "yes", "error", "error", "no"]), at_once=st.booleans())
    def answer(self, pick: int, answer: str, *, at_once: bool) -> None:
        """What was given back comes free, or nobody can tell any more, which is found out at once or later."""
        pending = self.model.of(None, PENDING, STUCK)
        when = pending[pick % len(pending)].when
        assert when is not None
        before, when.answer = when.answer, answer
        some_would_go = self.model.limits.max_idle is not None or self.model.is_beyond_any()
        if self.saying_yes() > 1 and some_would_go:
            when.answer = before  # which of them is the pool's choice
        if at_once:
            self.reap()

    @rule(seconds=st.sampled_from([1.0, 4.0, 5.0, 9.5]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.model.now = self.clock.now

    @precondition(lambda self: not self.model.closed and len(self.model.things) > 1)
    @rule(key=keys, way=st.sampled_from(["try_lease", "adopt", "lease_many", "prefill", "cap", "resize"]))
    def break_a_hook(self, key: str, way: str) -> None:
        """Nobody can tell what one costs, or how many there may be of a key, when it's needed."""
        if way in {"cap", "resize"}:
            self._break_caps(key, resize=way == "resize")
        elif not any(one.key == key for one in self.model.idle):
            self._break_cost(key, way)

    def _break_cost(self, key: str, way: str) -> None:
        self.broken = "cost"
        with pytest.raises(HookError):
            getattr(self.pool, way)(*{"try_lease": (), "adopt": (object(),)}.get(way, (1,)), key)
        self.broken = ""
        self.model.count(key, "errors of cost")
        self.model.end_of_call()

    def _break_caps(self, key: str, *, resize: bool) -> None:
        if bool(self.model.things if resize else self.model.of(key)) != resize:
            return
        self.broken = "cap"
        limits = self.in_force(Limits(max_size=1, caps=dict.fromkeys(KEYS)))
        with pytest.raises(HookError):
            self.pool.resize(limits) if resize else self.pool.try_acquire(key)
        self.broken = ""
        self.model.count(None, "errors of max_per_key")
        self.model.end_of_call()

    # -- the stock -------------------------------------------------------------------------------------

    @rule(key=keys)
    def adopt(self, key: str) -> None:
        """Take in one that was made elsewhere."""
        thing = self.thing(key)
        if self.model.closed or not self.model.may_grow(key):
            with pytest.raises(PoolClosedError if self.model.closed else PoolExhaustedError):
                self.pool.adopt(thing, key)
            return
        self.alive.append(thing)
        self.model.things.append(thing)
        self.model.count(key, "adopted")
        self.model.lie_down(thing)
        self.pool.adopt(thing, key)
        for again in (thing, None):
            with pytest.raises(PoolError):
                self.pool.adopt(again, key)
        self.model.end_of_call()

    @rule(key=keys, number=st.integers(1, 3))
    def prefill(self, key: str, number: int) -> None:
        """Create some ahead of time."""
        if self.model.closed:
            with pytest.raises(PoolClosedError):
                self.pool.prefill(number, key)
            return
        expected: list[Thing] = []  # stand-ins for what is created
        failed = False
        while len(expected) < number and self.model.may_grow(key) and not failed:
            failed = not self.model.create(key, 1)
            if not failed:
                expected.append(Thing(key, self.costs[key]))
                self.model.things.append(expected[-1])
                self.model.lie_down(expected[-1])
        before = len(self.made)
        try:
            assert self.pool.prefill(number, key) == len(expected)
            assert not failed
        except (HookError, PoolError):
            assert failed
        made = self.made[before:]
        assert len(made) == len(expected)
        for real, thing in zip(made, expected, strict=True):
            real.state = thing.state
            for kind in (self.model.things, self.model.idle):
                kind[kind.index(thing)] = real
        self.model.end_of_call()

    @rule(key=keys | st.none())
    def clear(self, key: str | None) -> None:
        """Have all that there is of a key, or of all, destroyed."""
        count = self.model.clear(key)
        assert (self.pool.clear() if key is None else self.pool.clear(key)) == count
        self.model.end_of_call()

    @precondition(lambda self: len(self.model.things) > 3)
    @rule(key=keys)
    def forget(self, key: str) -> None:
        """Have all that there is of a key left behind."""
        count = self.model.forget(key)
        assert self.pool.forget(key) == count
        self.model.end_of_call()

    @rule()
    def reap(self) -> None:
        """Have all asked, and destroyed what is overdue."""
        several = self.saying_yes() > 1
        count = self.model.reap()
        assert self.pool.reap() == count
        if several:
            self.order_as_the_pool()
        self.model.end_of_call()

    @rule(limits=LIMITS, key=keys)
    def resize(self, limits: Limits, key: str) -> None:
        """Put other limits in force, and take one in, if they allow it."""
        if self.model.closed:
            with pytest.raises(PoolClosedError):
                self.pool.resize(self.in_force(limits))
            return
        self._settle_answers()
        self.model.resize(limits)
        self.pool.resize(self.in_force(limits))
        self.model.end_of_call()
        self.adopt(key)

    @precondition(lambda self: len(self.model.things) > 5)
    @rule(pick=picks)
    def close_at_last(self, pick: int) -> None:
        """Close it, for good."""
        if pick < 4:
            self.close()

    def close(self) -> None:
        """Close it, or try again."""
        empty = self.model.close()
        try:
            self.pool.close(timeout=0)
            assert empty
        except PoolTimeoutError:
            assert not empty
        assert self.pool.closed
        self.model.end_of_call()

    # -- what must be so after each call ---------------------------------------------------------------

    @invariant()
    def all_agrees(self) -> None:
        """Compare."""
        if hasattr(self, "tested"):
            self.compare()

    def teardown(self) -> None:
        """Give everything back, and find that nothing was lost."""
        if not hasattr(self, "tested"):
            return
        try:
            if self.sound:
                self._end()
        finally:
            self.patch.undo()
            with self.tested:
                pass  # leaving the block closes the pool without waiting

    def _end(self) -> None:
        for thing in self.model.things:
            thing.destroy = thing.reset = "good"
            if thing.when is not None:
                thing.when.answer = "yes"
        while self.holds:
            self.give_back([0])
            self.compare()
        self.close()
        self.reap()
        self.compare()
        for key in KEYS:
            self.forget(key)
        self.compare()
        assert self.pool.stats().size == 0
        left = self.model.total["detached"] + self.model.total["abandoned"]
        assert len(self.alive) == left


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow],
)
