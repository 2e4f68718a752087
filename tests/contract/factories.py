"""The pools that the contract suite runs over, and how each names a kind of resource.

A pool that is new to the package gets a `Case` here; the tests know nothing else of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from respool import PoolLimits, ResourcePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

    what: str = ""
    """Which of several cases of a class."""

    key_name: str = "key"
    """What the parameter for a key is called."""

    resource_name: str = "resource"
    """What the parameter for a resource is called."""

    fixture: str = ""
    """A fixture of the session that the pool's world needs."""

    world: Callable[[], AbstractContextManager[tuple[Key, ...]]] | None = None
    """What has to be there while a pool is tested, where `keys` can't be known before: gives those in their place."""

    creates_after_fork: bool = True
    """Whether a forked child can make resources; False where what they're of belongs to the parent for good."""

    def __str__(self) -> str:
        return f"{self.name} {self.what}".strip()


def resource_pool(**options: Any) -> Any:
    """Make a pool of plain objects."""
    return ResourcePool(lambda key: object(), lambda key, thing: None, **options)


def hooked_pool(**options: Any) -> Any:
    """Make a pool that has all hooks, and so goes the slow ways."""

    class Thing:
        """A resource."""

    return ResourcePool(
        lambda key: Thing(),
        lambda key, thing: None,
        lambda key, thing: True,
        reset=lambda key, thing: None,
        cost=lambda key: 3,
        **options,
    )


def buffer_pool(**options: Any) -> Any:
    """Make a pool of small host buffers."""
    from respool.buffers import BufferPool

    return BufferPool(buffer_size=4096, **options)


def face(**options: Any) -> Any:
    """Make another face, for another kind of memory, on a pool of buffers."""
    from respool.buffers import HostAllocator

    return buffer_pool(**options).share(HostAllocator(), buffer_size=100)


def easy_handle_pool(**options: Any) -> Any:
    """Make a pool of libcurl handles, which no test here lets connect."""
    from respool.curl import EasyHandlePool

    return EasyHandlePool(**options)


def cuda_event_pool(**options: Any) -> Any:
    """Make a pool of CUDA events."""
    from respool.cuda import CudaEventPool

    return CudaEventPool(**options)


@contextmanager
def cuda_contexts() -> Iterator[tuple[Key, ...]]:
    """Make three contexts on the fake driver; give their ids.  The last is current on this thread."""
    from respool.cuda import _driver, context
    from tests.helpers.cuda_driver import create_context

    driver = _driver.load()
    made, ids = [], []
    for _ in range(3):
        made.append(create_context(driver))
        ids.append((context.current_id(),))
    yield tuple(ids)
    for one in reversed(made):
        driver.checked("cuCtxDestroy", driver.api.cuCtxDestroy, one)


HOSTS = tuple((f"http://{letter}.invalid/",) for letter in "abc")
SIZES = ((5000,), (None,), (20_000,))

CASES = [
    Case("ResourcePool", resource_pool, ((None,), ("b",), (3,))),
    Case("ResourcePool", hooked_pool, ((None,), ("b",), (3,)), "with all hooks"),
    Case("BufferPool", buffer_pool, ((),), "of one size", "nbytes", "buffer"),
    Case("BufferPool", buffer_pool, SIZES, "of several sizes", "nbytes", "buffer"),
    Case("BufferPool", face, SIZES, "shared", "nbytes", "buffer"),
    Case("EasyHandlePool", easy_handle_pool, HOSTS, "", "key", "handle"),
    Case(
        "CudaEventPool",
        cuda_event_pool,
        (("a",), ("b",), ("c",)),
        "",
        "context",
        "event",
        "clean_fake",
        cuda_contexts,
        creates_after_fork=False,
    ),
]

KEYED = [case for case in CASES if len(case.keys) > 1]


class Subject:
    """A pool of one case, under test: makes pools with limits, and closes them at the end."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._world = ExitStack()
        self.keys = case.keys if case.world is None else self._world.enter_context(case.world())
        self.key = self.keys[0]
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
        self._pools.clear()
        self._world.close()
