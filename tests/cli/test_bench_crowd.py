"""``respool bench`` with several threads: how their time is taken, and how it's seen who passes whom."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from respool.cli.bench import _crowd, _handover, fairness
from respool.cli.bench._crowd import (
    NOTHING,
    Work,
    count_for,
    hashing,
    interleaved,
    loop_of,
    percentile,
    throughput_seconds,
    together,
)
from respool.cli.bench._handover import Crowd, queue_for_locks
from respool.cli.bench._peers import Pair

if TYPE_CHECKING:
    from collections.abc import Callable


def pair(pool: object, take: str = "held = pool.take()", give: str = "pool.give(held)") -> Pair:
    """Give a pair of this pool's methods."""
    return Pair(name="some", role="peer", take=take, give=give, names={"pool": pool})


class Noting:
    """A pool that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def take(self) -> str:
        """Note it."""
        self.done.append("take")
        return "it"

    def give(self, held: str) -> None:
        """Note it."""
        assert held == "it"
        self.done.append("give")

    def __enter__(self) -> None:
        self.done.append("enter")

    def __exit__(self, *_: object) -> None:
        self.done.append("exit")

    def work(self) -> None:
        """Note it."""
        self.done.append("work")


class TestLoops:
    """The loops that threads run."""

    def test_order(self) -> None:
        """Each turn takes, works, and gives back; the clock starts behind the start line."""
        noting = Noting()
        loop = loop_of(pair(noting), Work("work()", {"work": noting.work}))
        began, ended, _ = loop(lambda: noting.done.append("start"), range(2))
        assert noting.done == ["start", *["take", "work", "give"] * 2]
        assert began <= ended

    def test_block(self) -> None:
        """A take that is a block has the work inside it."""
        noting = Noting()
        loop_of(pair(noting, "with pool:", "pass"), Work("work()", {"work": noting.work}))(int, range(1))
        assert noting.done == ["enter", "work", "exit"]

    def test_waits(self) -> None:
        """What is noted before and after a take comes out."""
        loop = loop_of(pair(Noting()), NOTHING, before="asked = now()", taken="waits.append(now() - asked)")
        waits = loop(int, range(3))[2]
        assert len(waits) == 3
        assert min(waits) >= 0

    def test_work_without_the_lock(self) -> None:
        """The hashed buffer is long enough for the interpreter's lock to be let go."""
        assert len(hashing(1e-12).names["work_buffer"]) >= 2048  # type: ignore[arg-type]
        assert len(hashing(1e-3).names["work_buffer"]) > len(hashing(1e-4).names["work_buffer"])  # type: ignore[arg-type]


class TestTogether:
    """Threads at once."""

    def test_at_once(self) -> None:
        """All are behind the start line before any goes on, and each has a number."""
        came: list[int] = []

        def act(start: Callable[[], object], number: int) -> tuple[int, int]:
            came.append(number)
            start()
            return number, len(came)

        assert together(5, act) == [(number, 5) for number in range(5)]

    def test_error(self) -> None:
        """What a thread raises comes out when all have ended."""
        ended: list[int] = []

        def act(start: Callable[[], object], number: int) -> None:
            start()
            if number == 1:
                raise ValueError("one")
            ended.append(number)

        with pytest.raises(ValueError, match="one"):
            together(3, act)
        assert sorted(ended) == [0, 2]

    def test_throughput(self) -> None:
        """A figure is from the first start to the last end, over all turns of all threads."""
        numbers = itertools.count()

        def loop(start: Callable[[], object], turns: Any) -> tuple[float, float, list[float]]:
            start()
            assert len(list(turns)) == 10
            return [(1.0, 4.0, []), (2.0, 7.0, [])][next(numbers)]  # type: ignore[return-value]

        assert throughput_seconds(loop, 2, 10) == pytest.approx((7.0 - 1.0) / 20)

    def test_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The number of turns fits the time, also where many turns cost more each than few."""
        costs: list[int] = []

        def seconds(loop: object, threads: int, count: int) -> float:
            costs.append(count)
            return 1e-6 if count < 1000 else 1e-5

        monkeypatch.setattr(_crowd, "throughput_seconds", seconds)
        count = count_for(lambda *_: None, 4, 0.4)
        assert 0.2 < seconds(None, 4, count) * 4 * count < 0.8
        assert costs[0] < 100

    def test_interleaved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In each repeat each runs once with its own number of turns, and nobody always follows the same one."""
        ran: list[tuple[Any, int]] = []

        def seconds(loop: Any, threads: int, count: int) -> float:
            ran.append((loop, count))
            return float(len(ran))

        monkeypatch.setattr(_crowd, "throughput_seconds", seconds)
        ticks: list[int] = []
        loops: dict[str, Any] = {"a": "A", "b": "B", "c": "C"}
        figures, failures = interleaved(loops, 2, count=7, repeats=2, tick=lambda: ticks.append(len(ran)))
        assert ran == [(name, 7) for name in "ABCBCA"]
        assert figures == {"a": [1.0, 6.0], "b": [2.0, 4.0], "c": [3.0, 5.0]}
        assert ticks == [3, 6]
        assert not failures

    def test_failure(self) -> None:
        """A pool that fails under load is left out with its reason, and the others are measured."""

        class Broken(Noting):
            def give(self, held: str) -> None:
                raise RuntimeError("broken")

        loops = {"good": loop_of(pair(Noting()), NOTHING), "bad": loop_of(pair(Broken()), NOTHING)}
        for how in ({"count": 3}, {"seconds": 0.001}):
            figures, failures = interleaved(loops, 2, repeats=2, **how)  # type: ignore[arg-type]
            assert [len(values) for values in figures.values()] == [2]
            assert failures == {"bad": "RuntimeError: broken"}

    def test_percentile(self) -> None:
        """The share counts from below; the highest is the most."""
        values = list(range(100))
        assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [0, 50, 99, 99]


class Passable:
    """One resource: whoever waits is served only when it has been given back so many times."""

    def __init__(self, gives: int) -> None:
        self.gives = gives
        self.free = threading.Semaphore(1)
        self.granted = threading.Event()
        self.looper: int | None = None

    def take(self) -> None:
        """Take it: the first to come takes it in passing, the other one waits."""
        me = threading.get_ident()
        if self.looper is None:
            self.looper = me
        if me == self.looper:
            self.free.acquire()
        else:
            self.granted.wait()

    def give(self, held: None) -> None:
        """Give it back, to the one who waits if it's time."""
        if threading.get_ident() == self.looper:
            self.gives -= 1
            if not self.gives:
                self.granted.set()
                return
        self.free.release()


class TestPassing:
    """How often a loop passes one who waits."""

    @pytest.mark.parametrize("times", [0, 1, 5])
    def test_exact(self, times: int) -> None:
        """Each turn of the loop between the other one's coming and its being served counts, and no other."""
        assert fairness._Passing(pair(Passable(times + 1))).run() == times

    def test_never_served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A loop that is never overtaken ends by itself, and the other one is served then."""
        monkeypatch.setattr(fairness, "_ENOUGH", 0.05)
        passable = Passable(-1)
        looping = fairness._Passing(pair(passable))
        turns = looping._turns

        def then_grant() -> Any:
            yield from turns()
            passable.granted.set()

        monkeypatch.setattr(looping, "_turns", then_grant)
        assert looping.run() > 0


class TestHandover:
    """A crowd that hands one thing on."""

    def test_in_order(self) -> None:
        """Everybody has it in turn, in the order of the queue, and all threads end with the block."""
        had: list[int] = []
        take, give, waiting = queue_for_locks()

        def noting() -> Any:
            held = take()
            had.append(threading.get_ident())
            return held

        before = threading.active_count()
        with Crowd(3, noting, give, waiting) as crowd:
            assert threading.active_count() == before + 4
            assert crowd.seconds(8) > 0
            assert len(had) == 9
            assert had[1:5] == had[5:9]
            assert len(set(had)) == 4
        assert threading.active_count() == before

    def test_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no more threads are to be had, those that were started end."""
        start, started = threading.Thread.start, itertools.count(1)

        def refuse(thread: threading.Thread) -> None:
            if next(started) > 3:
                raise RuntimeError("can't start new thread")
            start(thread)

        before = threading.active_count()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"), Crowd(9, *queue_for_locks()):
            pytest.fail("there are not so many")
        assert threading.active_count() == before

    def test_too_slow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where they never are all in line, it's given up, and all threads end."""
        monkeypatch.setattr(_handover, "_PATIENCE", 0.01)
        before = threading.active_count()
        take, give, _ = queue_for_locks()
        with pytest.raises(RuntimeError, match="not all in line"), Crowd(2, take, give, lambda: 1):
            pytest.fail("only one is in line")
        assert threading.active_count() == before
