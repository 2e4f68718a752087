"""No loop inside a `try` or `with` whose handler an interrupt must not pass by (G3).

From Python 3.12 on the compiler repeats a loop's condition at its end, and the jump back that stands there, where interrupts
are let in, belongs to no ``try`` around the loop.  So an interrupt that comes with it passes by ``except`` and
``finally``: with the pool's lock taken, it stayed taken.  A loop in a function of its own is safe: there the interrupt
comes out of a call, which is inside the ``try``.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import respool

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = sorted(Path(respool.__path__[0]).glob("*.py"))

#: Functions in which it does no harm, with why.
HARMLESS = {
    "_take_in_line": "only the observer isn't told of the wait; the finalisers of the guards give back the rest",
    "_take_many_in_line": "as for one; take_many has a handler around the call",
    "_act": "act calls it again",
    "adopt": "the finalisers of the guards give back what it has",
    "_prefill_one": "the finalisers of the guards give back what it has",
    "_end": "what has not been given back is still held, as after an interrupt anywhere else in it",
}


def loops_in_try(tree: ast.AST) -> Iterator[str]:
    """Give the names of functions that have a loop with a condition inside a ``try`` or ``with``."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside = [
                node
                for block in ast.walk(function)
                if isinstance(block, (ast.Try, ast.With))
                for statement in block.body
                for node in ast.walk(statement)
            ]
            if any(
                isinstance(node, ast.While) and not isinstance(node.test, ast.Constant) for node in inside
            ):
                yield function.name


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_no_loop_where_a_handler_is_needed(path: Path) -> None:
    """G3: an interrupt at a loop's jump back passes by no handler that it must not pass by."""
    assert set(loops_in_try(ast.parse(path.read_text(encoding="utf-8")))) <= HARMLESS.keys()


def test_what_is_allowed_is_there() -> None:
    """G3: each function for which a reason is given has such a loop still."""
    found = {name for path in CORE for name in loops_in_try(ast.parse(path.read_text(encoding="utf-8")))}
    assert found == HARMLESS.keys()
