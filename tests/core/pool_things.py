"""The things that a pool under test holds, with what their hooks will do; and limits, written down.

Shared by the naive model of a pool, `tests.core.pool_model`, and the hooks of the real one, `tests.core.pool_twin`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# What a thing is at.
HELD = "in somebody's hands"
IDLE = "idle"
PENDING = "given back, but not free yet"
STUCK = "given back, and nobody can tell when it's free"
KEPT = "can't be freed"
GONE = "out of the pool"

DRAWN = 0.5  # each thing's share of the jitter


class When:
    """Tells whether what was given back with it is free: "yes", "no", or "error"."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.said_yes = False

    def __call__(self) -> bool:
        """Answer; having said yes, it must never be asked again."""
        assert not self.said_yes, "asked again after it had said yes"
        if self.answer == "error":
            msg = "nobody can tell"
            raise LookupError(msg)
        self.said_yes = self.answer == "yes"
        return self.said_yes


@dataclass(eq=False)
class Thing:
    """A resource, with what its hooks will do to it."""

    key: str
    cost: int
    state: str = HELD
    uses: int = 0
    born: float = 0.0
    since: float = 0.0  # when it was last given back
    old: bool = False  # from before a clear
    forgotten: bool = False  # from before a forget
    when: When | None = None
    reported: bool = False  # its `when` has failed before
    left: bool = False  # taken out or left behind: no hook will end it
    valid: str = "yes"  # or "no", or "error"
    reset: str = "good"  # or "error"
    destroy: str = "good"  # or "error", or "quarantine"


@dataclass
class Limits:
    """The limits in force."""

    max_size: int | None = None
    max_cost: int | None = None
    max_idle: int | None = None
    caps: dict[str, int | None] = field(default_factory=dict)
    idle_timeout: float | None = None
    max_lifetime: float | None = None
    jitter: float = 0.1

    @property
    def timed(self) -> bool:
        """Whether the pool looks at the clock."""
        return self.idle_timeout is not None or self.max_lifetime is not None
