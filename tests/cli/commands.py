"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.helpers.threads import HANG_GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Give an environment without settings of the machine's owner that would change a command's way."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RESPOOL_") and not name.lower().endswith("_proxy")
    }
    return {**kept, "PYTHONWARNINGS": "error", "NO_COLOR": "1", **more}


#: What of an environment sends a client elsewhere: nobody listens there.
PROXIED = dict.fromkeys(
    ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY", "RESPOOL_PROXY"),
    "http://127.0.0.1:1",
)


def command(*arguments: str | os.PathLike[str]) -> list[str]:
    """Give the command line that runs respool."""
    return [sys.executable, "-m", "respool.cli", *map(os.fspath, arguments)]


def respool(*arguments: str | os.PathLike[str], **options: Any) -> Ended:
    """Run a command to its end."""
    options.setdefault("env", environment())
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=HANG_GUARD, check=False, **options
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@contextmanager
def running(*arguments: str | os.PathLike[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a command for the length of a block; it's killed if it's still there at the end."""
    options.setdefault("env", environment())
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("text", True)
    with subprocess.Popen(command(*arguments), **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a running command's end."""
    out, err = process.communicate(timeout=HANG_GUARD)
    return Ended(process.returncode, out, err)


@contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``respool serve`` for the length of a block; give its URL and process."""
    with running("serve", directory, *arguments) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process


def names(directory: Path) -> list[str]:
    """Give the names of what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def one_line(text: str) -> str:
    """Check that an error is one line of the usual form, and give it without the name in front."""
    assert re.fullmatch(r"respool: [^\n]+\n", text), text
    return text[9:-1]
