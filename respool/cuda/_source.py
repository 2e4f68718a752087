"""Where a pool's events come from and go to: the hooks that its `ResourcePool` calls, and what ends with a context.

Owns which events may still be given to the driver: none of a context that is gone or broken.
"""

# ruff: noqa: SLF001 - the other half of CudaEvent and of its pool

from __future__ import annotations

import weakref
from _thread import get_ident
from typing import TYPE_CHECKING, Any

from respool._slot import GONE, Record
from respool._work import FORGOTTEN
from respool.errors import PoolReentrancyError

from ._driver import DISABLE_TIMING, forked, load
from .context import DESTROYED, Current, fate, is_gone
from .event import CudaEvent

if TYPE_CHECKING:
    from respool._lifecycle import Core

    from ._driver import Driver

__all__ = ["Source"]

LEFT = Record(None)  # type: ignore[arg-type]  # what events of a context that is gone have in place of their own record
LEFT.phase = GONE
LEFT.lane = FORGOTTEN


class Source:
    """What the events of one pool have in common.

    It refers to its pool weakly: a pool that referred to itself would be found dropped only by the collector.
    """

    __slots__ = ("__weakref__", "_core", "_left", "_watched", "timing")

    def __init__(self, *, timing: bool) -> None:
        self.timing = timing
        self._core: weakref.ref[Core] | None = None
        self._watched = False
        # Contexts that broke at a moment when the pool could not be told.
        self._left: list[int] = []

    def serve(self, core: Core) -> None:
        """Say whose events these are."""
        self._core = weakref.ref(core)

    def _pool(self) -> Core | None:
        return None if self._core is None else self._core()

    # -- the hooks -------------------------------------------------------------------------------------

    def make(self, context_id: int) -> CudaEvent:
        """Create an event in a context, which is made current for that if it isn't."""
        driver = load()
        core = self._pool()
        if core is None:  # pragma: no cover - the pool itself calls this
            raise RuntimeError("there's no pool to make an event for")
        if not self._watched:
            self._watch(driver, core)
        handle: Any = None
        try:
            with Current(driver, context_id):
                handle = driver.create_event(0 if self.timing else DISABLE_TIMING, context_id)
        except BaseException:
            if handle is not None:  # what was current before can't be made so again
                driver.destroy_event(handle, context_id)
            raise
        # The pool's record of this event, by which it's known who has recorded it: its hooks carry it.
        record = core.hooks.marks[get_ident()]
        if record is None:  # pragma: no cover - a hook runs with a mark
            raise RuntimeError("an event is made by its pool only")
        return CudaEvent._made(driver, handle, context_id, self, record)

    def _watch(self, driver: Driver, core: Core) -> None:
        self._watched = True
        own = weakref.ref(self)

        def broke(context_id: int) -> None:
            source = own()
            if source is not None:
                source._broken(context_id)

        weakref.finalize(core, driver.broken.listen(broke)).atexit = False

    @staticmethod
    def end(context_id: int, event: CudaEvent) -> None:
        """Destroy an event, if its context is still there."""
        driver = load()
        if not is_gone(driver, context_id):
            driver.destroy_event(event._event, context_id)

    # -- contexts that end -----------------------------------------------------------------------------

    def forget(self, context_id: int, *, broken: bool = False) -> int:
        """Leave a context's events to it: no driver call is made for any of them again.

        Those of a broken context, which its holders are still told the driver's error of, may be used in vain.
        """
        core = self._pool()
        lane = None if core is None else core.known_lane(context_id)
        if core is None or lane is None:
            return 0
        if not broken:
            for record in list(core.by_id.values()):
                event: Any = record.resource
                if record.row is lane and event is not None:
                    event._slot = LEFT
        return core.forget(lane)

    def lost(self, context_id: int) -> None:
        """Do the same where the driver has just said that the context is gone."""
        try:
            self.forget(context_id)
        except PoolReentrancyError:  # a signal handler that interrupts the pool itself
            self._left.append(context_id)

    def _broken(self, context_id: int) -> None:
        """Drop what a context has that has just broken, so that acquires fail fast instead of finding an idle event."""
        try:
            count = self.forget(context_id, broken=True)
        except PoolReentrancyError:  # as above
            self._left.append(context_id)
            return
        core = self._pool()
        if count and core is not None:
            import logging

            logging.getLogger("respool").warning(
                "pool %s: CUDA context %d has a sticky error; its %d idle events are left to it",
                core.name,
                context_id,
                count,
            )

    def sweep(self) -> None:
        """Forget what belongs to contexts that are gone."""
        core = self._pool()
        if core is None or not core.by_id or forked():
            return
        while self._left:
            self.forget(self._left.pop(), broken=True)
        driver = load()
        ids: set[int] = {record.row.key for record in list(core.by_id.values())}
        for context_id in ids:
            code = fate(driver, context_id)  # which tells us, if it finds it broken
            if code == DESTROYED:
                self.forget(context_id)
            elif code:
                self._broken(context_id)
