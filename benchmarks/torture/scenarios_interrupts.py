"""Ctrl-C, signal handlers and finalisers that come in at each function entry inside the pool, one after another."""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.torture.bench import Bench, BrokenError, broken, describe, swept
from benchmarks.torture.scenario import scenario
from benchmarks.torture.sweeps import GIVE, SIZE, TAKE, Stage, sweep, ways

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.torture.bench import Point

GROUP = "Interruptions"


def _ctrl_c(_stage: Stage) -> None:
    signal.raise_signal(signal.SIGINT)


def _settle(bench: Bench, stage: Stage, point: Point | None, *, given: bool) -> None:
    """Give back what is out; all rooms must be there then, however the pool fails to give them."""
    what = _where(stage, point)
    gc.collect()
    try:
        stage.clear(given=given)
        bench.rooms(stage.pool, SIZE)
    except BrokenError as error:
        broken(f"{what}: {error}")
    except Exception as error:  # noqa: BLE001 - a pool broken inside fails in any words
        broken(f"{what}: then {describe(error)}")


def _where(stage: Stage, point: Point | None) -> str:
    return f"{stage.way.what}, {swept(point)}"


@scenario(GROUP, "Ctrl-C anywhere in acquire loses no room", "P79")
def interrupted_acquire(bench: Bench) -> str:
    """At each function entry in turn, where one is idle and where one has to be made."""
    points = 0
    for way in ways(bench.kind, TAKE):
        stage = Stage(bench, way)
        for point, error in sweep(bench, stage, _ctrl_c):
            if error is not None and not isinstance(error, KeyboardInterrupt):
                broken(f"{_where(stage, point)}: {describe(error)}")
            _settle(bench, stage, point, given=False)
            points += point is not None
    return f"{points} places"


@scenario(GROUP, "Ctrl-C anywhere in release loses no room", "P79")
def interrupted_release(bench: Bench) -> str:
    """At each function entry in turn; right if all is well when callers try once more, or when they never do."""
    wrong: list[str] = []
    for again in (True, False):
        try:
            points = _interrupt_release(bench, again=again)
        except BrokenError as error:
            wrong.append(f"{'tried again' if again else 'not tried again'}: {error}")
        else:
            return f"{points} places, {'tried again' if again else 'not tried again'}"
    raise BrokenError("; ".join(wrong))


def _interrupt_release(bench: Bench, *, again: bool) -> int:
    points = 0
    for way in ways(bench.kind, GIVE):
        stage = Stage(bench, way)
        for point, error in sweep(bench, stage, _ctrl_c):
            if isinstance(error, KeyboardInterrupt) and again:
                try:
                    stage.call()
                except Exception:  # noqa: BLE001, S110 - it may have been taken the first time
                    pass
            elif error is not None and not isinstance(error, KeyboardInterrupt):
                broken(f"{_where(stage, point)}: {describe(error)}")
            stage.held.clear()
            _settle(bench, stage, point, given=True)
            points += point is not None
    return points


class _Litter:
    """Garbage in a cycle, whose finaliser gives a resource back."""

    def __init__(self, give_back: Callable[[], object]) -> None:
        self.give_back = give_back
        self.cycle = self

    def __del__(self) -> None:
        self.give_back()


def _from_inside(bench: Bench, act: Callable[[Stage], object], trouble: list[str]) -> str:
    """Give another resource back from each function entry of a call."""
    points = 0
    for way in ways(bench.kind, TAKE + GIVE):
        stage = Stage(bench, way)
        for point, error in sweep(bench, stage, act):
            if error is not None or trouble:
                broken(f"{_where(stage, point)}: {trouble[0] if error is None else describe(error)}")
            _settle(bench, stage, point, given=way.gives)
            points += point is not None
    return f"{points} places"


def _give_other(stage: Stage) -> None:
    stage.pool.release(stage.other.pop())


@scenario(GROUP, "A finaliser that gives back, run anywhere inside the pool, doesn't hang it", "P77")
def finaliser_inside(bench: Bench) -> str:
    """The collector runs at each function entry inside the pool, and finds such a finaliser."""
    trouble: list[str] = []
    sys.unraisablehook = lambda args: trouble.append(describe(args.exc_value or RuntimeError("nothing told")))

    def collect(stage: Stage) -> None:
        _Litter(lambda: _give_other(stage))
        gc.collect()

    return _from_inside(bench, collect, trouble)


@scenario(GROUP, "A signal handler that gives back, anywhere inside the pool, doesn't hang it", "P78")
def handler_inside(bench: Bench) -> str:
    """The signal comes at each function entry inside the pool."""
    stages: list[Stage] = []

    def handle(_number: int, _frame: Any) -> None:
        _give_other(stages.pop())

    signal.signal(signal.SIGUSR1, handle)

    def strike(stage: Stage) -> None:
        stages.append(stage)
        signal.raise_signal(signal.SIGUSR1)

    return _from_inside(bench, strike, [])
