"""The page of guarantees: each with a sentence to quote, an example of the opposite, and tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (G\d+): .+?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NUMBERS = [f"G{number}" for number in range(1, 13)]


def names_in(path: Path) -> set[str]:
    """The tests of a file: functions, and classes with or without their methods."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
    return found


def test_every_guarantee_is_there() -> None:
    """Each number has its section, in order."""
    assert list(SECTIONS) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_guarantee_can_be_quoted_and_is_proved(number: str) -> None:
    """A sentence to quote, an example of the opposite, and two tests or more that exist and whose docstrings may name others."""
    text = SECTIONS[number]
    assert re.search(r"^> \S", text, re.MULTILINE)
    assert "\nRuled out: " in text
    ids = re.findall(r"`([\w/]+\.py)::([\w:]+)`", text)
    assert len(ids) >= 2
    missing = [f"{path}::{name}" for path, name in ids if name not in names_in(TESTS / path)]
    assert missing == []
