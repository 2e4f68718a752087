"""The pools' background threads, as a test sees them: by their names."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from respool import ResourcePool

REAPER = "respool-reaper"


def named(name: str) -> list[threading.Thread]:
    """Return the threads of this name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


def reapers() -> list[threading.Thread]:
    """Return the reaper threads; one that ends is in the list for a moment still."""
    return named(REAPER)


def destroyers(pool: ResourcePool[Any, Any]) -> list[threading.Thread]:
    """Return the threads that destroy for this pool, whose name no other one may have."""
    return named(f"respool-destroyer-{pool.name}")


def wait_ended(threads: Callable[[], list[threading.Thread]]) -> None:
    """Wait until there are no such threads any more."""
    wait_until(lambda: not threads(), f"the end of {threads()}")


def no_new_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread of a pool be started, as if there were too many."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("respool-"):
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
