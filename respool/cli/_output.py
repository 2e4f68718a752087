"""Where the bytes of ``respool get``, and other results, go: a file, replaced in one step, or a stream, or nowhere.

This module owns that a regular file is either the old one or the complete new one,
whatever happens in between.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from respool.cli._interrupts import LeftOver

if TYPE_CHECKING:
    from collections.abc import Generator

_STDOUT = 1


class Sink(Protocol):
    """Takes the bytes in order."""

    def write(self, block: memoryview, /) -> None:
        """Take all of a block, or raise OSError."""


class _Nowhere:
    def write(self, block: memoryview, /) -> None:
        pass


class _Descriptor:
    """Writes to a file descriptor, and names the file in errors."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name

    def write(self, block: memoryview, /) -> None:
        try:
            while block:
                block = block[os.write(self._descriptor, block) :]
        except OSError as error:
            # BrokenPipeError and the like are subclasses: the errno picks them.
            raise OSError(error.errno, error.strerror, self._name) from error


@contextmanager
def output(name: str | None) -> Generator[Sink]:
    """Open the destination named by ``-o`` for the length of a block.

    Parameters
    ----------
    name : str, optional
        None: the bytes are dropped.  ``-``: they go to stdout.  The name of a device or pipe:
        they're written to it.  Any other name: they go to a temporary file beside it, which
        takes its place when the block ends well and is removed otherwise.  A symbolic link
        stays, what it points to is replaced.

    Raises
    ------
    OSError
        The file can't be written, with its name.
    """
    if name is None:
        yield _Nowhere()
    elif name == "-":
        yield _Descriptor(_STDOUT, "stdout")
    else:
        target = Path(os.path.realpath(name))
        mode = _mode(target, name)
        if mode is None or stat.S_ISREG(mode):
            temporary = target.with_name(f".respool-{secrets.token_hex(8)}.part")
            with LeftOver(temporary), _replacing(target, temporary, name, mode) as sink:
                yield sink
        else:
            # A directory fails here, as it should.  Never a rename onto /dev/null.
            descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
            try:
                yield _Descriptor(descriptor, name)
            finally:
                os.close(descriptor)


def check_output(name: str) -> None:
    """Fail now where `output` would fail when it's opened: for what is written only after a long time.

    Nothing is left of the attempt, and a file that is there stays as it is.

    Raises
    ------
    OSError
        The file can't be written, with its name.
    """
    target = Path(os.path.realpath(name))
    mode = _mode(target, name)
    if mode is None or stat.S_ISREG(mode):
        _try_folder(target.parent, name)
    elif stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    elif not os.access(target, os.W_OK):  # not opened: a pipe would wait for its other end
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)


def check_folder(name: str) -> None:
    """Fail now where a folder isn't there, or no file can be made in it.

    Raises
    ------
    OSError
        That's so, with the folder's name.
    """
    folder = Path(os.path.realpath(name))
    mode = _mode(folder, name)
    if mode is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    _try_folder(folder, name)


def _try_folder(folder: Path, name: str) -> None:
    """Make a file and remove it: permissions alone don't tell, least of all to one who may do everything."""
    try:
        descriptor, probe = tempfile.mkstemp(prefix=".respool-", suffix=".part", dir=folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error
    os.close(descriptor)
    Path(probe).unlink()


def _mode(target: Path, name: str) -> int | None:
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


@contextmanager
def _replacing(target: Path, temporary: Path, name: str, mode: int | None) -> Generator[Sink]:
    descriptor = -1
    try:
        # Opened inside the try: a signal between the two must not leave the file behind.
        # 0o666 less the umask, like any new file; an existing one's permissions are kept.
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error
        if mode is not None:
            os.fchmod(descriptor, stat.S_IMODE(mode))
        yield _Descriptor(descriptor, name)
        try:
            os.fsync(descriptor)
            # Closed first: what else is opened here must be had where reading left nothing to spare.
            descriptor, done = -1, descriptor
            os.close(done)
            temporary.replace(target)
            _sync_directory(target.parent)
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from error
    except BaseException:
        try:
            temporary.unlink()
        except OSError:
            pass  # it was never made, or has become the target
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    """Make the new name outlast a power cut, where the file system knows how to."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # one may write into a directory that one may not read
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems refuse; the file itself is safe, and in place
    finally:
        os.close(descriptor)
