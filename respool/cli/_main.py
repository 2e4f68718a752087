"""The command line itself: arguments in, exit code out.

This module owns what all commands share: how they're found, and how an error or a request
to terminate ends them; Ctrl-C is for `__main__`, which is there earlier.  What a command does
is in the module of its name.

Exit codes: 0 done, 1 an error, told in one line on stderr, 2 wrong usage, 130 Ctrl-C, 143
(or 129) the signal SIGTERM (or SIGHUP).
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from respool._version import __version__
from respool.cli._errors import CommandError
from respool.cli._interrupts import Held
from respool.cli._standard import check_stdout, standard_streams

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import FrameType

#: Each is the module of its name.
_COMMANDS = {
    "get": "read a file or URL, whole or a range of it",
    "demo": "read a generated file from a server on this machine, and check every byte",
    "serve": "serve a directory's files over HTTP, with ranges",
    "bench": "measure respool side by side with what one would use instead",
}


class Terminated(BaseException):
    """A signal asked the process to end; like KeyboardInterrupt, not for `except Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(argv: Sequence[str] | None) -> int:
    """Run the command line, and return the exit code; KeyboardInterrupt is the caller's."""
    with standard_streams():
        return _ended(argv)


def _ended(argv: Sequence[str] | None) -> int:
    """Run a command, and turn however it ends into an exit code and at most one line."""
    try:
        with _quiet_log(), _signals_as_exceptions():
            code = _run(argv)
            # Here, and not at the interpreter's exit: a full disk or closed pipe behind
            # stdout is an error like any other.
            sys.stdout.flush()
    except Terminated as stop:
        _say(f"ended by {signal.Signals(stop.number).name}")
        return 128 + stop.number
    except BrokenPipeError:
        _give_up_stdout()
        _say("nobody reads the output any more")
        return 1
    except Exception as error:  # noqa: BLE001 - the last line of defence: whatever it is, one line and 1
        if sys.flags.dev_mode:
            traceback.print_exc()
        _say(_one_line(error))
        _give_up_stdout()
        return 1
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        with Held():  # the commands are loaded
            parser = _parser()
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has said what it had to say
        return stop.code if isinstance(stop.code, int) else 2
    # Every command tells something in the end.
    check_stdout()
    code: int = arguments.run(arguments)
    return code


class _Parser(argparse.ArgumentParser):
    """Tells a usage error in one line, like any other error, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"respool: {message} (see `{self.prog} --help`)\n")

    def _print_message(self, message: str, file: Any = None) -> None:  # noqa: ANN401 - whatever has write()
        """Write help to stdout without letting an error pass, as the base class does."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class _CommandParser(_Parser):
    """Of one command, which tells all that's wrong with its arguments, and names its own help for it."""

    def parse_known_args(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - handed on; it has several forms
        found, rest = super().parse_known_args(*args, **options)
        # Left to the caller, they'd be an error of the parser of all commands.
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="respool", description="Pooled reading of remote and local files.")
    parser.add_argument("--version", action="version", version=f"respool {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_CommandParser)
    for name, summary in _COMMANDS.items():
        module = importlib.import_module(f"respool.cli.{name}")
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


@contextmanager
def _quiet_log() -> Generator[None]:
    """Keep what the pools log off the terminal, unless in development mode (``python -X dev``).

    An interrupt in the middle of a hook is logged with its traceback, which is right for a
    program that has a log.  Here an error is one line, and the counts are in the report.
    """
    import logging

    logger, handler = logging.getLogger("respool"), logging.NullHandler()
    if not sys.flags.dev_mode:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _signals_as_exceptions() -> Generator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that temporary files and servers go away.

    Only where they'd kill the process: one who ignores or handles them (nohup, an embedding
    program) keeps that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in changed:
        signal.signal(number, _raise_terminated)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise Terminated(number)


def _say(text: str) -> None:
    try:
        print(f"respool: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody there to be told; the exit code tells


def _one_line(error: Exception) -> str:
    """Tell an error in one line, a file's error with the file's name first, as other tools do."""
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
        return f"{where}{error.strerror}"
    text = " ".join(str(error).split())
    known = isinstance(error, CommandError | OSError | ValueError | ImportError | MemoryError | _pool_error())
    return text if known and text else f"{type(error).__name__}: {text}"


def _pool_error() -> type[Exception]:
    from respool.errors import PoolError

    return PoolError


def _give_up_stdout() -> None:
    """Keep the interpreter from writing the rest of stdout at exit, where it would fail again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):
            pass  # no real stdout: nothing will be written at exit either
