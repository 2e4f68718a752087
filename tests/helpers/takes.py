"""The ways to acquire one resource, told apart by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .resources import Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from respool import ResourcePool

ACQUIRES: dict[str, Callable[[ResourcePool[Any, Thing]], Any]] = {
    "lease": lambda pool: pool.lease("A"),
    "lease in time": lambda pool: pool.lease("A", timeout=5),
    "lease at once": lambda pool: pool.lease("A", timeout=0),
    "try_lease": lambda pool: pool.try_lease("A"),
    "acquire": lambda pool: pool.acquire("A"),
    "acquire at once": lambda pool: pool.acquire("A", timeout=0),
    "try_acquire": lambda pool: pool.try_acquire("A"),
    "bound lease": lambda pool: pool.bind("A").lease(),
    "bound try_lease": lambda pool: pool.bind("A").try_lease(),
    "bound acquire": lambda pool: pool.bind("A").acquire(),
    "bound try_acquire": lambda pool: pool.bind("A").try_acquire(),
    "lease_many": lambda pool: pool.lease_many(1, "A"),
}


def take(pool: ResourcePool[Any, Thing], way: str) -> tuple[Thing, Callable[[], object]]:
    """Acquire in one of the ways; give the thing, and what gives it back."""
    held = ACQUIRES[way](pool)
    if isinstance(held, Thing):
        return held, lambda: pool.release(held)
    return held.resources[0] if way == "lease_many" else held.resource, held.release
