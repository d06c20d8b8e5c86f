"""Mutants: the built-in compiler with one mistake at a time, for the harness to find.

    torchstone run --backend torchstone.conformance.mutants:linalg+sub-swapped --op sub

Each is a row of a table: what is wrong, in which ops it should be seen, and the patch that makes it, which replaces a
row of one of the compiler's own tables (or a function of its runtime) for as long as it compiles and runs. The compiler
knows nothing of it.
"""

from torchstone.conformance.mutants import arithmetic, attributes, floats, layout, runtime
from torchstone.conformance.mutants.backend import MutatedLinalg
from torchstone.conformance.mutants.mutant import Mutant

MUTANTS: dict[str, Mutant] = {}
for _mutant in (*arithmetic.MUTANTS, *floats.MUTANTS, *layout.MUTANTS, *attributes.MUTANTS, *runtime.MUTANTS):
    if _mutant.name in MUTANTS:
        raise ValueError(f"there are two mutants called {_mutant.name}")
    MUTANTS[_mutant.name] = _mutant

BACKEND_NAME = "torchstone.conformance.mutants:linalg"
linalg = MutatedLinalg(MUTANTS)

__all__ = ["BACKEND_NAME", "MUTANTS", "Mutant", "MutatedLinalg", "linalg"]
