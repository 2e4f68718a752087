"""scripts/mutants says how sharp the model test is; what it would break must be there to be broken."""

from __future__ import annotations

import ast
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script() -> Any:
    """Import scripts/mutants, which has no suffix because it's a command."""
    loader = SourceFileLoader("mutants_script", str(ROOT / "scripts" / "mutants"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


SCRIPT = load_script()


@pytest.mark.parametrize("mutant", SCRIPT.MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutant_can_be_made(mutant: Any) -> None:
    """Each change is still possible in one place of the accounting, and changes what the code does, not only how it's written."""
    _, source, changed = SCRIPT.broken(mutant)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert SCRIPT.line_of(source, mutant) <= source.count("\n")


def test_a_change_that_cannot_be_made_is_told() -> None:
    """A text that's no longer found, or found more than once, is an error, not a mutant that survives."""
    for search in ("no such text in there", "self"):
        with pytest.raises(ValueError, match="not found once"):
            SCRIPT.broken(SCRIPT.Mutant("nothing", search, ""))
