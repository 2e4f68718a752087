"""The manual's reference pages: none of the public names is left out."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

API = Path(__file__).resolve().parents[2] / "docs" / "api"


@pytest.mark.parametrize("package", ["io", "curl", "buffers"])
def test_every_public_name_is_in_the_reference(package: str) -> None:
    """Each name that a package exports has its entry on the package's page."""
    page = (API / f"{package}.md").read_text("utf-8")
    entries = re.findall(r"^\.\. auto(?:class|exception|function|data):: ([\w.]+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(import_module(f"respool.{package}").__all__)
