"""Fixtures for tests of the pool: a recording factory, and pools that are closed at the end."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits, ResourcePool, _waiter
from respool._free import FREE_THREADED
from tests.helpers.clocks import Clock, without_reaper
from tests.helpers.gates import Gate
from tests.helpers.recorder import Recorder
from tests.helpers.resources import Factory, Thing
from tests.helpers.storms import weather
from tests.helpers.threads import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.resources import MakePool

LIMITS = {field.name for field in dataclasses.fields(PoolLimits)}


@pytest.fixture
def factory() -> Iterator[Factory]:
    """Give hooks with books of their own; a resource used wrongly fails the test."""
    factory = Factory()
    yield factory
    assert factory.misuse == []


@pytest.fixture
def recorder() -> Recorder:
    """Give an observer that remembers."""
    return Recorder()


@pytest.fixture
def no_backstop(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Take away the look that a sleeper takes by itself after seconds: a lost wake-up then hangs the test."""
    for name, module in list(sys.modules.items()):
        if name.startswith("respool._") and hasattr(module, "BACKSTOP"):
            monkeypatch.setattr(module, "BACKSTOP", 1e6)
    # Without the interpreter lock sleepers look as often as one that can't listen, and must: what another thread has
    # dropped lives on until its maker has looked.  So the slow tests, in which all threads drop what others made, keep that.
    if FREE_THREADED and request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(_waiter, "NAP", 1e6)


@pytest.fixture
def bear() -> Iterator[None]:
    """Let threads switch often, and what an interrupt leaves (leaked leases, errors in finalisers) be no error of the test."""
    with weather():
        yield


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the pools' clock, and keep the reaper thread out of it."""
    return without_reaper(monkeypatch)


@pytest.fixture
def destroy_gate(factory: Factory) -> Iterator[Gate]:
    """Give the gate at which each destroy stops, opened at the end of the test."""
    gate = Gate()
    factory.before["destroy"] = lambda key, thing: gate.stop()
    yield gate
    gate.open()


@pytest.fixture
def make_background(make_pool: MakePool, factory: Factory, destroy_gate: Gate) -> MakePool:
    """Give a maker of pools that destroy in the background, all with a validate and a reset hook."""

    def make(**options: Any) -> ResourcePool[Any, Thing]:
        return make_pool(destroy_in="background", validate=factory.validate, reset=factory.reset, **options)

    return make


@pytest.fixture
def make_pool(factory: Factory) -> Iterator[MakePool]:
    """Give a maker of pools on ``factory``'s create and destroy; keywords are limits or options.

    At the end each pool is closed, and the factory's books must then agree with the pools'.
    """
    pools: list[ResourcePool[Any, Thing]] = []
    on_factory = True

    def make(**options: Any) -> ResourcePool[Any, Thing]:
        nonlocal on_factory
        on_factory = on_factory and "create" not in options and "destroy" not in options
        limits = PoolLimits(**{name: options.pop(name) for name in LIMITS & options.keys()})
        pool: ResourcePool[Any, Thing] = ResourcePool(
            options.pop("create", factory.create),
            options.pop("destroy", factory.destroy),
            limits=limits,
            **options,
        )
        pools.append(pool)
        return pool

    yield make
    alive = 0
    for pool in pools:
        with pool:
            pass  # leaving the block closes the pool without waiting
        if pool._core.destroyer is not None:
            wait_until(lambda pool=pool: not pool.stats().destroying, "the end of the background's work")
        stats = pool.stats()
        assert stats.idle == 0, f"idle after close: {stats}"
        alive += stats.size - stats.quarantined + stats.detached + stats.abandoned
    if on_factory:
        assert factory.alive == alive, "resources alive that no pool knows, or the other way round"
