"""The C++ rows of the benches of events: the program that measures them, compiled when it's needed.

This module owns finding a compiler, and the conversation with the program; what that does is in ``events.cpp``, beside
this file.  Nothing of CUDA is needed to compile it, and nothing stays of it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import timeit
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from respool.cli._temporary import temporary_directory, temporary_folder
from respool.cli.bench._measure import Contender

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import IO

_SOURCE = Path(__file__).with_name("events.cpp")
#: Seconds that compiling may take.
_PATIENCE = 120.0


class NativeError(Exception):
    """There are no C++ rows; says why in a line."""


class Native:
    """The running program."""

    def __init__(self, process: subprocess.Popen[str], compiler: str) -> None:
        self._process = process
        #: What compiled it.
        self.compiler = compiler

    def seconds(self, way: str, *, records: bool, threads: int = 1, count: int = 1) -> float:
        """Let each of so many threads do it `count` times; give the seconds from the first one's begin to the last one's end.

        Parameters
        ----------
        way : str
            ``create``: an event is created and destroyed each time.  ``pool``: it's of a pool with a mutex.
        records : bool
            Whether it's recorded and waited for as well.
        threads, count : int
            How many threads, and how often each.
        """
        return float(self._ask(f"{way} {int(records)} {threads} {count}"))

    def live(self, count: int) -> None:
        """Let so many events exist besides."""
        self._ask(f"live {count}")

    def _ask(self, line: str) -> str:
        try:
            asking = cast("IO[str]", self._process.stdin)
            asking.write(line + "\n")
            asking.flush()
        except OSError:
            pass  # it has ended; what it said is read below
        answer = self.answer()
        if not answer or self._process.poll():
            raise NativeError(answer or "the program has ended")
        try:
            float(answer)
        except ValueError:
            raise NativeError(answer) from None
        return answer

    def answer(self) -> str:
        """Read a line."""
        return cast("IO[str]", self._process.stdout).readline().strip()


@contextmanager
def native(device: int) -> Generator[Native]:
    """Compile and run the program for the length of a block.

    Raises
    ------
    NativeError
        There's no compiler, it can't compile this, or the program can't use the device.
    """
    with temporary_directory("respool-bench-", temporary_folder()) as folder:
        program = Path(folder) / "events"
        compiler = _compile(program)
        process = subprocess.Popen(  # noqa: S603 - compiled just now
            [program, str(device)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C on the terminal is for this process alone
        )
        try:
            running = Native(process, compiler)
            said = running.answer()
            if said != "ready":
                raise NativeError(said or "the program has ended")
            yield running
        finally:
            process.kill()
            for stream in (process.stdin, process.stdout):
                try:
                    cast("IO[str]", stream).close()
                except OSError:
                    pass  # a question that nobody has read
            process.wait()


def _commands(program: Path) -> Sequence[list[str]]:
    """Give the commands that may compile the program, the best first."""
    flags = ["-std=c++17", "-O2", "-o", str(program), str(_SOURCE)]
    found: list[list[str]] = []
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        found.append([nvcc, "-Xcompiler", "-pthread", *flags, "-ldl"])
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        compiler = shutil.which(name) if name else None
        if compiler is not None:
            found.append([compiler, "-pthread", *flags, "-ldl"])
    return found


def _compile(program: Path) -> str:
    """Compile with whatever can; give the compiler's name."""
    why = "no C++ compiler: neither nvcc nor c++, g++, clang++ is on PATH"
    for command in _commands(program):
        name = Path(command[0]).name
        try:
            done = subprocess.run(  # noqa: S603 - a compiler that was looked for
                command, check=False, capture_output=True, text=True, timeout=_PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            why = f"{name}: {error}"
            continue
        if not done.returncode and program.exists():
            return name
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        why = f"{name}: {lines[0].strip() if lines else f'exit status {done.returncode}'}"
    raise NativeError(why)


class _Timer(timeit.Timer):
    """Measures in the program."""

    def __init__(self, contender: NativeContender) -> None:
        super().__init__()
        self._contender = contender

    def timeit(self, number: int = 1) -> float:
        """Give the seconds of so many turns."""
        one = self._contender
        return one.native.seconds(one.way, records=one.records, count=number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NativeContender(Contender):
    """One thing to measure that the program does."""

    native: Native
    way: str
    records: bool

    def timer(self) -> timeit.Timer:
        """Give what asks the program."""
        return _Timer(self)
