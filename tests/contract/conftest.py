"""The fixtures through which each test of the suite runs over each pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.factories import CASES, KEYED, Subject
from tests.core.conftest import no_backstop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.cuda_driver import FakeCuda

__all__ = ["clean_fake", "keyed", "no_backstop", "subject"]


@pytest.fixture(params=CASES, ids=str)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give each class of pools."""
    yield from given(request)


@pytest.fixture(params=KEYED, ids=str)
def keyed(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give each class of pools that keeps several kinds of resources."""
    yield from given(request)


def given(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give a case's pools, in the world that they need."""
    if request.param.fixture:
        request.getfixturevalue(request.param.fixture)
    subject = Subject(request.param)
    yield subject
    subject.close()


@pytest.fixture
def clean_fake(loaded_fake: FakeCuda) -> Iterator[None]:
    """The fake CUDA driver, to which nothing may be done that mustn't; what a test detaches or forgets may be left."""
    from tests.helpers.cuda_driver import MISTAKES

    loaded_fake.reset()
    yield
    mistakes = {name: count for name in MISTAKES if (count := loaded_fake.count(name))}
    loaded_fake.reset()
    assert mistakes == {}
