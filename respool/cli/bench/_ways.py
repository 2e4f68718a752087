"""The ways to have an event: created and destroyed each time, or lent by a pool.

This module owns how each contender of the benches of events is set up, for one thread or for several.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from respool.cli.bench._crowd import Work, loop_of
from respool.cli.bench._measure import Contender
from respool.cli.bench._native import Native, NativeContender, NativeError, native
from respool.cli.bench._peers import Pair, load
from respool.cli.bench._results import Missing
from respool.cuda import CudaEventPool
from respool.cuda._driver import DISABLE_TIMING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from respool.cli.bench._crowd import Loop
    from respool.cli.bench._gpu import Gpu
    from respool.cli.bench._results import Role

CREATE = "cuEventCreate + cuEventDestroy, cuda.bindings"
BOUND = "CudaEventPool, bound: acquire+release"
KEYED = "CudaEventPool: acquire+release"
WITH = "with CudaEventPool.lease()"
CORE = "cuda.core: Device.create_event + Event.close"
CPP_CREATE = "C++: cuEventCreate + cuEventDestroy"
CPP_POOL = "C++: a vector of events, one mutex, context looked up"
#: The C++ rows, by what the program calls them.
CPP = {CPP_CREATE: "create", CPP_POOL: "pool"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """How to have an event: the statements that take one, use it and give it back, and what their names mean.

    If `take` ends in a colon it's a block, and the event is used inside.
    """

    name: str
    role: Role
    take: str
    use: str  # record it in `stream`, and wait for it
    give: str
    names: Mapping[str, object]
    #: What else they mean, for one thread alone: a stream, for the length of a block.
    own: Callable[[], Any]

    def contender(self, names: Mapping[str, object], *, records: bool) -> Contender:
        """Give something to measure in one thread, which has these names of its own."""
        use = self.use if records else "pass"
        block = self.take.endswith(":")
        statement = f"{self.take}\n    {use}" if block else f"{self.take}\n{use}\n{self.give}"
        return Contender(name=self.name, role=self.role, statement=statement, names={**self.names, **names})

    def loop(self, *, records: bool) -> Loop:
        """Give something that several threads can do, each with its own names."""
        pair = Pair(name=self.name, role=self.role, take=self.take, give=self.give, names=self.names)

        def loop(start: Callable[[], object], turns: Iterable[object]) -> tuple[float, float, list[float]]:
            with self.own() as names:
                return loop_of(pair, Work(self.use if records else "pass", names))(start, turns)

        return loop


def bindings(gpu: Gpu) -> Way:
    """Create an event by way of cuda.bindings, and destroy it; codes aren't looked at, which costs least."""
    api = gpu.driver.api
    return Way(
        name=CREATE,
        role="peer",
        take=f"code, event = create({DISABLE_TIMING})",
        use="record(event, stream); synchronize(event)",
        give="destroy(event)",
        names={
            "create": api.cuEventCreate,
            "destroy": api.cuEventDestroy,
            "record": api.cuEventRecord,
            "synchronize": api.cuEventSynchronize,
        },
        own=_streams(gpu),
    )


def pooled(gpu: Gpu, pool: CudaEventPool) -> list[Way]:
    """Take an event from a pool, in the ways that it has."""
    pair, block = ("event = pool.acquire()", "pool.release(event)"), ("with pool.lease() as event:", "pass")
    bound = pool.bind()
    own = _streams(gpu)
    kinds: list[tuple[str, object, tuple[str, str]]] = [
        (BOUND, bound, pair),
        (KEYED, pool, pair),
        ("with CudaEventPool, bound: lease()", bound, block),
        (WITH, pool, block),
    ]
    return [
        Way(
            name=name,
            role="respool",
            take=take,
            use="event.record(stream); event.synchronize()",
            give=give,
            names={"pool": of},
            own=own,
        )
        for name, of, (take, give) in kinds
    ]


def cuda_core(gpu: Gpu) -> Way | Missing:
    """Create an event by way of cuda.core, and close it."""
    try:
        device_class = load("cuda.core").Device

        @contextmanager
        def own() -> Generator[Mapping[str, object]]:
            device = device_class(gpu.number)
            device.set_current()
            stream = device.create_stream()
            try:
                yield {"device": device, "stream": stream}
            finally:
                stream.close()

        way = Way(
            name=CORE,
            role="peer",
            take="event = device.create_event()",
            use="stream.record(event); event.sync()",
            give="event.close()",
            names={},
            own=own,
        )
        with own() as names:
            way.contender(names, records=True).timer().timeit(1)
    except Exception as error:  # noqa: BLE001 - a peer that changed is a gap in the table, not the end of it
        return Missing(name=CORE, why=f"{type(error).__name__}: {error}")
    return way


def _streams(gpu: Gpu) -> Callable[[], Any]:
    @contextmanager
    def own() -> Generator[Mapping[str, object]]:
        gpu.make_current()
        with gpu.stream() as stream:
            yield {"stream": stream}

    return own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ways:
    """All that there are here."""

    python: list[Way]
    native: Native | None
    missing: list[Missing]

    def contenders(self, ends: ExitStack, *, records: bool) -> list[Contender]:
        """Give all of them as something to measure in one thread; what they need goes when the stack is closed."""
        made = [way.contender(ends.enter_context(way.own()), records=records) for way in self.python]
        if self.native is not None:
            made += native_contenders(self.native, records=records)
        return made

    @property
    def facts(self) -> dict[str, str]:
        """What else there is to tell of where it was measured."""
        return {} if self.native is None else {"C++ compiler": self.native.compiler}


@contextmanager
def all_ways(gpu: Gpu) -> Generator[Ways]:
    """Set all of them up, for the length of a block."""
    with ExitStack() as ends:
        pool = ends.enter_context(CudaEventPool(name="bench"))
        core = cuda_core(gpu)
        found = [bindings(gpu), *pooled(gpu, pool), core]
        missing = [one for one in found if isinstance(one, Missing)]
        program, without = native_program(gpu, ends)
        missing += without
        yield Ways(python=[one for one in found if isinstance(one, Way)], native=program, missing=missing)


def native_program(gpu: Gpu, ends: ExitStack) -> tuple[Native | None, list[Missing]]:
    """Start the program of the C++ rows, which ends with the stack; or tell why these are missing."""
    try:
        return ends.enter_context(native(gpu.number)), []
    except NativeError as error:
        return None, [Missing(name=name, why=str(error)) for name in CPP]


def native_contenders(program: Native, *, records: bool) -> list[Contender]:
    """Give the C++ rows for one thread."""
    return [
        NativeContender(
            name=name, role="peer", statement="", names={}, native=program, way=way, records=records
        )
        for name, way in CPP.items()
    ]
