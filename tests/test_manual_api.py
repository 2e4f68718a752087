"""The API pages of the manual: every public name has its entry there, and so has each public method of a class.

What a page leaves out is not in `help()` alone: readers of the manual would never learn of it. The pages are read as
they are written, which needs no tool; where Sphinx is installed they are built as well, and its index is looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "respool": "core",
    "respool.buffers": "buffers",
    "respool.cuda": "cuda",
    "respool.curl": "curl",
    "respool.io": "io",
}
DIRECTIVE = re.compile(r"^\.\. auto(?P<kind>\w+):: (?P<name>\w+)\n(?P<options>(?:   :.*\n)*)", re.MULTILINE)
INHERITED = re.compile(r"^   :inherited-members:(.*)$", re.MULTILINE)
NAMES = [(package, name) for package in PAGES for name in import_module(package).__all__]


def directives(package: str) -> dict[str, tuple[str, str]]:
    """What the page of a package asks Sphinx for: the kind of each name, and its options."""
    text = (ROOT / "docs" / "api" / f"{PAGES[package]}.md").read_text(encoding="utf-8")
    return {found["name"]: (found["kind"], found["options"]) for found in DIRECTIVE.finditer(text)}


def ours(cls: type) -> list[type]:
    """The classes of this package among a class and its bases."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] == "respool"]


def members(classes: list[type]) -> set[str]:
    """The public methods and properties that these classes define."""
    return {
        name
        for cls in classes
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and (callable(member) or isinstance(member, property | classmethod | staticmethod))
    }


def shown(cls: type, options: str) -> set[str]:
    """The members that a directive with these options shows: the class's own, or its bases' up to the one named."""
    found = INHERITED.search(options)
    if found is None:
        return members([cls])
    stops = found[1].split()
    return members([base for base in ours(cls) if base.__name__ not in stops])


def public(package: str, name: str) -> Any:
    """A public name, by the way a user gets it."""
    return getattr(import_module(package), name)


def test_there_are_names_with_inherited_members() -> None:
    """Classes whose methods come from private bases exist: else this file would prove nothing."""
    pool = public("respool", "ResourcePool")
    assert {"close", "stats", "resize"} <= members(ours(pool)) - members([pool])


@pytest.mark.parametrize("package", PAGES)
def test_every_public_name_has_an_entry(package: str) -> None:
    """The page of a package lists exactly its public names."""
    assert sorted(directives(package)) == sorted(public(package, "__all__"))


@pytest.mark.parametrize("package", PAGES)
def test_every_public_method_has_an_entry(package: str) -> None:
    """No public method or property of a public class is left out, wherever in the package it is defined."""
    for name, (kind, options) in directives(package).items():
        cls = public(package, name)
        assert isinstance(cls, type) == (kind in {"class", "exception"}), name
        if isinstance(cls, type):
            assert members(ours(cls)) - shown(cls, options) == set(), name


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("sphinx", "myst_parser", "numpydoc")),
    reason="needs the packages of the group docs",
)
def test_the_built_index_has_them_all(tmp_path: Path) -> None:
    """Sphinx's index, by which links find their targets, has every public name and each of its public methods."""
    source, configuration = ROOT / "docs" / "api", ROOT / "docs"
    options = [
        "--quiet",
        "--fail-on-warning",
        "-b",
        "html",
        "-D",
        "html_theme=basic",
        "-c",
        str(configuration),
    ]
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(tmp_path)], check=True)
    # Four lines of head, then one line an entry: name, kind, priority, address, title.
    packed = (tmp_path / "objects.inv").read_bytes().split(b"\n", 4)[4]
    index = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    wanted = {f"{package}.{name}" for package, name in NAMES}
    for package, name in NAMES:
        cls = public(package, name)
        if isinstance(cls, type):
            wanted |= {f"{package}.{name}.{member}" for member in members(ours(cls))}
    assert wanted - index == set()
