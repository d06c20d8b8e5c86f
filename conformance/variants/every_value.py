"""The variant ``values``: all variants of the numbers in the inputs, in one program.

A bug that a number shows is mostly a bug of one op, and shows for that number alone. The op has to be asked with each
kind of number then, and most of what that costs is compiling: one program that calls the op with all of them, each on
inputs of its own, finds as much as they do apart.

    r0 = exp(x)                  special: NaN, infinities, subnormals
    r0_1 = exp(x_1)              extremes
    ...
"""

from __future__ import annotations

import contextlib
from functools import partial

from torchstone.conformance.program.case import Case
from torchstone.conformance.sources.sampling import seeded
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import taken, together
from torchstone.conformance.variants.ties import tied
from torchstone.conformance.variants.values import EXTREMES, MAGNITUDES, SHIFTED, SMALL, SPECIAL, UNIFORM

PARTS = {
    "special": SPECIAL.make, "extremes": EXTREMES.make, "magnitudes": MAGNITUDES.make, "shifted": SHIFTED.make,
    "small": SMALL.make, "ties": tied, "uniform": UNIFORM.make,
}  # fmt: skip
"""The variants whose numbers are asked, each with the inputs that it has alone; ``ties`` without gradients."""


def values(case: Case) -> Case:
    """The program with the numbers of each part that eager takes, one after the other."""
    found = []
    for name, make in PARTS.items():
        with contextlib.suppress(NotApplicable), seeded(f"{case.id}:{name}"):
            found.append(make(case))
    asked = answers([partial(taken, part) for part in found], most=len(found))
    found = [part for part, yes in zip(found, asked, strict=True) if yes]
    if not found:
        raise NotApplicable("no input has numbers to replace, or eager takes none of them")
    return together(found)


VALUES = Variant("The numbers of `special`, `extremes`, `ties` and their like, all in one program.", values)
