"""The accounting with an interrupt at every place of every step, in turn: compared with the model as ever.

An interrupt may cost the resource in hand, which the model is told; nothing else may be different afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.core.accounting_events import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class VisitedPool(Pool):
    """A pool that is interrupted once, at one place of one step."""

    def __init__(self, step: int, place: int, **limits: Any) -> None:
        self.wanted = f"place {place} of step {step}"
        self.steps_left = step
        self.place = place
        self.cut = False
        super().__init__(**limits)

    def attempt(self, places: list[int], step: Callable[..., object], *subjects: Any) -> bool:
        """Run a step, and interrupt it if it is the one wanted."""
        self.steps_left -= 1
        wanted = self.steps_left == -1
        done = super().attempt([self.place] if wanted else places, step, *subjects)
        self.cut = self.cut or (wanted and not done)
        return done

    def go_on(self) -> None:
        """Let all hooks end, and their callers go on, until everybody waits for somebody who holds something."""
        while self.dying or self.creating or self.offered or self.batches:
            for guard in self.dying.copy():
                self.destroyed(guard)
            for claim in self.creating.copy():
                self.create_ends(claim, good=True)
            for claim in self.offered.copy():
                self.take_offer(claim, valid=True)
            for claim in self.batches.copy():
                self.finish_batch(claim)


def every_place(limits: dict[str, Any]) -> Iterator[VisitedPool]:
    """Give pools that are interrupted at one place of their first step after the other, then of their second, and so on."""
    step = place = 0
    while True:
        pool = VisitedPool(step, place, **limits)
        yield pool
        if pool.cut:
            place += 1
        elif pool.steps_left < 0:  # the step has no more places
            step, place = step + 1, 0
        else:  # there are no more steps
            return


def hold(pool: VisitedPool, *keys: str, cost: int = 1) -> None:
    """Have a resource of each of these keys in somebody's hands."""
    for key in keys:
        pool.acquire(key, cost)
        pool.go_on()


def give_all_back(pool: VisitedPool) -> None:
    """End every use."""
    while pool.held:
        pool.give_back()


def come_back_to_others_behind(pool: VisitedPool) -> None:
    """The first of four in line is offered an invalid one, and has its old place again."""
    hold(pool, "a")
    for _ in range(4):
        pool.acquire("a")
    give_all_back(pool)
    for claim in pool.offered.copy():
        pool.take_offer(claim, valid=False)
    for _ in range(4):
        pool.go_on()
        give_all_back(pool)


def come_back_before_another_key(pool: VisitedPool) -> None:
    """The first in line comes back when all of its key who stood behind another key have left: it goes before that one."""
    hold(pool, "a")
    for key in "aba":
        pool.acquire(key)
    give_all_back(pool)
    for claim in [claim for claim in pool.waiting if claim.waiter.key == "a"]:
        pool.time_out(claim)
    for claim in pool.offered.copy():
        pool.take_offer(claim, valid=False)
    for _ in range(3):
        pool.go_on()
        give_all_back(pool)


def evict_what_would_do(pool: VisitedPool) -> None:
    """A waiter needs the room of two, when just enough are idle."""
    hold(pool, "a", "b", "c", "b")
    give_all_back(pool)
    pool.acquire("d", cost=3)
    pool.acquire("a")
    pool.go_on()


def evict_nothing_in_vain(pool: VisitedPool) -> None:
    """A waiter needs the room of two, when one is idle; those behind wait with it."""
    hold(pool, "b", "a", "c", "c")
    pool.give_back()
    pool.acquire("d", cost=2)
    pool.acquire("b")
    pool.go_on()
    give_all_back(pool)
    pool.go_on()


def wait_for_a_cap(pool: VisitedPool) -> None:
    """Two keys wait at their caps, others pass; both leave and come back, and are served again."""
    hold(pool, "p", "q")
    for key in "pqpq":
        pool.acquire(key)
    hold(pool, "b")
    pool.time_out(pool.waiting[0])
    pool.time_out(pool.waiting[0])
    for _ in range(3):
        give_all_back(pool)
        pool.go_on()
        pool.acquire("p", wait=False, slow=True)


def lose_heads_of_lines(pool: VisitedPool) -> None:
    """Heads leave, fail and don't come for what they got: those behind are looked at."""
    hold(pool, "a", "b", "c", "c")
    for key in "dabcd":
        pool.acquire(key)
    pool.fail("d")
    pool.acquire("a")
    give_all_back(pool)
    for claim in pool.offered + pool.creating:
        pool.pass_on(claim)
    pool.go_on()
    pool.acquire("d", wait=False)
    pool.clear("a")
    pool.go_on()


def take_several(pool: VisitedPool) -> None:
    """Batches wait for the total and for a cap; they get idle ones and rooms in one step, and others' rooms, and come back."""
    hold(pool, "a", "b", "p")
    pool.acquire("p", count=2)
    pool.acquire("a", count=3)
    pool.acquire("b")
    pool.give_back()
    pool.resize(4, 8, None, {"p": 2})
    pool.give_back()
    pool.go_on()
    give_all_back(pool)
    pool.acquire("a", count=2, slow=True)
    for claim in pool.batches.copy():
        if claim.granted():
            pool.refuse_batch(claim, 0)
    pool.go_on()
    give_all_back(pool)
    pool.acquire("b", count=4)
    for claim in pool.waiting.copy():
        pool.time_out(claim)
    pool.go_on()


def collect_several(pool: VisitedPool) -> None:
    """Several are wanted at once of a key at its cap: what comes back of it isn't evicted for another, who came later."""
    hold(pool, "p", "b", "p", "b")
    pool.acquire("p", count=3)
    pool.acquire("d")
    give_all_back(pool)
    pool.go_on()
    give_all_back(pool)


def want_several_in_vain(pool: VisitedPool) -> None:
    """Several are wanted at once of a key at its cap, and too few come back: when they give up, one behind them has what there is."""
    hold(pool, "p", "p")
    pool.acquire("p", count=2)
    pool.acquire("p")
    pool.give_back()
    for claim in [claim for claim in pool.waiting if claim.ticket.count > 1]:
        pool.time_out(claim)
    pool.go_on()
    give_all_back(pool)


def shrink_in_vain(pool: VisitedPool) -> None:
    """What goes because limits have shrunk can't be freed: another goes instead, when it comes back."""
    hold(pool, "a", "a", "b")
    pool.give_back()
    pool.resize(2, None, None, {"a": 1})
    for guard in pool.dying.copy():
        pool.destroyed(guard, kept=True)
    give_all_back(pool)
    pool.go_on()
    pool.acquire("b")


def shrink_and_grow(pool: VisitedPool) -> None:
    """Limits shrink below what is idle and what is held, refuse who waits for too much, and grow again."""
    hold(pool, "a", "a", "b", "p")
    pool.give_back()
    pool.acquire("a", count=4)
    pool.acquire("p", count=2)
    pool.resize(2, None, None, {"a": 1})
    give_all_back(pool)
    pool.acquire("a")
    pool.go_on()
    pool.resize(None, 3, 1, {})
    hold(pool, "a", "b")
    give_all_back(pool)


def free_at_last(pool: VisitedPool) -> None:
    """What is given back comes free, or nobody can tell when; others wait for it; it's asked again, and left behind."""
    hold(pool, "a", "b", "c", "p")
    while pool.held:
        pool.defer()
    pool.acquire("a")
    pool.acquire("b")
    for answer in ("no", "error", "yes", "stale", "reset"):
        if pool.pending:
            pool.ask(0, answer)
    pool.go_on()
    pool.adopt("c")
    pool.prefill("a")
    pool.ask_again()
    if pool.held:
        pool.defer()
    for key in "abcp":
        pool.forget(key)
    for guard in pool.held.copy():
        pool.leave_behind(guard)
    pool.adopt("a")
    pool.go_on()


COSTS: dict[str, Any] = {"max_cost": 4}
SIZE_AND_CAPS: dict[str, Any] = {"max_size": 4, "caps": {"p": 1, "q": 1}}
ONE: dict[str, Any] = {"max_size": 1}
FEW_IDLE: dict[str, Any] = {"max_cost": 4, "max_idle": 1}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "limits"),
    [
        (come_back_to_others_behind, ONE),
        (come_back_before_another_key, ONE),
        (evict_what_would_do, COSTS),
        (evict_what_would_do, SIZE_AND_CAPS),
        (evict_nothing_in_vain, COSTS),
        (evict_nothing_in_vain, FEW_IDLE),
        (wait_for_a_cap, SIZE_AND_CAPS),
        (lose_heads_of_lines, SIZE_AND_CAPS),
        (lose_heads_of_lines, FEW_IDLE),
        (take_several, COSTS),
        (take_several, SIZE_AND_CAPS),
        (collect_several, {"max_size": 4, "caps": {"p": 3}}),
        (want_several_in_vain, {"caps": {"p": 2}}),
        (shrink_in_vain, {"max_size": 4}),
        (shrink_and_grow, FEW_IDLE),
        (free_at_last, SIZE_AND_CAPS),
    ],
)
def test_an_interrupt_at_every_place(scenario: Callable[[VisitedPool], None], limits: dict[str, Any]) -> None:
    """G3: wherever an interrupt cuts a step short, telling it again and matching again puts all right."""
    cuts = 0
    for pool in every_place(limits):
        try:
            scenario(pool)
            pool.end()
        except AssertionError as error:
            error.add_note(f"interrupted at {pool.wanted}")
            raise
        cuts += pool.cut
    assert cuts > 100
