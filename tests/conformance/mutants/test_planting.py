"""Every bug of the library can be planted: what it replaces in the compiler is there, and is put back."""

from __future__ import annotations

import pytest

from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.conformance.mutants import BUGS
from torchstone.conformance.mutants.mutant import Bug


@pytest.mark.parametrize("bug", BUGS.values(), ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    before = dict(EXPANSIONS)
    with bug.plant():
        pass
    assert dict(EXPANSIONS) == before
