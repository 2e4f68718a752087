"""The user's code that a pool calls: hooks and observer.  Always outside the pool's lock.

While a hook runs on a resource, the thread that runs it carries a mark: the resource's record.  With the
marks the pool can tell a wait that would never end, because everything that could come back is in the hands
of hooks that wait themselves.  A mark counts only as long as its record is in the phase of a hook.  So one
that an interrupt left behind is void as soon as the record has been settled.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any, Final

from respool._slot import ASKING, CHECKING, CREATING, DESTROYING, RESETTING
from respool.errors import safe_repr
from respool.observers import EVENTS, LoggingObserver, PoolObserver

if TYPE_CHECKING:
    import weakref
    from collections import deque
    from collections.abc import Callable, Iterator

    from respool._rows import Row
    from respool._slot import Record
    from respool.pool import ResourcePool

__all__ = ["ERROR", "Hooks", "check_hook"]

ERROR: Final = "error"
"""The kind of an inbox entry that counts a hook's error; its subject is (row or None, hook)."""

_IN_HOOK = (CREATING, CHECKING, RESETTING, DESTROYING, ASKING)


_COROUTINE: Final = 0x80 | 0x200
"""``inspect.CO_COROUTINE`` and ``CO_ASYNC_GENERATOR``."""


def check_hook(name: str, hook: object, *, needed: bool = False) -> None:
    """Refuse a hook that can't be called."""
    if (hook is None and needed) or (hook is not None and not callable(hook)):
        raise TypeError(f"{name} must be callable{'' if needed else ' or None'}, got {safe_repr(hook)}")
    code = getattr(hook, "__code__", None)
    if getattr(code, "co_flags", 0) & _COROUTINE:
        raise TypeError(
            f"{name} must be a plain function, got the coroutine function {safe_repr(hook)}: nothing would await it"
        )


class Hooks:
    """The hooks and the observer of one pool, and who is in a hook."""

    __slots__ = (
        "_inbox",
        "_pool",
        "_telling",
        "cost",
        "create",
        "destroy",
        "marks",
        "observer",
        "per_key",
        "reset",
        "tells",
        "times_creation",
        "validate",
    )

    def __init__(  # noqa: PLR0917 - in the order of ResourcePool's own
        self,
        create: Callable[[Any], Any],
        destroy: Callable[[Any, Any], object] | None,
        validate: Callable[[Any, Any], bool] | None,
        reset: Callable[[Any, Any], object] | None,
        cost: Callable[[Any], int] | None,
        observer: PoolObserver | None,
        inbox: deque[list[Any]],
    ) -> None:
        check_hook("create", create, needed=True)
        for name, hook in (("destroy", destroy), ("validate", validate), ("reset", reset), ("cost", cost)):
            check_hook(name, hook)
        if observer is not None and not isinstance(observer, PoolObserver):
            raise TypeError(f"observer must be a PoolObserver or None, got {safe_repr(observer)}")
        self.create = create
        self.destroy = destroy
        self.validate = validate
        self.reset = reset
        self.cost = cost
        self.observer = LoggingObserver() if observer is None else observer
        # What the observer wants to know: what it overrides.
        kind = type(self.observer)
        self.tells = frozenset(
            event for event in EVENTS if getattr(kind, event) is not getattr(PoolObserver, event)
        )
        # The clock is asked only for an observer that wants to know.
        self.times_creation = "created" in self.tells
        self._pool: Callable[[], ResourcePool[Any, Any] | None] = lambda: None
        self._inbox = inbox
        # By thread; each thread writes its own entry only, and None is as good as none: cheaper than taking it out.
        self.marks: dict[int, Record | None] = {}
        self._telling: dict[int, int] = {}  # how deep it is in the observer

    def serve(self, pool: weakref.ref[ResourcePool[Any, Any]]) -> None:
        """Say on whose behalf the observer is told."""
        self._pool = pool

    # -- marks -----------------------------------------------------------------------------------------

    def enter(self, record: Record) -> None:
        """Mark that the calling thread is about to run a hook on `record`, whose phase says which."""
        me = get_ident()
        outer = self.marks.get(me)
        record.outer = None if outer is None else self.living(outer, record)
        self.marks[me] = record

    @staticmethod
    def living(mark: Record, record: Record) -> Record | None:
        """Give `mark` unless an interrupt has left it behind; linked to such ones, marks could come to form a circle."""
        return mark if mark is not record and mark.phase in _IN_HOOK else None

    def leave(self, record: Record) -> None:
        """Take the mark away."""
        outer, record.outer = record.outer, None
        if outer is None:
            self.marks.pop(get_ident(), None)
        else:
            self.marks[get_ident()] = outer

    def stuck(self, thread: int) -> Iterator[Record]:
        """Give the records whose hooks `thread` is in."""
        record = self.marks.get(thread)
        while record is not None:
            if record.phase in _IN_HOOK:
                yield record
            record = record.outer

    def inside(self) -> bool:
        """Tell whether the calling thread is in a hook of this pool, or in its observer."""
        me = get_ident()
        return me in self._telling or any(True for _ in self.stuck(me))

    def renew(self) -> dict[int, Record | None]:
        """Forget all marks after a fork; give what must stay referenced."""
        marks = self.marks
        self.marks = {}
        self._telling = {}
        return marks

    # -- the observer ----------------------------------------------------------------------------------

    def failed(self, row: Row | None, key: object, hook: str, error: BaseException) -> None:
        """Count a hook's error and tell the observer."""
        self._inbox.append([ERROR, (row, hook)])
        self.tell("hook_failed", key, hook, error)

    def tell(self, event: str, key: object, *rest: object) -> None:
        """Tell the observer, whatever it does."""
        if event not in self.tells:
            return
        pool = self._pool()
        if pool is None:
            return
        me = get_ident()
        depth = self._telling.get(me, 0)
        self._telling[me] = depth + 1
        try:
            getattr(type(self.observer), event)(self.observer, pool, key, *rest)
        except Exception as error:  # noqa: BLE001 - an observer must not break what it watches
            self._inbox.append([ERROR, (None, "observer")])
            _log_observer(pool, event, error)
        finally:
            if depth:
                self._telling[me] = depth
            else:
                self._telling.pop(me, None)


def _log_observer(pool: ResourcePool[Any, Any], event: str, error: Exception) -> None:
    try:
        import logging

        logging.getLogger("respool").warning(
            "pool %s: its observer failed in %s", pool.name, event, exc_info=error
        )
    except Exception:  # noqa: BLE001, S110 - a logging handler that raises, or the interpreter's end
        pass
