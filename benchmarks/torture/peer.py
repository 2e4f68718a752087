"""What a scenario asks of a pool, whichever it is; an adapter for each pool fills it in.

An adapter uses its pool as the pool's documentation says.  What the pool has no means for is named in `lacks`
with the reason, and the scenarios that need it are "n.a." there: neither a pass nor a failure.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.torture.world import Thing, World

#: What scenarios may need, beyond taking and giving back within a limit.
NEEDS = {
    "discard": "throw away a resource that its holder found broken",
    "destroy": "end a resource of the pool's own accord",
    "validate": "a check before an idle resource is handed out",
    "reset": "a hook on giving back",
    "bare": "give back by naming the resource, not by a lease that knows its pool",
    "close": "a close after which nothing is handed out",
    "keys": "several kinds of resource, with a limit for each",
    "total": "one limit over all keys",
    "object": "hooks that make any object",
}

#: How long an acquire waits where a scenario says nothing else, in seconds: a lost room shows as this time-out.
PATIENCE = 4.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a scenario wants its pool: the limit, seconds to wait (None: for ever), and which features are on.

    ``one_use`` lets the pool destroy each resource that comes back; ``upkeep`` turns on whatever thread of
    its own the pool has; ``per_key`` makes it a pool of several keys.
    """

    size: int = 1
    per_key: int | None = None
    timeout: float | None = PATIENCE
    validate: bool = False
    reset: bool = False
    one_use: bool = False
    upkeep: bool = False


class Peer(abc.ABC):
    """One pool under test."""

    name: ClassVar[str]
    #: Its distribution package; None for what comes with Python.
    package: ClassVar[str | None] = None
    #: What it has no means for, and why.
    lacks: ClassVar[Mapping[str, str]] = {}
    #: What it raises when nothing could be had in time.
    refusals: tuple[type[BaseException], ...] = ()

    def __init__(self, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.build()

    @abc.abstractmethod
    def build(self) -> None:
        """Make the pool."""

    @abc.abstractmethod
    def acquire(self, key: object = None) -> Any:
        """Take a resource, in the form in which the pool gives it out."""

    @abc.abstractmethod
    def release(self, held: Any) -> None:
        """Give it back."""

    @abc.abstractmethod
    def thing(self, held: Any) -> Thing:
        """Tell which resource it is."""

    def discard(self, held: Any) -> None:
        """Throw it away as broken."""
        raise NotImplementedError

    def bare(self, held: Any) -> Any:
        """Give the resource itself, which is what most pools give out."""
        return held

    def release_bare(self, resource: Any) -> None:
        """Give back a resource that may not be this pool's."""
        self.release(resource)

    def close(self) -> None:
        """Close the pool."""
        raise NotImplementedError
