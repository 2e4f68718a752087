"""docs/behaviours.md says which tests prove which situation; these tests hold it to the truth."""

from __future__ import annotations

import re
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_script() -> ModuleType:
    """Import scripts/behaviours, which has no suffix because it's a command."""
    loader = SourceFileLoader("behaviours_script", str(ROOT / "scripts" / "behaviours"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    return load_script()


def test_page_is_what_the_script_makes(script: ModuleType) -> None:
    """The page names every situation and its tests; no test names an unknown one, none is without a test."""
    data = tomllib.loads(script.DATA.read_text(encoding="utf-8"))
    written = script.PAGE.read_text(encoding="utf-8")
    assert script.problems(data, script.all_tests(), written) == []


def test_every_listed_test_exists() -> None:
    """Each test id on the page is a function or class of the file it names, by another way of looking."""
    page = (ROOT / "docs" / "behaviours.md").read_text(encoding="utf-8")
    listed = re.findall(r"`([\w/]+\.py)::([\w:]+)`", page)
    assert listed
    for file, name in listed:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for part in name.split("::"):
            assert re.search(rf"^\s*(async def|def|class) {part}\b", source, re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("P12: waiters are served in order.", ["P12"]),
        ("P35, P41: twice is once.", ["P35", "P41"]),
        ("P24-P26: create fails.", ["P24", "P25", "P26"]),
        ("G3 and P07: nothing is lost.", ["G3", "P07"]),
        ("R1: a range.", ["R01"]),
        ("Waiters are served in order, see P12: there.", []),
        ("P12 without a colon", []),
        (None, []),
    ],
)
def test_numbers_at_the_head_of_a_docstring(script: ModuleType, docstring: str, expected: list[str]) -> None:
    """Only numbers that a docstring begins with, closed by a colon, count as proved by the test."""
    assert script.numbers(docstring) == expected


def test_what_the_script_complains_of(script: ModuleType) -> None:
    """A row without a test, a number without a row, a page out of date: each is told in a line of its own."""
    data = {
        "pool": {"title": "The pool", "Limits": {"P01": ["asked", "answered"], "P02": ["unproved", "so"]}}
    }
    tests = {"P01": ["tests/x.py::test_a"], "P77": ["tests/x.py::test_b"], "G1": ["tests/x.py::test_c"]}
    told = script.problems(data, tests, "an old page")
    assert [line.split(" ")[0] for line in told] == ["P77", "P02", "docs/behaviours.md"]
