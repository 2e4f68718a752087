"""The Python code of README and of the manual passes a strict type checker as it stands there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import respool

from .test_readme import BLOCK, ROOT, blocks_of

#: What has no types of its own, and whose users know it.
CONFIGURATION = """
[mypy]
strict = true

[mypy-cuda.*]
ignore_missing_imports = true
"""


def module_of(page: Path) -> str:
    """The blocks of a page as one module, each line at its number on the page; `url` is there, as on the pages."""
    blocks = blocks_of(str(page.relative_to(ROOT)))
    lines = [""] * (page.read_text("utf-8").count("\n") + 1)
    for block in blocks:
        for number, line in enumerate(block.splitlines()):
            if line:
                lines[number] = line
    assert lines[0] == "", "the first line of a page is its title"
    return "\n".join(["url: str = ''", *lines[1:], ""])


def check(folder: Path, modules: dict[str, str]) -> str:
    """Check these modules with mypy; what it has to say."""
    (folder / "mypy.ini").write_text(CONFIGURATION)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source, "utf-8")
    package = Path(respool.__file__).parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MYPY")}
    # An installed package is found as such.
    if "site-packages" not in package.parts:
        environment["MYPYPATH"] = str(package)
    options = ["--config-file=mypy.ini", f"--cache-dir={os.devnull}", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in modules)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mypy", "pycurl-stubs")),
    reason="needs the packages of the group types",
)
def test_the_code_of_all_pages_passes(tmp_path: Path) -> None:
    """All pages with Python code pass mypy --strict; a mistake put into one of them doesn't."""
    pages = [
        page
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        if BLOCK.search(page.read_text("utf-8"))
    ]
    assert len(pages) > 10
    modules = {f"page_{page.stem.replace('-', '_')}": module_of(page) for page in pages}
    assert len(modules) == len(pages)
    modules["mistaken"] = modules["page_reading"] + "array.append(head)\n"
    complaints = check(tmp_path, modules).splitlines()
    assert [line for line in complaints if not line.startswith("mistaken.py:")] == []
    assert any("append" in line for line in complaints)
