"""The ways into the command line, and Ctrl-C before it has got anywhere."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import respool as package
from tests.helpers.threads import HANG_GUARD

from .commands import Ended, environment

if TYPE_CHECKING:
    from pathlib import Path

#: Comes in the place of a module, and gets a Ctrl-C while it's being loaded.
INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
signal.sigtimedwait([], 0)  # any call would do: it comes between two instructions
raise AssertionError("no interrupt")
"""


def python_m(module: str, *arguments: str, **options: str) -> Ended:
    """Run ``python -m MODULE``."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
        env=environment(**options),
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def interrupted_while_loading(name: str, folder: Path) -> dict[str, str]:
    """Give settings with which a module gets a Ctrl-C while it's being loaded."""
    (folder / f"{name}.py").write_text(INTERRUPTED)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("entry", ["respool", "respool.cli"])
class TestEntries:
    """``python -m`` with the package's name, and with that of the part."""

    def test_version(self, entry: str) -> None:
        """Both are the command."""
        assert python_m(entry, "--version") == (0, f"respool {package.__version__}\n", "")

    def test_usage(self, entry: str) -> None:
        """Both call themselves respool, and hand on the exit code."""
        code, out, err = python_m(entry, "get")
        assert (code, out) == (2, "")
        assert err.startswith("respool: ")
        assert "`respool get --help`" in err

    @pytest.mark.parametrize("module", ["argparse", "http", "rich", "hashlib"])
    def test_interrupted_while_loading(self, entry: str, module: str, tmp_path: Path) -> None:
        """Ctrl-C while the command is being loaded is one line and 130, as it is later."""
        more = interrupted_while_loading(module, tmp_path)
        assert python_m(entry, "get", "/dev/null", **more) == (130, "", "respool: interrupted\n")


def test_interrupted_without_stderr(tmp_path: Path) -> None:
    """Where there's no stderr, the exit code tells."""
    more = interrupted_while_loading("argparse", tmp_path)
    command = [sys.executable, "-m", "respool.cli", "--version"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command],
        capture_output=True,
        timeout=HANG_GUARD,
        check=False,
        env=environment(**more),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_importing_the_entry_runs_nothing() -> None:
    """Tools that import every module of a package don't run it."""
    done = subprocess.run(
        [sys.executable, "-c", "import respool.__main__, respool.cli.__main__"],
        capture_output=True,
        timeout=HANG_GUARD,
        check=True,
        env=environment(),
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_entry_loads_nothing_first() -> None:
    """Beyond the package itself, the entry loads no module before it looks after Ctrl-C."""
    program = (
        "import sys, respool\n"
        "before = set(sys.modules)\n"
        "import respool.cli.__main__\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.split() == ["respool.cli", "respool.cli.__main__"]
