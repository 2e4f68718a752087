"""Random steps with deferred releases whose truth the test controls, against simple expectations (G8).

Above all: nobody has a resource, and nobody destroys one, before its `when` has said yes.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from respool import PoolExhaustedError, PoolLimits, PoolObserver, PoolTimeoutError, ResourcePool
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory
from tests.helpers.whens import When

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.resources import Thing

KEYS = ("a", "b", "c")


class Answer(When):
    """A `when` that remembers its last answer, and goes on raising for as long as it's broken."""

    def __init__(self, things: tuple[Thing, ...], kind: str) -> None:
        super().__init__(free=kind == "yes")
        self.things = things
        self.broken = kind == "raises"
        self.before = self.break_down
        self.last = ""

    def break_down(self) -> None:
        """Raise, if it's broken."""
        self.last = "raised"
        if self.broken:
            raise LookupError
        self.last = "yes" if self.free else "no"

    @property
    def settled(self) -> bool:
        """Whether it would say now what it has said last."""
        return self.last == ("raised" if self.broken else "yes" if self.free else "no")


class DeferredMachine(RuleBasedStateMachine):
    """Steps of one thread on a pool with drawn limits."""

    @initialize(
        max_size=st.none() | st.integers(1, 8),
        max_per_key=st.none() | st.integers(1, 5),
        max_idle=st.none() | st.integers(0, 4),
        hooked=st.booleans(),
        tracked=st.booleans(),
    )
    def make(
        self,
        max_size: int | None,
        max_per_key: int | None,
        max_idle: int | None,
        *,
        hooked: bool,
        tracked: bool,
    ) -> None:
        """Make the pool."""
        self.factory = Factory()
        self.pool: ResourcePool[str, Thing] = ResourcePool(
            self.factory.create,
            self.factory.destroy,
            self.factory.validate if hooked else None,
            reset=self.factory.reset if hooked else None,
            limits=PoolLimits(max_size=max_size, max_per_key=max_per_key, max_idle=max_idle),
            observer=PoolObserver(),
            track_leases=tracked,
        )
        # Who holds what: the ways to give it back.
        self.held: list[tuple[tuple[Thing, ...], Callable[..., object], Callable[[], object]]] = []
        self.answers: dict[
            Thing, Answer
        ] = {}  # of what was given back with a `when`, by what it stood for last
        self.all_answers: list[Answer] = []
        self.forgotten: set[Thing] = set()
        self.leaving: set[Thing] = set()  # held when their key was forgotten
        for hook in ("destroy", "reset", "validate"):
            self.factory.before[hook] = self.look
        self.early: list[str] = []

    def look(self, key: str, thing: Thing) -> None:
        """See in a hook that the thing is free, as far as anybody knows."""
        if thing in self.answers and not self.answers[thing].said_yes:
            self.early.append(f"a hook runs on {thing!r} before it's free")
        if any(thing in things for things, _, _ in self.held):
            self.early.append(f"a hook runs on {thing!r} while it's held")

    def _got(
        self, things: tuple[Thing, ...], release: Callable[..., object], discard: Callable[[], object]
    ) -> None:
        for thing in things:
            assert thing.alive
            assert thing not in self.forgotten, "handed out although it was left behind"
            assert all(thing not in others for others, _, _ in self.held), "in two hands"
            if thing in self.answers:
                assert self.answers.pop(thing).said_yes, f"{thing!r} is in hands before it's free"
        self.held.append((things, release, discard))

    # -- taking ------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), way=st.sampled_from(["try", "zero", "fast", "bound"]))
    def take(self, key: str, way: str) -> None:
        """Take one if there's one."""
        pool = self.pool
        with contextlib.suppress(PoolTimeoutError):
            if way in {"fast", "bound"}:
                face: Any = pool if way == "fast" else pool.bind(key)
                thing = pool.try_acquire(key) if way == "fast" else face.try_acquire()
                if thing is not None:
                    self._got((thing,), lambda *when: face.release(thing, *when), lambda: face.discard(thing))
                return
            lease = pool.try_lease(key) if way == "try" else pool.lease(key, timeout=0)
            if lease is not None:
                self._got((lease.resource,), lease.release, lease.discard)

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 3))
    def take_many(self, key: str, count: int) -> None:
        """Take several if they can be had."""
        with contextlib.suppress(PoolTimeoutError, PoolExhaustedError):
            group = self.pool.lease_many(count, key, 0)
            self._got(group.resources, group.release, group.discard)

    # -- giving back -------------------------------------------------------------------------------------

    @precondition(lambda self: getattr(self, "held", None))
    @rule(data=st.data(), kind=st.sampled_from(["no", "no", "yes", "raises", "plain", "discard"]))
    def give_back(self, data: st.DataObject, kind: str) -> None:
        """Give something back in one of the ways."""
        place = data.draw(st.integers(0, len(self.held) - 1))
        things, release, discard = self.held.pop(place)
        leaving = self.leaving.intersection(things)
        if kind in {"plain", "discard"}:
            (release if kind == "plain" else discard)()
            self.forgotten |= leaving
            return
        answer = Answer(things, kind)
        self.answers |= dict.fromkeys(things, answer)
        try:
            release(answer)
        except LookupError:
            assert kind == "raises"
            for thing in things:
                del self.answers[thing]
            self.held.append((things, release, discard))
        else:
            assert kind != "raises"
            self.forgotten |= leaving
            self.all_answers.append(answer)
        assert answer.asked == 1

    # -- what the world does -----------------------------------------------------------------------------

    @precondition(lambda self: getattr(self, "answers", None))
    @rule(data=st.data(), what=st.sampled_from(["free", "free", "broken", "mended"]))
    def turn(self, data: st.DataObject, what: str) -> None:
        """Let something become free, or a `when` break down, or mend; one that has said yes keeps to that."""
        thing = data.draw(st.sampled_from(sorted(self.answers, key=lambda thing: thing.number)))
        answer = self.answers[thing]
        if answer.said_yes:
            return
        if what == "free":
            answer.free = True
        else:
            answer.broken = what == "broken"

    # -- looking after the pool --------------------------------------------------------------------------

    @rule()
    def reap(self) -> None:
        """Ask all: afterwards the pool knows of each what it would say."""
        self.pool.reap()
        for thing, answer in self.answers.items():
            if thing not in self.forgotten:
                assert answer.settled, "reap() has not asked all"
        stats = self.pool.stats()
        waiting = [self.answers[thing].last for thing in self._not_free()]
        assert (stats.pending, stats.quarantined) == (waiting.count("no"), waiting.count("raised"))

    @rule(key=st.none() | st.sampled_from(KEYS))
    def clear(self, key: str | None) -> None:
        """Clear one key or all."""
        before = len(self.factory.destroyed)
        count = self.pool.clear() if key is None else self.pool.clear(key)
        assert len(self.factory.destroyed) == before + count

    @rule(key=st.sampled_from(KEYS))
    def forget(self, key: str) -> None:
        """Leave behind all of a key that isn't in anybody's hands."""
        destroyed = len(self.factory.destroyed)
        self.pool.forget(key)
        assert len(self.factory.destroyed) == destroyed
        held = {thing for things, _, _ in self.held for thing in things}
        alive = {thing for thing in self.factory.made if thing.key == key and thing.alive}
        self.forgotten |= alive - held
        self.leaving |= alive & held

    # -- what must be so after each step -----------------------------------------------------------------

    def _not_free(self) -> list[Thing]:
        return [it for it, answer in self.answers.items() if not answer.said_yes and it not in self.forgotten]

    @invariant()
    def all_agrees(self) -> None:
        """Compare what the pool, the factory and the test count."""
        if not hasattr(self, "pool"):
            return
        assert self.early == []
        assert self.factory.misuse == []
        assert [answer.misuse for answer in self.all_answers if answer.misuse] == []
        stats = assert_quiet(self.pool, keys=KEYS, leased=sum(len(things) for things, _, _ in self.held))
        # Of a group some may be asked after the others: they're pending still although `when` has said yes.
        not_free = len(self._not_free())
        late = sum(
            answer.said_yes and len(answer.things) > 1 and it not in self.forgotten and it.alive
            for it, answer in self.answers.items()
        )
        assert not_free <= stats.pending + stats.quarantined <= not_free + late
        assert stats.leaked == 0

    def teardown(self) -> None:
        """Let all be free and come back, close, and find everything destroyed once."""
        if not hasattr(self, "pool"):
            return
        for answer in self.all_answers:
            answer.free, answer.broken = True, False
        while self.held:
            _, release, _ = self.held.pop()
            release()
        self.pool.reap()
        stats = assert_quiet(self.pool, leased=0)
        assert (stats.pending, stats.quarantined) == (0, 0)
        self.pool.close()
        assert self.pool.stats().size == 0
        assert self.early == []
        assert self.factory.misuse == []
        assert self.factory.alive == self.pool.stats().abandoned


TestDeferredMachine = DeferredMachine.TestCase
TestDeferredMachine.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
