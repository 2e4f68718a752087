"""The accounting against a naive model, through random events, with and without interrupts in the middle of them.

RESPOOL_MODEL_EXAMPLES asks for longer runs than CI's: the number of random histories, of 50 events each.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.core.accounting_events import Pool

EXAMPLES = int(os.environ.get("RESPOOL_MODEL_EXAMPLES", "200"))
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
if (
    "RESPOOL_MODEL_NO_SHRINK" not in os.environ
):  # as scripts/mutants does, which only asks whether anything fails
    PHASES.append(Phase.shrink)  # but no Phase.explain: it wants the trace function for itself

# Shared machines run at a fraction of their speed, and shrinking takes its time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + EXAMPLES)]

picks = st.integers(0, 7)
rarely = st.sampled_from([False, False, False, True])
usually = st.sampled_from([True, True, True, False])


def mostly(usual: object, *others: object) -> st.SearchStrategy[Any]:
    """Give the usual thing more often than all others together."""
    return st.sampled_from([usual] * (len(others) + 1) + list(others))


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    """Give a limit that is there more often than not, and mostly small."""
    return st.integers(low, high) | st.integers(low, low + 2) | st.none()


class AccountingMachine(RuleBasedStateMachine):
    """G2, G3, G4, G8: all that can happen to the books of one pool, in any order."""

    @initialize(
        max_size=optional(1, 6),
        max_cost=mostly(None, *range(1, 13)),
        max_idle=mostly(None, 0, 1, 2),
        caps=st.lists(optional(1, 3), min_size=5, max_size=5),
        costs=st.lists(st.integers(0, 5), min_size=5, max_size=5),
        number=st.integers(1, 5),
        prompt=st.sampled_from(["", "create", "create destroy"]),
    )
    def make(
        self,
        *,
        max_size: int | None,
        max_cost: int | None,
        max_idle: int | None,
        caps: list[int | None],
        costs: list[int],
        number: int,
        prompt: str,
    ) -> None:
        """Make a pool of one to five keys, where hooks take their time or are `prompt`."""
        self.keys = "abcde"[:number]
        self.prompt = prompt
        self.pool = Pool(max_size, max_cost, max_idle, dict(zip("abcde", caps, strict=True)))
        self.costs = dict(zip("abcde", costs, strict=True))

    def _key(self, pick: int) -> str:
        return self.keys[pick % len(self.keys)]

    def _go_on(self) -> None:
        """Let prompt hooks end, and their callers go on."""
        while "destroy" in self.prompt and self.pool.dying:
            self.pool.destroyed(self.pool.dying[0])
        while "create" in self.prompt and self.pool.creating:
            self.pool.create_ends(self.pool.creating[0], good=True)
        while "create" in self.prompt and self.pool.offered:
            self.pool.take_offer(self.pool.offered[0], valid=True)
        while "create" in self.prompt and self.pool.batches:
            self.pool.finish_batch(self.pool.batches[0])

    # -- acquires --------------------------------------------------------------------------------------

    @rule(
        picked=st.lists(picks, min_size=1, max_size=4),
        more=mostly(0, 1),
        wait=usually,
        slow=rarely,
        evicts=st.booleans(),
    )
    def acquire(self, picked: list[int], more: int, *, wait: bool, slow: bool, evicts: bool) -> None:
        """Ask for some resources; now and then for one that costs more than others of its key."""
        for pick in picked:
            key = self._key(pick)
            self.pool.acquire(key, self.costs[key] + more, wait=wait, slow=slow, evicts=evicts)
            self._go_on()

    @rule(pick=picks, count=mostly(2, 1, 3, 4), wait=usually, slow=rarely, evicts=st.booleans())
    def acquire_many(self, pick: int, count: int, *, wait: bool, slow: bool, evicts: bool) -> None:
        """Ask for several at once."""
        key = self._key(pick)
        self.pool.acquire(key, self.costs[key], count, wait=wait, slow=slow, evicts=evicts)
        self._go_on()

    @precondition(lambda self: self.pool.settled and self.pool.waiting)
    @rule(pick=picks, later=rarely)
    def time_out(self, pick: int, *, later: bool) -> None:
        """Leave the line."""
        waiting = self.pool.waiting
        self.pool.time_out(waiting[pick % len(waiting)], later=later)

    @precondition(lambda self: self.pool.creating)
    @rule(picked=st.lists(picks, min_size=1, max_size=4), good=usually, later=rarely)
    def create_ends(self, picked: list[int], *, good: bool, later: bool) -> None:
        """End some creations; the last one badly, perhaps."""
        for number, pick in enumerate(picked, 1):
            creating = self.pool.creating
            if creating:
                end_well = good or number < len(picked)
                self.pool.create_ends(creating[pick % len(creating)], good=end_well, later=later)

    @precondition(lambda self: self.pool.offered)
    @rule(pick=picks)
    def take_offer(self, pick: int) -> None:
        """Take what was offered."""
        offered = self.pool.offered
        self.pool.take_offer(offered[pick % len(offered)], valid=True)

    @precondition(lambda self: self.pool.offered)
    @rule(pick=picks, destroyed_first=st.booleans())
    def refuse_offer(self, pick: int, *, destroyed_first: bool) -> None:
        """Find what was offered invalid, and line up again."""
        offered = self.pool.offered
        self.pool.take_offer(offered[pick % len(offered)], valid=False, destroyed_first=destroyed_first)

    @precondition(lambda self: self.pool.batches)
    @rule(pick=picks, end=mostly("all", "invalid", 0, 1), destroyed_first=st.booleans(), later=rarely)
    def go_on_with_a_batch(self, pick: int, end: Any, *, destroyed_first: bool, later: bool) -> None:
        """Have several at once; or find one of them invalid, or fail to create one, and have none."""
        claim = self.pool.batches[pick % len(self.pool.batches)]
        if end != "invalid":
            self.pool.finish_batch(claim, made=None if end == "all" else end, later=later)
        elif claim.granted():
            self.pool.refuse_batch(claim, pick, destroyed_first=destroyed_first)

    @precondition(lambda self: self.pool.offered or len(self.pool.creating) > 1 or len(self.pool.batches) > 1)
    @rule(pick=picks, later=rarely)
    def pass_on(self, pick: int, *, later: bool) -> None:
        """Let somebody who was served be gone."""
        served = self.pool.offered + self.pool.batches or self.pool.creating
        self.pool.pass_on(served[pick % len(served)], later=later)

    @rule(pick=picks, way=st.sampled_from(["adopt", "prefill"]))
    def stock_up(self, pick: int, way: str) -> None:
        """Take in one that was made elsewhere, or begin to create one ahead of time."""
        key = self._key(pick)
        (self.pool.adopt if way == "adopt" else self.pool.prefill)(key, self.costs[key])
        self._go_on()

    # -- resources -------------------------------------------------------------------------------------

    @precondition(lambda self: self.pool.held)
    @rule(picked=st.lists(picks, min_size=1, max_size=4), later=rarely)
    def give_back(self, picked: list[int], *, later: bool) -> None:
        """Give some resources back."""
        for pick in picked:
            held = self.pool.held
            if held:
                self.pool.give_back(pick % len(held), later=later)

    @precondition(lambda self: self.pool.held)
    @rule(picked=st.lists(picks, min_size=1, max_size=3), later=rarely)
    def defer(self, picked: list[int], *, later: bool) -> None:
        """Give some resources back that aren't free yet."""
        for pick in picked:
            held = self.pool.held
            if held:
                self.pool.defer(pick % len(held), later=later)

    @precondition(lambda self: self.pool.pending)
    @rule(pick=picks, answer=mostly("yes", "no", "error", "reset", "stale"), later=rarely)
    def ask(self, pick: int, answer: str, *, later: bool) -> None:
        """Ask one whether it's free now."""
        self.pool.ask(pick % len(self.pool.pending), answer, later=later)
        if not later:
            self._go_on()

    @precondition(lambda self: self.pool.stuck)
    @rule(later=rarely)
    def ask_again(self, *, later: bool) -> None:
        """Have those asked again of which nobody could tell."""
        self.pool.ask_again(later=later)

    @precondition(lambda self: self.pool.held)
    @rule(pick=picks, way=st.sampled_from(["discard", "detach", "drop", "leave behind"]), later=rarely)
    def end_a_use(self, pick: int, way: str, *, later: bool) -> None:
        """End a use in another way."""
        number = pick % len(self.pool.held)
        if way == "discard":
            self.pool.discard(self.pool.held[number], later=later)
        elif way == "detach":
            self.pool.detach(self.pool.held[number], later=later)
        elif way == "leave behind":
            self.pool.leave_behind(self.pool.held[number], later=later)
        else:
            self.pool.drop(number, later=later)
        if not later:
            self._go_on()

    @precondition(lambda self: self.pool.dying)
    @rule(pick=picks, end=mostly("gone", "kept", "left behind"), later=rarely)
    def destroyed(self, pick: int, end: str, *, later: bool) -> None:
        """End a destroy hook, or leave behind what it was for."""
        guard = self.pool.dying[pick % len(self.pool.dying)]
        if end == "left behind":
            self.pool.leave_behind(guard, later=later)
        else:
            self.pool.destroyed(guard, kept=end == "kept", later=later)

    @precondition(lambda self: len(self.pool.things) + len(self.pool.waiting) > 5)
    @rule(pick=picks, what=st.sampled_from(["clear", "fail", "forget"]))
    def upset(self, pick: int, what: str) -> None:
        """Clear or forget a key, or fail all who wait for it."""
        getattr(self.pool, what)(self._key(pick))

    @precondition(lambda self: len(self.pool.things) + len(self.pool.waiting) > 3)
    @rule(
        max_size=optional(1, 6),
        max_cost=mostly(None, *range(1, 13)),
        max_idle=mostly(None, 0, 1, 2),
        caps=st.lists(optional(1, 3), min_size=5, max_size=5),
    )
    def resize(
        self, max_size: int | None, max_cost: int | None, max_idle: int | None, caps: list[int | None]
    ) -> None:
        """Put other limits in force."""
        self.pool.resize(max_size, max_cost, max_idle, dict(zip("abcde", caps, strict=True)))
        self._go_on()

    def teardown(self) -> None:
        """Let everybody give up, and everything go."""
        if hasattr(self, "pool") and self.pool.sound:
            self.pool.end()


class InterruptedMachine(AccountingMachine):
    """G3: the same, with interrupts in the middle of steps."""

    @rule(
        in_steps=st.lists(st.integers(0, 12), max_size=2),
        in_matching=st.lists(st.integers(0, 60), max_size=3),
        twice=st.booleans(),
        careless=st.booleans(),
    )
    def be_interrupted(
        self, in_steps: list[int], in_matching: list[int], *, twice: bool, careless: bool
    ) -> None:
        """Have the next steps interrupted at these places."""
        self.pool.in_steps[:] = in_steps
        self.pool.in_matching[:] = in_matching
        self.pool.twice = twice
        self.pool.careless = careless


SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAccounting = AccountingMachine.TestCase
TestAccounting.settings = SETTINGS
TestInterrupted = InterruptedMachine.TestCase
TestInterrupted.settings = SETTINGS


def test_keys_used_once_leave_nothing_behind() -> None:
    """P61: what the books keep to find those who are next is bounded by the keys in use, not by those ever used."""
    pool = Pool(max_size=3)
    for number in range(1000):
        pool.acquire(str(number))
        for guard in pool.dying.copy():
            pool.destroyed(guard)
        pool.create_ends(pool.creating[0], good=True)
        pool.give_back()
        if number % 2:
            pool.clear(str(number))
            pool.destroyed(pool.dying[0])
    assert len(pool.rows) <= 3
    assert len(pool.accounts._lru) < 2 * 3 + 20
    assert len(pool.accounts._ready) <= 3
    pool.end()
    assert not pool.rows
