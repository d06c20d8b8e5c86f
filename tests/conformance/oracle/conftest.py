"""Many tests judge several answers to one program: its runs are made once for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchstone.conformance.oracle.reference.shared import shared_runs


@pytest.fixture(autouse=True)
def runs_are_shared(request: pytest.FixtureRequest) -> Iterator[None]:
    """The verdicts are the same: ``reference/test_shared.py`` says so, and shares what it asks for itself."""
    if request.path.name == "test_shared.py":
        yield
        return
    with shared_runs():
        yield
