"""The pools that the contract suite runs over, and how each names a kind of resource.

A pool that is new to the package gets a `Case` here; the tests know nothing else of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from respool import PoolLimits, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[Any, ...]
"""What names a kind in a call, as positional arguments: ``pool.lease(*key)``; none for pools of one kind."""


@dataclass(frozen=True)
class Case:
    """One class of pools under the contract."""

    name: str
    """The class, as its repr names it."""

    make: Callable[..., Any]
    """Make a pool, with the keywords ``limits``, ``name``, ``observer`` and ``track_leases``."""

    keys: tuple[Key, ...]
    """Kinds to ask for: one, or at least three."""


def resource_pool(**options: Any) -> Any:
    """Make a pool of plain objects."""
    return ResourcePool(lambda key: object(), lambda key, thing: None, **options)


def buffer_pool(**options: Any) -> Any:
    """Make a pool of small host buffers."""
    from respool.buffers import BufferPool

    return BufferPool(buffer_size=4096, **options)


def easy_handle_pool(**options: Any) -> Any:
    """Make a pool of libcurl handles, which no test here lets connect."""
    from respool.curl import EasyHandlePool

    return EasyHandlePool(**options)


HOSTS = tuple((f"http://{letter}.invalid/",) for letter in "abc")

CASES = [
    Case("ResourcePool", resource_pool, ((None,), ("b",), (3,))),
    Case("BufferPool", buffer_pool, ((),)),
    Case("EasyHandlePool", easy_handle_pool, HOSTS),
]

KEYED = [case for case in CASES if len(case.keys) > 1]


class Subject:
    """A pool of one case, under test: makes pools with limits, and closes them at the end."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.keys = case.keys
        self.key = case.keys[0]
        self._pools: list[Any] = []

    def make(
        self, *, name: str = "tested", observer: Any = None, track_leases: bool = False, **limits: Any
    ) -> Any:
        """Make a pool; keywords that are none of the options are limits."""
        options = {"name": name, "observer": observer, "track_leases": track_leases}
        pool = self.case.make(limits=PoolLimits(**limits), **options)
        self._pools.append(pool)
        return pool

    def forget(self) -> None:
        """Let go of the pools made so far without closing them."""
        self._pools.clear()

    def close(self) -> None:
        """Close what was made, without waiting."""
        for pool in self._pools:
            with pool:
                pass
