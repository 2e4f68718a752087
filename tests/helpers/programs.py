"""Python programs run in an interpreter of their own, from start to exit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

import respool

from .threads import HANG_GUARD


class Ended(NamedTuple):
    """How a program ended, and what it had printed."""

    code: int
    printed: str
    errors: str


def run_program(source: str, *options: str) -> Ended:
    """Run a program with this very copy of respool; ``options`` are the interpreter's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(Path(respool.__file__).parent.parent)
    command = [sys.executable, *options, "-c", textwrap.dedent(source)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: PLW1510 - the caller looks at the exit status
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_GUARD
        )
    return Ended(done.returncode, done.stdout, done.stderr)


def printed_by(source: str, *options: str) -> list[str]:
    """Run a program that must end well and silently; the lines that it printed."""
    ended = run_program(source, *options)
    assert ended.errors == "", f"the program wrote to stderr:\n{ended.errors}"
    assert ended.code == 0, f"the program ended with {ended.code}, after printing:\n{ended.printed}"
    return ended.printed.splitlines()
