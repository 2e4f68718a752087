"""The names: whatever a ResourcePool offers, every pool offers under the same name, with the same parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from respool import BoundPool, Lease, LeaseGroup, ResourcePool

if TYPE_CHECKING:
    from tests.contract.factories import Case, Subject

NOT_EVERYWHERE = {"adopt"}
"""What a resource made elsewhere would have to be, only a pool of the user's own hooks can know."""


def public(cls: type) -> set[str]:
    """The public names of a class."""
    return {name for name in dir(cls) if not name.startswith("_")} - NOT_EVERYWHERE


def parameters(cls: type, name: str, case: Case | None = None) -> list[str]:
    """The parameters of a method, as the core calls them, without self and without keywords that only special pools have."""
    found = list(inspect.signature(getattr(cls, name)).parameters.values())[1:]
    same = {} if case is None else {case.key_name: "key", case.resource_name: "resource"}
    return [same.get(one.name, one.name) for one in found if one.kind is one.POSITIONAL_OR_KEYWORD]


def assert_alike(ours: Any, core: type, case: Case) -> None:
    """Check that an object has all that an object of the core's class has, and takes the same."""
    assert public(core) <= public(type(ours))
    for name in public(core):
        member = getattr(core, name)
        if inspect.isfunction(member):
            assert parameters(type(ours), name, case) == parameters(core, name), name
        elif isinstance(member, property):
            assert isinstance(getattr(type(ours), name), property), name


def test_the_pool(subject: Subject) -> None:
    """G6: a pool has every method and property of a ResourcePool; bound, every one of a BoundPool but for the key."""
    pool = subject.make()
    assert_alike(pool, ResourcePool, subject.case)
    bound = pool.bind(*subject.key)
    assert_alike(bound, BoundPool, subject.case)
    assert hasattr(bound, "key")


def test_what_it_lends(subject: Subject) -> None:
    """G6: what lease and lease_many give has every method and property of a Lease and a LeaseGroup."""
    pool = subject.make()
    for face in (pool, pool.bind(*subject.key)):
        key = subject.key if face is pool else ()
        lease, group = face.lease(*key), face.lease_many(2, *key)
        assert_alike(lease, Lease, subject.case)
        assert_alike(group, LeaseGroup, subject.case)
        assert lease.key == group.key
        lease.release()
        group.release()


def test_keys_by_name(subject: Subject) -> None:
    """G6: what names a kind may be given by its name, and so may all other parameters."""
    pool = subject.make()
    named = dict(zip([subject.case.key_name], subject.key, strict=False))
    pool.lease(**named, timeout=1).release()
    pool.try_lease(**named).release()
    pool.lease_many(n=2, **named, timeout=1).release()
    for resource in (pool.acquire(**named, timeout=1), pool.try_acquire(**named)):
        pool.release(**{subject.case.resource_name: resource}, when=None)
    assert pool.prefill(n=1, **named) == 1
    assert pool.stats(**named).idle == 3
    assert pool.forget(**named) == 3
    assert pool.clear(**named) == 0
    pool.close(timeout=0)
