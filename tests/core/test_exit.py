"""Interpreter exit: prompt, silent, and idle resources destroyed while modules live (P82, G11).

Each program runs in an interpreter of its own.  `printed_by` wants exit code 0 and an empty
stderr; a program that hangs fails by its hang guard.
"""

from __future__ import annotations

import signal

import pytest

from tests.helpers.programs import printed_by, run_program

POOL = """
import gc, itertools, json, os, sys, threading
from respool import PoolLimits, ResourcePool

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

counter = itertools.count(1)

def create(key):
    return [key, next(counter)]

def destroy(key, thing):
    # Needs its module's globals, an import that was made, and one that is made now.
    import tomllib
    assert tomllib.loads("a = 1") == {"a": 1}
    say("destroyed", json.dumps(thing))
"""

NAP = """
import select
def nap():
    select.select([], [], [], 3600)
"""


def test_idle_resources_are_destroyed_at_exit() -> None:
    """P82, G11: once each, by hooks whose modules are all there; what is leased is left alone."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy)
leases = [pool.lease(key) for key in "AAB"]
held = pool.lease("A")
fast = pool.acquire("A")
for lease in leases:
    lease.release()
say("end of program")
"""
    )
    assert lines[0] == "end of program"
    assert sorted(lines[1:]) == ['destroyed ["A", 1]', 'destroyed ["A", 2]', 'destroyed ["B", 3]']


def test_at_exit_leak_runs_nothing() -> None:
    """G11: with at_exit="leak" no hook runs at exit, whatever is idle; other pools are not concerned."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy, at_exit="leak")
held = pool.lease("A")
pool.lease("A").release()
say(pool.stats().idle, pool.stats().leased)
other = ResourcePool(create, destroy)
other.lease("B").release()
"""
    )
    assert lines == ["1 1", 'destroyed ["B", 3]']


def test_a_closed_pool_has_nothing_left_to_do_at_exit() -> None:
    """P82: what close() has destroyed is not destroyed again."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy)
pool.lease("A").release()
pool.close()
say("end of program")
"""
    )
    assert lines == ['destroyed ["A", 1]', "end of program"]


@pytest.mark.parametrize("options", [(), ("-X", "dev"), ("-W", "always")], ids=" ".join)
def test_an_open_pool_in_globals_is_silent(options: tuple[str, ...]) -> None:
    """P82, G11: pools, leases and bound pools that live to the end cause no warning, in development mode too."""
    lines = printed_by(
        POOL
        + """
class Cycle:
    def __init__(self, *members):
        self.me, self.members = self, members

pool = ResourcePool(create, destroy, limits=PoolLimits(max_size=4), track_leases=True)
bound = pool.bind("A")
lease = bound.lease()
cycle = Cycle(pool, pool.lease("A"), pool.acquire("A"))
pool.lease("A").release()
del Cycle
""",
        *options,
    )
    assert lines == ['destroyed ["A", 4]']


def test_daemon_threads_inside_the_pool() -> None:
    """P82, G11: daemons that hold leases, wait, or are in a hook neither delay nor disturb the exit, nor see it."""
    lines = printed_by(
        POOL
        + NAP
        + """
started = threading.Semaphore(0)

def slow_create(key):
    if key == "slow":
        started.release()
        nap()
    return create(key)

pool = ResourcePool(slow_create, destroy, limits=PoolLimits(max_size=3, max_per_key=1))

def watched(work, *args):
    def run():
        try:
            work(*args)
        except BaseException as error:
            say("raised into a thread:", repr(error))
    threading.Thread(target=run, daemon=True).start()

def hold():
    with pool.lease("held"):
        started.release()
        nap()

def wait():
    pool.lease("held")

def timed_wait():
    pool.lease("held", timeout=3600)

watched(hold)
started.acquire()
watched(pool.lease, "slow")
started.acquire()
watched(wait)
watched(timed_wait)
while pool.stats().waiters < 2:
    os.sched_yield()
pool.lease("idle").release()
say("end of program")
"""
    )
    assert lines == ["end of program", 'destroyed ["idle", 2]']


@pytest.mark.slow
def test_daemon_threads_that_never_stop_using_the_pool() -> None:
    """P82, G11: daemons in the midst of acquire, release and leaks: no hang, no output, no error, ten times."""
    program = (
        POOL
        + """
import warnings
from respool import PoolObserver
warnings.simplefilter("ignore")
pool = ResourcePool(create, limits=PoolLimits(max_size=3), observer=PoolObserver())
rounds = [0] * 6

def use(me):
    key = "AB"[me % 2]
    while True:
        try:
            with pool.lease(key):
                if me == 0:
                    pool.release(pool.acquire(key))
            if me == 1:
                pool.lease(key)  # a leak
            pool.lease(key).discard()
        except BaseException as error:
            say("raised into a thread:", repr(error))
        rounds[me] += 1

for me in range(6):
    threading.Thread(target=use, args=(me,), daemon=True).start()
while min(rounds) < 20:
    os.sched_yield()
"""
    )
    for _ in range(10):
        assert printed_by(program) == []


def test_a_thread_that_outlives_the_main_thread() -> None:
    """G11: what non-daemon threads do after the main thread's end still finds the pool open."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy)

def work():
    threading.main_thread().join()
    with pool.lease("A") as thing:
        say("got", thing[1])

threading.Thread(target=work).start()
say("end of program")
"""
    )
    assert lines == ["end of program", "got 1", 'destroyed ["A", 1]']


def test_exit_handlers_before_and_after() -> None:
    """G11: other exit handlers may use or give back to the pool, whether they run before or after its own."""
    lines = printed_by(
        """
import atexit

@atexit.register
def last():
    lease.release()
    pool.clear()
    pool.close()
    pool.stats()
    say("last")
"""
        + POOL
        + """
pool = ResourcePool(create, destroy)
lease = pool.lease("A")

@atexit.register
def first():
    with pool.lease("B"):
        say("first")
"""
    )
    assert lines[0] == "first"
    assert lines[-1] == "last"
    assert lines.count('destroyed ["B", 2]') == 1
    assert lines.count('destroyed ["A", 1]') <= 1


def test_a_failing_destroy_at_exit_stops_nothing() -> None:
    """G11: the other resources, of this pool and others, are destroyed all the same; the exit code is 0."""
    lines = printed_by(
        POOL
        + """
import logging
logging.getLogger("respool").addHandler(logging.NullHandler())
logging.getLogger("respool").propagate = False

def fail(key, thing):
    destroy(key, thing)
    raise RuntimeError("destroy")

pools = [ResourcePool(create, fail), ResourcePool(create, destroy)]
for pool in pools:
    for lease in [pool.lease("A"), pool.lease("A")]:
        lease.release()
"""
    )
    assert sorted(lines) == [f'destroyed ["A", {number}]' for number in (1, 2, 3, 4)]


def test_sys_exit_inside_a_lease() -> None:
    """G11: SystemExit gives back on its way out and keeps its code; the idle one is destroyed."""
    ended = run_program(
        POOL
        + """
pool = ResourcePool(create, destroy)
with pool.lease("A"):
    sys.exit(3)
"""
    )
    assert ended == (3, 'destroyed ["A", 1]\n', "")


def test_ctrl_c_while_waiting_ends_the_program() -> None:
    """G11, P79: an unhandled KeyboardInterrupt in a waiting main thread ends the program as usual."""
    ended = run_program(
        POOL
        + """
import signal
from respool import PoolObserver

class Observer(PoolObserver):
    def queued(self, pool, key):
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # a Ctrl-C, soon

def end(key, thing):  # importing anything now would make CPython forget that it has to die of SIGINT
    say("destroyed", key)

signal.signal(signal.SIGALRM, signal.default_int_handler)
pool = ResourcePool(create, end, limits=PoolLimits(max_size=2, max_per_key=1), observer=Observer())
pool.lease("idle").release()
held = pool.lease("held")
pool.lease("held")
"""
    )
    assert ended.code == -signal.SIGINT
    assert ended.errors.rstrip().endswith("KeyboardInterrupt")
    assert ended.printed == "destroyed idle\n"


def test_a_forked_child_that_exits_normally() -> None:
    """G11, G10: at its exit the child destroys its own idle resources, never the parent's."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy)
lease = pool.lease("parent")
pool.lease("parent").release()
child = os.fork()
if child == 0:
    lease.release()
    pool.lease("child").release()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
say("parent goes on")
lease.release()
"""
    )
    assert lines[:2] == ['destroyed ["child", 3]', "parent goes on"]
    assert sorted(lines[2:]) == ['destroyed ["parent", 1]', 'destroyed ["parent", 2]']


def test_a_respool_taken_out_of_sys_modules() -> None:
    """G11: a pool whose own modules are no longer imported (a test tool reloads them) still ends well."""
    lines = printed_by(
        POOL
        + """
pool = ResourcePool(create, destroy)
pool.lease("A").release()
for name in [name for name in sys.modules if name.startswith("respool")]:
    del sys.modules[name]
"""
    )
    assert lines == ['destroyed ["A", 1]']


def test_no_thread_is_started() -> None:
    """P59: a pool whose options ask for no background work starts no thread, from first use to exit."""
    lines = printed_by(
        POOL
        + """
before = set(threading.enumerate())
pool = ResourcePool(create, destroy, limits=PoolLimits(max_size=1, max_idle=1))
pool.lease("A").release()
pool.lease("B").release()
pool.clear()
pool.close()
say(set(threading.enumerate()) == before, len(os.listdir("/proc/self/task")))
"""
    )
    assert lines[-1] == "True 1"
