"""Interpreter exit with background threads at work (P82, G11): prompt, silent, code 0.

Each program runs in an interpreter of its own.  `printed_by` wants exit code 0 and an empty
stderr; a program that hangs fails by its hang guard.
"""

from __future__ import annotations

import pytest

from tests.helpers.programs import printed_by

PROGRAM = """
import os, select, threading
from respool import PoolLimits, PoolObserver, ResourcePool

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def nap():
    select.select([], [], [], 3600)

began, seen = threading.Semaphore(0), threading.Semaphore(0)
numbers = iter(range(1, 1000))

class Observer(PoolObserver):
    def destroyed(self, pool, key, reason):
        seen.release()

def create(key):
    return [key, next(numbers)]

def destroy(key, thing):
    import tomllib
    assert tomllib.loads("a = 1") == {"a": 1}
    if key == "slow":
        began.release()
        nap()
    say("destroyed", *thing)

def hold(pool):
    def run():
        with pool.lease("held"):
            began.release()
            nap()
    threading.Thread(target=run, daemon=True).start()
    began.acquire()
"""

OPTIONS = pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["plain", "dev"])


@OPTIONS
def test_threads_at_rest(options: tuple[str, ...]) -> None:
    """P82: open pools with a reaper and destroyers that sleep, and leases held by daemons: idle ones are destroyed once, in silence."""
    lines = printed_by(
        PROGRAM
        + """
limits = PoolLimits(idle_timeout=3600, max_lifetime=3600)
pools = [ResourcePool(create, destroy, limits=limits, destroy_in=where, observer=Observer()) for where in ("caller", "background")]
for pool in pools:
    hold(pool)
    pool.lease("idle").release()
    pool.lease("gone").discard()
    seen.acquire()
assert threading.active_count() == 5, threading.enumerate()
say("end of program")
""",
        *options,
    )
    end = lines.index("end of program")
    assert lines[:end] == ["destroyed gone 3", "destroyed gone 6"]
    assert sorted(lines[end + 1 :]) == ["destroyed idle 2", "destroyed idle 5"]


@OPTIONS
@pytest.mark.parametrize("where", ["caller", "background"])
def test_in_the_middle_of_a_slow_hook(where: str, options: tuple[str, ...]) -> None:
    """P82: a reaper or destroyer in a hook that would last for an hour delays nothing; what is idle is destroyed."""
    limits = "PoolLimits(idle_timeout=0.01)" if where == "caller" else "PoolLimits()"
    lines = printed_by(
        PROGRAM
        + f"""
pool = ResourcePool(create, destroy, limits={limits}, destroy_in="{where}")
hold(pool)
lease = pool.lease("slow")
lease.{"release" if where == "caller" else "discard"}()
began.acquire()
assert pool.stats().destroying == 1
other = ResourcePool(create, destroy, destroy_in="background")
other.lease("idle").release()
say("end of program")
""",
        *options,
    )
    assert lines == ["end of program", "destroyed idle 3"]


def test_what_waits_for_the_destroyer() -> None:
    """P82: at exit nothing is destroyed twice, and never from a half-dead module, while the thread still has a queue of work."""
    lines = printed_by(
        PROGRAM
        + """
pool = ResourcePool(create, destroy, destroy_in="background")
leases = [pool.lease(key) for key in ("slow", "next", "next", "idle", "idle")]
for lease in leases[3:]:
    lease.release()
for lease in leases[:3]:
    lease.discard()
began.acquire()
say("end of program")
"""
    )
    assert lines[0] == "end of program"
    assert sorted(line for line in lines[1:] if "idle" in line) == ["destroyed idle 4", "destroyed idle 5"]
    assert len(set(lines)) == len(lines)


def test_nothing_at_exit_with_leak() -> None:
    """G11: at_exit="leak" runs no hook at exit, in the background either."""
    lines = printed_by(
        PROGRAM
        + """
pool = ResourcePool(create, destroy, destroy_in="background", at_exit="leak", limits=PoolLimits(idle_timeout=3600))
pool.lease("idle").release()
say("end of program")
"""
    )
    assert lines == ["end of program"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["caller", "background"])
def test_threads_that_are_busy_all_the_time(where: str) -> None:
    """P82: exit in the midst of reaping and destroying, with daemons that take and give back: silent and prompt, ten times."""
    program = (
        PROGRAM
        + f"""
done = []
pool = ResourcePool(create, lambda key, thing: done.append(thing), destroy_in="{where}", observer=PoolObserver(),
                    limits=PoolLimits(max_size=4, idle_timeout=1e-4, max_lifetime=1e-3))
numbers = iter(int, 1)
rounds = [0] * 3

def use(me):
    while True:
        try:
            with pool.lease("ABC"[me]):
                pool.lease("D").discard()
        except BaseException as error:
            say("raised into a thread:", repr(error))
        rounds[me] += 1

for me in range(3):
    threading.Thread(target=use, args=(me,), daemon=True).start()
while min(rounds) < 20:
    os.sched_yield()
"""
    )
    for _ in range(10):
        assert printed_by(program) == []


def test_a_thread_is_needed_when_none_can_start() -> None:
    """P82: exit handlers that begin to use a pool with time limits or background destroy meet no error."""
    lines = printed_by(
        PROGRAM
        + """
import atexit

def use(name):
    with ResourcePool(create, destroy, destroy_in="background", limits=PoolLimits(idle_timeout=3600)) as pool:
        pool.lease("idle").release()
        pool.lease("gone").discard()
        pool.clear()
        say(name, pool.stats().leased)

atexit.register(use, "after")
early = ResourcePool(create, destroy)
early.lease("early").release()
atexit.register(use, "before")
"""
    )
    assert [line for line in lines if "destroyed" not in line] == ["before 0", "after 0"]
    assert lines.count("destroyed early 1") == 1
