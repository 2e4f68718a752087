"""Pools that are dropped: without close() they warn and run no hook, after it they go in silence (G11)."""

from __future__ import annotations

import gc
import warnings

import pytest

from respool import PoolLimits, ResourcePool


def test_a_pool_dropped_without_close_warns_and_runs_no_hook() -> None:
    """G11: dropping an open pool is told by one ResourceWarning; destroy is not run by a finaliser."""
    destroyed: list[object] = []
    pool = ResourcePool(
        lambda key: object(),
        lambda key, thing: destroyed.append(thing),
        limits=PoolLimits(max_size=2),
        name="forgotten",
    )
    for lease in [pool.lease(), pool.lease()]:
        lease.release()
    del lease
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        gc.collect()
    assert len(caught) == 1
    assert issubclass(caught[0].category, ResourceWarning)
    assert "forgotten" in str(caught[0].message)
    assert destroyed == []


@pytest.mark.parametrize("end", ["release", "discard", "detach"])
def test_a_lease_that_outlives_a_pool_dropped_without_close(end: str) -> None:
    """G11: the lease still has its resource and ends without an error; no hook runs any more."""
    destroyed: list[object] = []
    pool = ResourcePool(lambda key: object(), lambda key, thing: destroyed.append(thing))
    lease = pool.lease()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del pool
        gc.collect()
        assert lease.resource is not None
        getattr(lease, end)()
        assert lease.released
        del lease
        gc.collect()
    assert all(warning.category is ResourceWarning for warning in caught)
    assert len(caught) == 1
    assert destroyed == []


def test_a_closed_pool_is_dropped_in_silence() -> None:
    """G11: after close there is nothing to warn of; warnings are errors here."""
    with ResourcePool(lambda key: object()) as pool:
        pool.lease().release()
    del pool
    gc.collect()
