"""A call made from inside a hook, once, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Nested:
    """A hook's inner call, made once, and what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.outcomes: list[object] = []

    def __call__(self, *args: object) -> None:
        """Make the inner call, unless it was made already."""
        if not self.outcomes:
            self.outcomes.append("under way")
            try:
                self.outcomes[0] = self.call()
            except BaseException as error:
                self.outcomes[0] = error
                raise
