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

#: Comes in the place of a module, and gets a Ctrl-C while it's being loaded, which leaves it to be loaded or not.
INTERRUPTED = """
import os, signal, sys, importlib
os.kill(os.getpid(), signal.SIGINT)
signal.sigtimedwait([], 0)  # any call would do: it comes between two instructions
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
importlib.import_module(__name__)
"""

#: The same, but in a place from which no exception gets any further.  There are such places in the import system itself.
SWALLOWED = """
import os, signal, sys, importlib, weakref
class Lock: pass
lock = Lock()
gone = weakref.ref(lock, lambda _: (os.kill(os.getpid(), signal.SIGINT), signal.sigtimedwait([], 0)))
del lock
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
importlib.import_module(__name__)
"""

#: For the module that tells of signals.
BEFORE_SIGNALS = """
import os
os.kill(os.getpid(), 2)
os.getpid()
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


def interrupted_while_loading(name: str, folder: Path, way: str = INTERRUPTED) -> dict[str, str]:
    """Give settings with which a module gets a Ctrl-C while it's being loaded."""
    (folder / f"{name}.py").write_text(way)
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

    @pytest.mark.parametrize("way", [INTERRUPTED, SWALLOWED])
    @pytest.mark.parametrize("module", ["argparse", "dataclasses", "http", "queue", "rich", "hashlib"])
    def test_interrupted_while_loading(self, entry: str, module: str, way: str, tmp_path: Path) -> None:
        """Ctrl-C while the command is being loaded is one line and 130, as it is later."""
        more = interrupted_while_loading(module, tmp_path, way)
        assert python_m(entry, "get", "/dev/null", **more) == (130, "", "respool: interrupted\n")

    def test_interrupted_before_signals_can_be_handled(self, entry: str, tmp_path: Path) -> None:
        """The same while even the module for signals is being loaded."""
        more = interrupted_while_loading("signal", tmp_path, BEFORE_SIGNALS)
        assert python_m(entry, "get", "/dev/null", **more) == (130, "", "respool: interrupted\n")

    def test_ignored_while_loading(self, entry: str, tmp_path: Path) -> None:
        """Where Ctrl-C is ignored, as in the background of a shell, it stays so."""
        more = interrupted_while_loading("argparse", tmp_path, SWALLOWED)
        done = subprocess.run(
            ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", entry, "--version"],
            capture_output=True,
            text=True,
            timeout=HANG_GUARD,
            check=False,
            env=environment(**more),
        )
        assert (done.returncode, done.stderr) == (0, "")


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
    """The entry loads next to nothing before it looks after Ctrl-C."""
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import respool.cli.__main__\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert sorted(set(done.stdout.split()) - {"__future__"}) == [
        "respool",
        "respool._version",
        "respool.cli",
        "respool.cli.__main__",
        "respool.cli._interrupts",
    ]
