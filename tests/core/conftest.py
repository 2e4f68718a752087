"""Fixtures for tests of the pool: a recording factory, and pools that are closed at the end."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import pytest

from respool import PoolLimits, ResourcePool
from tests.helpers.recorder import Recorder
from tests.helpers.resources import Factory, Thing
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
def no_backstop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the look that a sleeper takes by itself after seconds: a lost wake-up then hangs the test."""
    for name, module in list(sys.modules.items()):
        if name.startswith("respool._") and hasattr(module, "BACKSTOP"):
            monkeypatch.setattr(module, "BACKSTOP", 1e6)


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
