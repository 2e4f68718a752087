"""``respool demo``: the whole of it on one machine, with every byte checked.

This module owns the generated file and what is done with it.  It needs no network: the
server listens on the loopback address, in a process of its own, so that reader and server
don't share an interpreter.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from respool.cli._arguments import size
from respool.cli._child import python_server
from respool.cli._interrupts import Held
from respool.cli._temporary import temporary_directory, temporary_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_BLOCK = 1 << 20
_DEFAULT_SIZE = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "--size",
        metavar="BYTES",
        type=size,
        default=_DEFAULT_SIZE,
        help="size of the generated file, like 64MiB (default: 256MiB, in the folder for temporary files)",
    )
    parser.add_argument("--json", action="store_true", help="tell the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Generate, serve, read, compare."""
    with Held():
        from respool.cli._output import output
        from respool.cli._read import read
        from respool.cli.progress import byte_progress
        from respool.io import Session

    folder = temporary_folder()
    check_room(folder, arguments.size)
    with temporary_directory("respool-demo-", folder) as directory:
        with byte_progress("generating", arguments.size) as advance:
            expected = generate(Path(directory, "demo.bin"), arguments.size, advance)
        # Directly, whatever proxy the environment names: a proxy can't reach this machine's loopback.
        with served(directory) as url, output(None) as sink, Session(proxy="") as session:
            report = read(session, f"{url}demo.bin", sink, expected=expected)
    report.show(as_json=arguments.json)
    return 0


def check_room(folder: str, size: int) -> None:
    """Fail at once where a file wouldn't fit.

    Parameters
    ----------
    folder : str
        Where it's to be.
    size : int
        Its bytes.

    Raises
    ------
    OSError
        ENOSPC, with the folder, and what is free there.
    """
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    # Some file systems have no size to tell; there it's tried.
    if status.f_blocks and size > free:
        raise OSError(
            errno.ENOSPC,
            f"a file of {size:,} bytes doesn't fit, {free:,} are free: "
            "ask for a smaller --size, or for another folder by TMPDIR",
            folder,
        )


def generate(path: Path, size: int, advance: Callable[[int], object] = lambda _: None) -> str:
    """Write a file of pseudo-random bytes, the same each time, and give its SHA-256 in hexadecimal.

    The digest is of what was generated, not of what is read back.

    Raises
    ------
    OSError
        Writing failed; with the file's name.
    """
    hasher = hashlib.sha256()
    try:
        with path.open("wb") as file:
            for start in range(0, size, _BLOCK):
                block = random.Random(start).randbytes(min(_BLOCK, size - start))  # noqa: S311 - no secret
                hasher.update(block)
                file.write(block)
                advance(len(block))
    except OSError as error:
        # Only that of opening it has the name by itself.
        raise OSError(error.errno, error.strerror, str(path)) from error
    return hasher.hexdigest()


def served(directory: str) -> AbstractContextManager[str]:
    """Serve a directory from another process for the length of a block; give the URL."""
    return python_server("the demo's own server", "respool.cli", "serve", "--until-stdin-closes", directory)
