"""Asynchronous exceptions by the hundred into the background threads: they go on or are renewed, and no room is lost (G3).

The last resort of a sleeper, a look of its own after seconds, is left in place here: a thread that was ended by an
exception is renewed by those who wait for it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import TYPE_CHECKING

import pytest

from respool import _reaper
from tests.helpers.background import REAPER, ROOMS, assert_whole, close, destroyers, named, new_pool
from tests.helpers.checkpoints import Interrupt
from tests.helpers.clocks import fill
from tests.helpers.invariants import assert_quiet
from tests.helpers.resources import Factory
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.usefixtures("bear"), pytest.mark.slow]


class Sender:
    """Sends exceptions into a thread, one after the other, and bears that it dies of one."""

    def __init__(self, find: Callable[[], list[threading.Thread]]) -> None:
        self.find = find
        self.sent = 0

    def send(self) -> None:
        """Send one into each of the threads there are now."""
        for thread in self.find():
            self.sent += ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupt)
            )


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names of threads that an exception has ended."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(args.thread.name))
    return found


def test_interrupts_of_the_destroyer(deaths: list[str]) -> None:
    """G3: hundreds of exceptions into the thread that destroys cost no room, and nothing is destroyed twice; the thread, or a new one, goes on."""
    factory = Factory()
    pool = new_pool(factory, where="background")
    sender = Sender(lambda: destroyers(pool))
    for number in itertools.count():
        if number >= 600 and sender.sent > 300:  # on a busy machine few arrive in each round
            break
        leases = [pool.lease(number % 5, timeout=20) for _ in range(ROOMS)]
        for lease in leases[1:]:
            lease.discard()
        sender.send()
        leases[0].discard()
        if number % 3 == 0:
            os.sched_yield()
            sender.send()
    assert_whole(pool, factory, lost=sender.sent)


def test_the_destroyer_dies_with_work_to_do(deaths: list[str]) -> None:
    """G3: whatever ends the thread, what it has not destroyed yet is destroyed: a pool that is full of it serves, and close returns."""
    for number in range(60):
        factory = Factory()
        pool = new_pool(factory, where="background")
        sender = Sender(lambda pool=pool: destroyers(pool))
        leases = [pool.lease("A", timeout=20) for _ in range(ROOMS)]
        for lease in leases:
            lease.discard()
            for _ in range(number):
                sender.send()
        # Nobody makes a resource now, which would see to the thread.
        close(pool)
        assert_quiet(pool, leased=0, idle=0)
        assert factory.misuse == []
        assert factory.alive <= ROOMS


def test_interrupts_of_the_reaper(monkeypatch: pytest.MonkeyPatch, deaths: list[str]) -> None:
    """G3: hundreds of exceptions into the thread that reaps cost no room; afterwards it, or a new one, still looks after the pool."""
    monkeypatch.setattr(_reaper, "_reaper", _reaper._Reaper())
    monkeypatch.setattr(_reaper, "_TROUBLED", 0.01)
    monkeypatch.setattr(_reaper, "_LEAST", 0.001)
    earlier = named(REAPER)
    sender = Sender(lambda: [thread for thread in named(REAPER) if thread not in earlier])
    factory = Factory()
    pool = new_pool(factory, where="caller", idle_timeout=0.001)
    for number in itertools.count():
        if number >= 600 and sender.sent > 300:  # on a busy machine few arrive in each round
            break
        fill(pool, ROOMS, number % 5)
        sender.send()
        os.sched_yield()
        sender.send()
    fill(pool, 1, "A")
    wait_until(lambda: not pool.stats().size, "somebody who reaps")
    assert_whole(pool, factory, lost=sender.sent)
