"""An interrupt at every place of the caller's side of a read, one after the other."""

from __future__ import annotations

import contextlib
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from respool.io._stream import blocks
from tests.helpers.checkpoints import Interrupt, every_checkpoint
from tests.helpers.range_server import CONTENT
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from respool.io import File, Session
    from tests.helpers.range_server import RangeServer


def interrupt() -> None:
    """Be the Ctrl-C."""
    raise Interrupt


def read_into(file: File, memory: bytearray) -> None:
    """Read in the foreground."""
    file.read_into(memory, offset=5)


def pread(file: File, memory: bytearray) -> None:
    """Read in the background and wait for it; an interrupt of the wait leaves the read to go on."""
    future = file.pread(memory, offset=5)
    try:
        future.result()
    except Interrupt:
        future.cancel()
        with contextlib.suppress(CancelledError):
            future.result()
        raise


def read_many(file: File, memory: bytearray) -> None:
    """Read several at once."""
    del memory
    file.read_many([(5, 700), (900, 800)])


def stream(file: File, memory: bytearray) -> None:
    """Read block by block."""
    del memory
    with contextlib.closing(blocks(file, size=100_000)) as parts:
        for _ in parts:
            pass


def attempt(
    operation: Callable[[], object], run: Callable[[Callable[[], object], Callable[[], object]], object]
) -> None:
    """Run the operation with an interrupt somewhere; nothing of either is left behind."""
    with contextlib.suppress(Interrupt):
        run(operation, interrupt)


# An interrupt inside the core costs the resource in hand, which the pool tells.
@pytest.mark.filterwarnings("ignore::respool.LeaseLeakWarning")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["remote", "local"])
@pytest.mark.parametrize("way", [read_into, pread, read_many, stream])
def test_interrupt_at_every_place(
    serve: Callable[..., RangeServer],
    make_session: Callable[..., Session],
    tmp_path: Path,
    way: Callable[[File, bytearray], None],
    kind: str,
) -> None:
    """U34, R45: wherever an interrupt comes, the destination is free afterwards, nothing is left under way or lost."""
    session = make_session(
        task_size=1000, concurrency=2, per_origin=2, buffer_size=32_768, max_bytes=3 * 32_768
    )
    path = tmp_path / "object"
    path.write_bytes(CONTENT)
    with session.open(serve().url if kind == "remote" else path) as file:
        # A stream's path leads through the pool, which has tests of its own for this.
        for visit in every_checkpoint(step=7 if way is stream else 1):
            with visit:
                memory = bytearray(2500)
                attempt(lambda memory=memory: way(file, memory), visit.run)  # type: ignore[misc]
                memory.append(0)
                held = bytes(memory)
                wait_until(lambda: repr(session) == "<Session 0 reads under way>", "the end of all reads")
                assert bytes(memory) == held
                # And the session has lost nothing: all its threads and buffers are there for the next read.
                assert file.read_many([(1, 100), (2, 100), (3, 100)]) == [
                    CONTENT[n : n + 100] for n in (1, 2, 3)
                ]
        wait_until(lambda: session.stats()["buffers"].leased == 0, "the return of all buffers")
        if kind == "remote":
            wait_until(lambda: session.stats()["handles"].leased == 0, "the return of all handles")
