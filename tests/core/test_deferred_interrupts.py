"""Interrupts, signal handlers and other callers at every place of a deferred release, of asking, and of reap() (G3, G5, G8).

An interrupt may cost the resource in hand, never its room; and whatever happens, nobody has a resource before its `when`
has said yes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from respool import (
    InvalidReleaseError,
    PoolLimits,
    PoolObserver,
    PoolReentrancyError,
    PoolTimeoutError,
    ResourcePool,
)
from tests.helpers.checkpoints import Interrupt, every_checkpoint, interrupt
from tests.helpers.invariants import assert_balanced, assert_quiet, assert_within
from tests.helpers.resources import Factory
from tests.helpers.whens import WAYS, Held, When, hand_in, hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Thing

pytestmark = [pytest.mark.usefixtures("no_backstop", "bear"), pytest.mark.slow, pytest.mark.timeout(300)]

SILENT = PoolObserver()
ROOMS = 3


class Bench:
    """A pool with three resources of key A, each of which is free or not as the test says."""

    def __init__(self, *, tracked: bool = False, hooked: bool = False) -> None:
        self.factory = Factory()
        hooks = {"validate": self.factory.validate, "reset": self.factory.reset} if hooked else {}
        self.pool: ResourcePool[Any, Thing] = ResourcePool(
            self.factory.create,
            self.factory.destroy,
            limits=PoolLimits(max_size=ROOMS),
            observer=SILENT,
            track_leases=tracked,
            **hooks,  # type: ignore[arg-type]  # two of the hooks
        )
        self.whens: dict[Thing, When] = {}  # of those given back and, as far as the test knows, not free yet

    def give_back(self, held: Held, when: When) -> None:
        """Release with a `when`, which is known from before the call on."""
        for thing in held.things:
            self.whens[thing] = when
        held.release(when)

    def hand_in(self, *whens: When) -> list[Thing]:
        """Give back resources with these."""
        things = hand_in(self.pool, *whens)
        self.whens.update(zip(things, whens, strict=True))
        return things

    def assert_free(self, *things: Thing) -> None:
        """Check that what somebody has got is alive, and was free before he got it."""
        for thing in things:
            assert thing.alive, f"{thing!r} was destroyed"
            assert thing not in self.whens or self.whens[thing].said_yes, (
                f"{thing!r} is in hands before it's free"
            )

    def assert_nobody_has_what_is_not_free(self) -> None:
        """Take all that can be had at once, and look at it; nothing that's not free was destroyed either."""
        got = []
        while (lease := self.pool.try_lease("A")) is not None:
            self.assert_free(lease.resource)
            got.append(lease)
        for lease in got:
            lease.release()
        for thing, when in self.whens.items():
            assert thing.alive or when.said_yes, f"{thing!r} was destroyed before it's free"

    def assert_waits_as_ever(self) -> None:
        """Check that this thread isn't taken for one that is inside a hook."""
        leases = []
        with contextlib.suppress(PoolTimeoutError):
            leases = [self.pool.lease("A", timeout=0.001) for _ in range(ROOMS + 1)]
        assert len(leases) <= ROOMS
        for lease in leases:
            lease.release()

    def assert_whole(self, lost: int = 1) -> None:
        """Let everything be free: all rooms can be had for good resources then, and no more than ``lost`` got lost."""
        stats = self.pool.stats()
        assert_within(stats, self.pool.limits)
        assert_balanced(stats)
        self.assert_nobody_has_what_is_not_free()
        self.assert_waits_as_ever()
        for when in self.whens.values():
            when.free = True
            when.errors = []
        self.pool.reap()
        leases = [self.pool.lease("A", timeout=10) for _ in range(ROOMS)]
        assert len({lease.resource for lease in leases}) == ROOMS
        self.assert_free(*[lease.resource for lease in leases])
        assert self.pool.try_lease("A") is None
        for lease in leases:
            lease.release()
        stats = assert_quiet(self.pool, leased=0, idle=ROOMS)
        assert (stats.pending, stats.quarantined) == (0, 0)
        self.pool.close()
        assert self.pool.stats().size == 0, "close has not waited"
        assert self.factory.misuse == []
        assert 0 <= self.factory.alive <= lost
        for when in self.whens.values():
            assert "asked by two at the same time" not in when.misuse


@pytest.mark.parametrize("hooked", [False, True], ids=["bare", "hooked"])
@pytest.mark.parametrize("free", [False, True], ids=["not free", "free"])
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_every_place_of_release(way: str, free: bool, hooked: bool) -> None:  # noqa: FBT001
    """G3, G8: a release that is interrupted has happened or not; what isn't free yet is never handed out nor destroyed by it."""
    for visit in every_checkpoint():
        bench, when = Bench(hooked=hooked), When(free=free)
        held = hold(bench.pool, way)
        with visit, bench.pool:
            try:
                visit.run(lambda h=held, w=when, b=bench: b.give_back(h, w), interrupt)
            except Interrupt:
                assert visit.reached
                bench.assert_nobody_has_what_is_not_free()
                with contextlib.suppress(InvalidReleaseError):
                    held.release(when)  # once more: what was given back doesn't mind
            del held
            bench.assert_whole(lost=0 if not hooked and not free else len(bench.whens))


def wait(bench: Bench, held: list[Any]) -> None:
    """Wait in vain, asking."""
    held.append(bench.pool.lease("A", timeout=0.002))


def try_it(bench: Bench, held: list[Any]) -> None:
    """Look once."""
    held.append(bench.pool.try_lease("A"))


def take_many(bench: Bench, held: list[Any]) -> None:
    """Wait for several in vain, asking."""
    held.append(bench.pool.lease_many(3, "A", timeout=0.002))


def other_key(bench: Bench, held: list[Any]) -> None:
    """Look for another key's: room is made by what is free."""
    held.append(bench.pool.try_lease("B"))


def reap(bench: Bench, held: list[Any]) -> None:
    """Ask all."""
    bench.pool.reap()


def give_up(bench: Bench, held: list[Any]) -> None:
    """Forget all."""
    bench.pool.forget("A")


ASKING = [wait, try_it, take_many, other_key, reap]


def scenario(bench: Bench, kind: str) -> list[When]:
    """Give back three with the answers that ``kind`` says, known to be asked once more at least."""
    if kind == "group":
        when = When(after=4)
        bench.give_back(hold(bench.pool, "group"), when)
        bench.hand_in(other := When())
        return [when, other]
    whens = [When() for _ in range(ROOMS)]
    bench.hand_in(*whens)
    if kind == "one free":
        whens[1].free = True
    elif kind == "all free":
        for when in whens:
            when.free = True
    elif kind == "one raises":
        whens[1].errors = [ValueError("can't tell")] * 2
        whens[2].free = True
    elif kind == "cleared":
        bench.pool.clear()
        whens[0].free = True
    return whens


KINDS = ["none free", "one free", "all free", "one raises", "cleared", "group"]


def let_go(bench: Bench, held: list[Any]) -> None:
    """Look at what a call has got, and give it back."""
    for got in held:
        if got is not None:
            bench.assert_free(*(got.resources if hasattr(got, "resources") else [got.resource]))
            got.release()
    held.clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ask", "hooked"),
    [*((ask, False) for ask in ASKING), (try_it, True), (reap, True)],
    ids=lambda value: value.__name__ if callable(value) else "hooked" if value else "bare",
)
def test_an_interrupt_at_every_place_of_asking(
    ask: Callable[[Bench, list[Any]], None],
    kind: str,
    hooked: bool,  # noqa: FBT001
) -> None:
    """G3, G8: whoever asks is interrupted anywhere: no room is lost, nothing is in use or destroyed before it's free, and the next can ask."""
    for visit in every_checkpoint():
        bench = Bench(hooked=hooked)
        held: list[Any] = []
        with visit, bench.pool:
            scenario(bench, kind)
            try:
                with contextlib.suppress(PoolTimeoutError):
                    visit.run(lambda b=bench, h=held: ask(b, h), interrupt)
            except Interrupt:
                assert visit.reached
            let_go(bench, held)
            bench.pool.clear("B")
            bench.assert_whole(lost=1)


@pytest.mark.parametrize("kind", ["quarantined", "quarantined and free"])
def test_an_interrupt_at_every_place_of_a_second_reap(kind: str) -> None:
    """G3, G8: the same where reap() asks what is quarantined."""
    for visit in every_checkpoint():
        bench = Bench(tracked=True)
        whens = [When() for _ in range(ROOMS)]
        with visit, bench.pool:
            bench.hand_in(*whens)
            for when in whens:
                when.errors = [ValueError("can't tell")]
            bench.pool.reap()
            assert bench.pool.stats().quarantined == ROOMS
            whens[0].free = kind != "quarantined"
            whens[1].errors = [ValueError("still")]
            try:
                visit.run(bench.pool.reap, interrupt)
            except Interrupt:
                assert visit.reached
            bench.assert_whole()


@pytest.mark.parametrize("kind", ["none free", "one free", "group"])
def test_an_interrupt_at_every_place_of_forget(kind: str) -> None:
    """G3, G8: a forget that is interrupted loses no room."""
    for visit in every_checkpoint():
        bench = Bench()
        with visit, bench.pool:
            scenario(bench, kind)
            try:
                visit.run(lambda b=bench: give_up(b, []), interrupt)
            except Interrupt:
                assert visit.reached
            bench.assert_whole(lost=bench.factory.alive)


def look(bench: Bench) -> None:
    """Ask for one, and look at it; build the error that says who holds what."""
    lease = bench.pool.try_lease("A")
    if lease is not None:
        bench.assert_free(lease.resource)
        lease.release()
    with contextlib.suppress(PoolTimeoutError):
        bench.pool.lease("C", timeout=0).release()


def reap_too(bench: Bench) -> None:
    """Ask all."""
    bench.pool.reap()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ask", [wait, take_many, reap])
@pytest.mark.parametrize("handler", [look, reap_too])
def test_a_signal_handler_at_every_place_of_asking(
    ask: Callable[[Bench, list[Any]], None], kind: str, handler: Callable[[Bench], None]
) -> None:
    """G5, G8: a signal handler that uses the pool in the midst of an ask gets nothing that isn't free, and spoils nothing."""
    for visit in every_checkpoint(step=3):
        bench = Bench(tracked=True)
        held: list[Any] = []

        def act(bench: Bench = bench) -> None:
            with contextlib.suppress(PoolReentrancyError):
                handler(bench)

        with visit, bench.pool:
            whens = scenario(bench, kind)
            with contextlib.suppress(PoolTimeoutError):
                visit.run(lambda b=bench, h=held: ask(b, h), act)
            let_go(bench, held)
            bench.pool.clear("C")
            bench.assert_whole(lost=0)
            for when in whens:
                assert when.misuse == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("free", [False, True], ids=["not free", "free"])
@pytest.mark.parametrize("call", ["stats", "wait", "reap", "clear", "release"])
def test_a_handler_that_gives_back_with_a_when(call: str, way: str, free: bool) -> None:  # noqa: FBT001
    """G5, P78, G8: a signal handler or a finaliser may give back what isn't free yet, at every place inside the pool."""
    for visit in every_checkpoint():
        bench, when = Bench(), When(free=free)
        held = hold(bench.pool, way)
        other = bench.pool.lease("A")
        got: list[Any] = []
        calls: dict[str, Callable[[], object]] = {
            "stats": bench.pool.stats,
            "wait": lambda b=bench, g=got: wait(b, g),
            "reap": bench.pool.reap,
            "clear": lambda b=bench: b.pool.clear("none"),
            "release": lambda o=other: o.release(When(free=True)),
        }
        with visit, bench.pool:
            with contextlib.suppress(PoolTimeoutError):
                visit.run(calls[call], lambda b=bench, h=held, w=when: b.give_back(h, w))
            if not visit.reached:
                bench.give_back(held, when)
            del held
            let_go(bench, got)
            other.release()
            stats = assert_quiet(bench.pool, leased=0)
            assert free or stats.pending == len(bench.whens)
            bench.assert_whole(lost=0)
            assert when.misuse == []
