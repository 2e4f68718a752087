"""What the process does to all pools: fork and exit.

Pools are known here weakly.  The handlers are installed when the first pool is made, so importing the
package has no effect on the process.
"""

from __future__ import annotations

import atexit
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

from respool import _reaper

if TYPE_CHECKING:
    from respool._lifecycle import Core

__all__ = ["exiting", "register"]

_pools: dict[int, weakref.ref[Core]] = {}
_installed = False
_state = {"exiting": False}


def register(core: Core) -> None:
    """Tell a pool about forks and exit from now on."""
    global _installed  # noqa: PLW0603 - once for the process
    if not _installed:
        _installed = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork_in_child)
    number = id(core)
    _pools[number] = weakref.ref(core, partial(_forget, number))


def _forget(number: int, _: object) -> None:
    _pools.pop(number, None)


def exiting(state: dict[str, bool] = _state) -> bool:
    """Tell whether the interpreter is on its way out: also to a finaliser that runs after this module's names are gone."""
    return state["exiting"]


def _living() -> list[Core]:
    return [core for reference in list(_pools.values()) if (core := reference()) is not None]


def _at_exit() -> None:
    _state["exiting"] = True
    for core in _living():
        core.at_interpreter_exit()


def _after_fork_in_child() -> None:
    _reaper.after_fork_in_child()
    for core in _living():
        core.after_fork_in_child()
