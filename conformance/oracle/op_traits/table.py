"""The one table of op names: every trait that the oracle and the fuzzer know ops by.

Rules for a row: the reason says why the ops have the trait, in words that can be checked; the effect says what a
verdict or the fuzzer makes of it. What can be measured is: ``tests/conformance/oracle/op_traits`` runs the ops, and
holds the names against PyTorch's own. ``docs/waivers.md`` is generated from these rows and from ``tolerances.py``.
"""

from __future__ import annotations

from types import ModuleType

from torchstone.conformance.oracle.op_traits import (
    execution,
    order_of_terms,
    references,
    right_answers,
    rounding,
    signs,
    undetermined,
)
from torchstone.conformance.oracle.op_traits.trait import Trait

SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Rounding", rounding),
    ("Order of terms, and what leaves the range of the dtype", order_of_terms),
    ("Signs of zero and NaN", signs),
    ("More than one right answer", right_answers),
    ("Results that the inputs do not determine", undetermined),
    ("References beside eager and float64", references),
    ("How programs are run", execution),
)


TRAITS: dict[str, Trait] = {
    name: trait for _, module in SECTIONS for name, trait in vars(module).items() if isinstance(trait, Trait)
}
"""Every trait by the name of its constant."""


def traits_of(name: str) -> dict[str, Trait]:
    """The traits that have a row for the op of this very name."""
    return {constant: trait for constant, trait in TRAITS.items() if trait.has(name)}
