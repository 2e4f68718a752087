"""``respool demo`` in a process where the pools' hooks fail now and then, and a signal handler uses the pools meanwhile.

Run as ``python -m tests.cli.unruly_demo ARGUMENTS``.  On stderr it tells, as JSON, how often each kind of trouble came.
Only such failures as a pool must make up for: a handle or buffer that is found to be no good, or whose check, reset or
end fails.  What `create` raises is the caller's to see.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import respool.pool
from respool import PoolClosedError, PoolReentrancyError, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PERIOD = 0.002
"""Seconds from one signal to the next."""

came: Counter[str] = Counter()
keys: dict[ResourcePool[Any, Any], Any] = {}


class Now:
    """Comes every so-manieth time."""

    def __init__(self, kind: str, every: int) -> None:
        self.kind = kind
        self.every = every
        self.calls = itertools.count(1)

    def __call__(self) -> bool:
        """Tell whether it comes now, and count it."""
        it_does = next(self.calls) % self.every == 0
        came[self.kind] += it_does
        return it_does


def unruly(name: str, hook: Callable[[Any, Any], object] | None) -> Callable[[Any, Any], object]:
    """Make a hook do its work and then fail now and then; a `validate` says no now and then, too."""
    fails, says_no = Now(f"{name} raises", 5), Now(f"{name} says no", 7)

    def call(key: Any, resource: Any) -> object:
        answer = hook is None or hook(key, resource)
        if fails():
            raise OSError(f"{name} fails")
        return answer and not (name == "validate" and says_no())

    return call


breaks = Now("discard in a signal handler", 10)


class Unruly(ResourcePool[Any, Any]):
    """A pool whose hooks fail, and which tells of which key it has something."""

    def __init__(self, create: Any, destroy: Any = None, validate: Any = None, **options: Any) -> None:
        def noted(key: Any) -> Any:
            keys[self] = key
            return create(key)

        options["reset"] = unruly("reset", options.get("reset"))
        super().__init__(noted, unruly("destroy", destroy), unruly("validate", validate), **options)


def use_pools(number: int, frame: FrameType | None) -> None:
    """Take something and give it back, in a signal handler, wherever the main thread is."""
    del number, frame
    for pool, key in list(keys.items()):
        try:
            lease = pool.try_lease(key)
        except PoolReentrancyError:
            came["signal inside the pool"] += 1
        except PoolClosedError:
            came["signal after close"] += 1
        else:
            came["signal"] += 1
            if lease is not None:
                (lease.discard if breaks() else lease.release)()


if __name__ == "__main__":
    respool.pool.ResourcePool = Unruly  # type: ignore[misc]  # before the modules that make pools are loaded
    signal.signal(signal.SIGALRM, use_pools)
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
    from respool.cli.__main__ import main

    code = main()
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stderr.write(json.dumps(came))
    sys.exit(code)
