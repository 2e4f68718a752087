"""The fixtures through which each test of the suite runs over each pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.factories import CASES, KEYED, Subject
from tests.core.conftest import no_backstop

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["keyed", "no_backstop", "subject"]


@pytest.fixture(params=CASES, ids=str)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give each class of pools."""
    subject = Subject(request.param)
    yield subject
    subject.close()


@pytest.fixture(params=KEYED, ids=str)
def keyed(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give each class of pools that keeps several kinds of resources."""
    subject = Subject(request.param)
    yield subject
    subject.close()
