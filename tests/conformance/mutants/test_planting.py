"""What each mutant replaces in the compiler is there, and is put back."""

from __future__ import annotations

import pytest

from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.conformance.mutants import MUTANTS
from torchstone.conformance.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_replaces_what_is_there(mutant: Mutant) -> None:
    before = dict(EXPANSIONS)
    with mutant.patch():
        pass
    assert dict(EXPANSIONS) == before
