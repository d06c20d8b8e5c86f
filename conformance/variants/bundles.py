"""Variants that ask several of one kind in one program: ``values``, ``sizes``, ``layouts`` and ``operands``.

A bug that a number, a size or a layout shows is mostly a bug of one op, and shows for that one alone. So each op has to
be asked with each of them, and most of what that costs is compiling. One program that calls the op with all, each on
inputs of its own, finds as much as they do apart:

    r0_special = exp(x_special)         NaN, infinities, subnormals
    r0_extremes = exp(x_extremes)
    ...

Eager is asked for each part, in a fork where its variant leaves eager to a worker. Where a backend refuses the program,
it is asked for its parts (``execution.run_case``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

import torch

from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources.sampling import seeded
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.registry import BUNDLES, VARIANTS
from torchstone.conformance.variants.same_tensor import same
from torchstone.conformance.variants.support import taken, together
from torchstone.conformance.variants.values import special


def bundled(case: Case, name: str, others: Sequence[Case] = ()) -> Case:
    """The case in each part of a bundle that applies, and each of the others in one of them by turns."""
    if draws(case):
        raise NotApplicable("it draws random numbers, which are compared call by call")
    parts, found = BUNDLES[name], {}
    turns = [(case, part, part) for part in parts]
    turns += [(each, part := parts[at % len(parts)], f"{each.index}_{part}") for at, each in enumerate(others)]
    dangerous = {}
    for each, part, called in turns:
        variant = VARIANTS.load(part)
        with contextlib.suppress(NotApplicable), seeded(f"{each.id}:{part}"):
            found[called] = _TELLING.get(part, variant.make)(each)
            if not variant.try_eager:
                dangerous[called] = found[called]
    asked = answers([partial(taken, changed) for changed in dangerous.values()], most=len(dangerous))
    survived = {called for called, yes in zip(dangerous, asked, strict=True) if yes}
    chosen = {
        called: changed
        for called, changed in found.items()
        if (called in survived if called in dangerous else taken(changed))
    }
    if not chosen:
        raise NotApplicable("its inputs have nothing to change, or eager takes nothing that comes of it")
    alone = [(called, one) for called, changed in chosen.items() for one in _apart(changed)]
    return together([one for _, one in alone], [called for called, _ in alone])


def _apart(case: Case) -> list[Case]:
    """The parts of a case that asks several of one kind itself: each is to be judged by itself."""
    parts = parts_of(case.program, case.args)
    if any(len(places) > 1 for places, _ in parts):
        return [case]
    inputs = [{name: case.inputs[name] for name in part.inputs} for _, part in parts]
    return [case.replace(program=part, inputs=own) for (_, part), own in zip(parts, inputs, strict=True)]


def _bundle(doc: str, name: str) -> Variant:
    """A variant of several others: those that apply, each with the inputs that it has alone."""
    return Variant(doc, partial(bundled, name=name), try_eager=False)


def _same_special(case: Case) -> Case:
    """One tensor for all operands, with special values: x - x and x / x are no matter of algebra for these alone."""
    with contextlib.suppress(NotApplicable):
        placed = same(special(case, most=1))
        if taken(placed):
            return placed
    return same(case)


_TELLING: dict[str, Callable[[Case], Case]] = {"same": _same_special}
"""Parts that are asked with values that tell, which the variant does not place."""


def draws(case: Case) -> bool:
    """Whether eager takes random numbers for the case; an exception where it does not take the case."""
    torch.default_generator.manual_seed(0)
    before = torch.default_generator.get_state()
    with torch.no_grad():
        case.program(*case.fresh_args())
    return not torch.equal(before, torch.default_generator.get_state())


VALUES = _bundle("All variants of the numbers in the inputs, in one program.", "values")
SIZES = _bundle("Variants of the sizes of the inputs, in one program.", "sizes")
OPERANDS = _bundle("Operands of no elements, 0-d, of other dtypes, many: in one program.", "operands")
