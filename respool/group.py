"""LeaseGroup: several resources in somebody's hands, leased together.

The fast ways are written as in `respool.lease`: what is looked at and what is pushed are one step.
"""

from __future__ import annotations

from _thread import allocate_lock
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from respool._free import FREE_THREADED
from respool._slot import PENDING
from respool._work import trying
from respool.errors import LeaseLostError, LeaseReleasedError, safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from respool._lifecycle import Core
    from respool._slot import Guard
    from respool._work import Lane

__all__ = ["LeaseGroup", "take_group"]

K = TypeVar("K")
T = TypeVar("T")


class LeaseGroup(Generic[K, T]):
    """Several resources of one key that their holder has for itself until the group is released.

    A context manager: ``with pool.lease_many(8) as resources:`` gives them all back at the end, whatever happens in the
    block.  Made by `ResourcePool.lease_many` only.

    Thread safety: any thread may release a group, whichever acquired it.

    A group that is dropped without release is a leak of each of its resources, as with `Lease`.

    Attributes
    ----------
    key
        The key that was asked for.
    resources
        The leased resources, a tuple.
    released
        Whether the group is spent.
    """

    __module__ = "respool"
    __slots__ = ("__weakref__", "_guards", "_lane")

    # The guards are the hold on the resources; they leave the list one by one, or all in one step.
    _guards: list[Guard]
    _lane: Lane

    def __init__(self) -> None:
        raise TypeError("groups are made by a pool: call lease_many()")

    @property
    def key(self) -> K:
        """The key that was asked for; also of a spent group."""
        return self._lane.key  # type: ignore[no-any-return]  # typed by the pool

    @property
    def resources(self) -> tuple[T, ...]:
        """The leased resources.

        Raises
        ------
        LeaseReleasedError
            The group is spent.
        LeaseLostError
            The group was made before a fork, in the parent process.
        """
        found = tuple([guard.record.resource for guard in self._guards])
        if not found:
            raise self._spent("resources")
        if found[0] is None:  # a fork strands all or none
            raise LeaseLostError(
                f"{self!r} was made before a fork, in the parent process: its resources are not for use here"
            )
        return found

    @property
    def released(self) -> bool:
        """Whether the group is spent: released or discarded."""
        return not self._guards

    def release(self, when: Callable[[], object] | None = None) -> None:
        """Give all resources back.  A spent group does nothing.

        Parameters
        ----------
        when
            Tells whether the resources are free, if they aren't free at once: see `Lease.release`.  It speaks for all
            of them, and isn't asked again once it has said yes.

        Raises
        ------
        Exception
            What `when` raises in this call; the resources are still held then.
        TypeError
            `when` can't be called.
        """
        if when is None:
            self._give_back()
        elif self._guards:
            core: Any = self._lane.engine
            if core.is_free(self._guards[0].record, when, len(self._guards)):
                self._give_back()
            else:
                self._defer(core, _Shared(when))

    def discard(self) -> None:
        """Destroy all resources instead of keeping them.

        Raises
        ------
        LeaseReleasedError
            The group is spent.
        """
        if not self._guards:
            raise self._spent("discard")
        core: Any = self._lane.engine
        self._end(lambda guard: core.discard(guard, guard.record))

    def _give_back(self) -> None:
        guards = self._guards
        lane = self._lane
        generation = lane.generation
        if not lane.due and guards:
            use = lane.use
            tick = use.tick + (use.last is not lane)
            for guard in guards:
                record = guard.record
                if record.lane is not lane:
                    break
                record.stamp = tick
            else:
                # In one straight line, as on a lease's fast way.  clear() and forget() raise the generation.
                if guards is self._guards and not lane.due and lane.generation == generation:
                    self._guards = []
                    if use.last is not lane:
                        use.last = lane
                        use.tick += 1
                        use.news[lane] = None
                    lane.idle.extend(guards)
                    return
        core: Any = lane.engine
        self._end(lambda guard: core.give_back(guard, guard.record))

    def _end(self, way: Callable[[Guard], object]) -> None:
        """Let all resources go one by one, whatever single hooks do."""
        failure: BaseException | None = None
        try:
            while self._guards:
                try:
                    # Fetched anew each time: on the fast way another thread, or a signal handler, takes the list whole.
                    way(self._guards.pop())
                except IndexError:  # it came between the look and the pop
                    pass
                except BaseException as error:  # noqa: BLE001 - no Exception; raised below, when all is done
                    failure = error
            if failure is not None:
                raise failure
        finally:
            failure = None  # an exception that refers to a frame that refers to it would live until the collector comes

    def _defer(self, core: Core, when: _Shared) -> None:
        while True:
            guards = self._guards  # fetched anew after each jump back, where another thread may have come in
            if not guards:
                break
            if FREE_THREADED:
                core.defer_until(guards, when)
                continue
            # In one straight line up to the pop: a resource in use may at no moment look like one that was leaked.
            record = guards[-1].record
            record.when = when
            record.phase = PENDING
            core.defer(guards.pop())

    def __enter__(self) -> tuple[T, ...]:
        return self.resources

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._lane.engine.discard_on_error and self._guards:
            self.discard()
        else:
            self._give_back()

    def __repr__(self) -> str:
        count = len(self._guards)
        state = f"{count} leased" if count else "released"
        return f"<respool.LeaseGroup of {safe_repr(self._lane.key)} from {self._lane.engine.name}: {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a group can't be pickled or copied: it's the one hold on its resources")

    def _spent(self, what: str) -> LeaseReleasedError:
        return LeaseReleasedError(f"{what}: {self!r} was given back before")


class _MadeGroup(LeaseGroup[K, T]):
    """What a pool makes: a group that can be made."""

    __slots__ = ()

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._guards = []


_MadeGroup.__name__ = _MadeGroup.__qualname__ = "LeaseGroup"
_MadeGroup.__module__ = "respool"


class _Shared:
    """A `when` that speaks for several resources: asked by one thread at a time, and never again once it has said yes."""

    __slots__ = ("_asking", "_free", "_when")

    def __init__(self, when: Callable[[], object]) -> None:
        self._when: Callable[[], object] | None = when
        self._asking = allocate_lock()  # held by the one who asks
        self._free = False

    def __call__(self) -> bool:
        if self._free:
            return True
        # A try that succeeds can't be lost to an interrupt: a `for` step is one instruction.
        taken = False
        for taken in trying(self._asking):  # noqa: B007 - used below
            break
        if not taken:
            return False  # the next turn will know
        try:
            when = self._when
            if when is not None and when():
                self._free = True
                self._when = None
            return self._free
        finally:
            self._asking.release()


def take_group(core: Core, lane: Lane, n: int, timeout: float | None) -> LeaseGroup[Any, Any]:
    """Lease `n` resources of a row."""
    group: LeaseGroup[Any, Any] = _MadeGroup(lane)
    if timeout is None and type(n) is int and n > 0 and len(lane.idle) >= n:
        guards = group._guards  # noqa: SLF001 - a pool fills its groups in
        # C code all the way, made ready before the look at `gate`: no other thread comes in between.
        idle = islice(iter(lane.idle.pop, None), n)
        try:
            if not lane.gate:
                guards.extend(idle)
        except IndexError:  # another thread came just before
            core.return_all(guards)
        if guards:
            for guard in guards:
                guard.record.uses += 1
            return group
    armful = core.take_many(lane, n, timeout)
    group._lane = armful.guards[0].record.row  # noqa: SLF001 - found anew, perhaps
    for guard in armful.guards:
        guard.record.uses += 1
    group._guards, armful.guards = armful.guards, []  # noqa: SLF001
    return group
