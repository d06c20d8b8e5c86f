"""The generator: a program, built forward one call at a time, from nothing but a sequence of choices."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler._torch import fake_tensors, symbolic_shapes
from torchstone.conformance.custom.registration import lookup as lookup_own
from torchstone.conformance.custom.registration import needed_tags
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, dtype_name, leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.fuzz.generator.catalog import all_rules
from torchstone.fuzz.generator.choices import Choices, SeededChoices
from torchstone.fuzz.generator.draft import Draft
from torchstone.fuzz.generator.extend import ATTEMPTS, Drafts, Pool, extend
from torchstone.fuzz.generator.novelty import Novelty
from torchstone.fuzz.generator.rules import OpRule

DEEPEST = 2
"""How many programs may lie in one another, the outermost not counted."""

DRAWS = "draws"
"""The tag of a program that draws random numbers."""

SIZES_OF_VALUES = "sizes-of-values"
"""The tag of a program some of whose sizes depend on values: fake tensors do not know them."""


class NothingGenerated(Exception):
    """None of the ops asked for could be called; the message names them."""


def generate(
    choices: Choices,
    rules: Sequence[OpRule] = (),
    max_ops: int = 5,
    must: Sequence[OpRule] = (),
    seed: str = "none",
    index: int = 0,
    specials: bool = False,
    drafts: Drafts | None = None,
    novelty: Novelty | None = None,
) -> Case:
    """Build a case: a valid program of 1 to ``max_ops`` calls, and its inputs.

    ``rules`` are the ops to choose from (all of them if empty); ``must`` are ops of which the program calls at least
    one; ``seed`` and ``index`` go into the case's id; ``drafts`` are counted on. Every call has run in eager with a
    finite result, and the program under fake tensors. ``specials`` allows infinities and nans, in inputs and in
    results. With ``novelty`` what no program had is drawn more often; it is told what this one has. Raises
    NothingGenerated when no call of the ops could be drawn.
    """
    drafts = drafts if drafts is not None else Drafts()
    pool, musts = Pool(rules) if rules else _whole_pool(), Pool(must) if must else None

    def grow(body: Draft) -> bool:
        inside = pool if body.depth < DEEPEST else pool.without_bodies
        return extend(body, inside if inside.rules else _whole_pool().without_bodies, drafts)

    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        for _ in range(ATTEMPTS):
            torch.default_generator.manual_seed(0)  # which calls do depends on what the ones before them draw
            drafts.programs += 1
            draft = _draw_calls(Draft(choices, specials, grow, novelty=novelty), pool, max_ops, musts, drafts)
            if draft and (tags := _tags(draft)) is not None:
                drafts.programs_kept += 1
                if novelty is not None:
                    novelty.keep(draft.features)
                return _case(draft, seed, index, tags)
            if draft and novelty is not None:
                novelty.refuse(draft.features)
    names = ", ".join(rule.op for rule in (musts or pool).rules[:5])
    raise NothingGenerated(f"no valid call of {names} could be drawn in {ATTEMPTS} attempts")


def nth_program(
    seed: int,
    index: int,
    rules: Sequence[OpRule] = (),
    max_ops: int = 5,
    must: Sequence[OpRule] = (),
    specials: bool = False,
    drafts: Drafts | None = None,
    novelty: Novelty | None = None,
) -> Case:
    """Return the program number ``index`` of the stream ``seed``: the same in every run, whatever came before it.

    With ``novelty`` it depends on what came before it, too.
    """
    choices = SeededChoices(f"{seed}:{index}")
    return generate(choices, rules, max_ops, must, str(seed), index, specials, drafts, novelty)


def _draw_calls(draft: Draft, pool: Pool, max_ops: int, must: Pool | None, drafts: Drafts) -> Draft | None:
    length = draft.choices.integer(1, max_ops)
    lead = draft.choices.integer(0, length - 1) if must else -1
    for at in range(length):
        left = length - len(draft.calls) - (at < lead)  # a call may take two
        draft.most = len(draft.calls) + left
        if left and not extend(draft, must if must and at == lead else pool, drafts) and at == lead:
            return None
    return draft if draft.calls else None


@functools.cache
def _whole_pool() -> Pool:
    return Pool(all_rules().values())


def _tags(draft: Draft) -> tuple[str, ...] | None:
    """The tags of the program; None for one that does not do.

    One that does runs in another random state, with the same results unless it draws, and on fake tensors. One that
    draws gives the same sizes and dtypes in any state.
    """
    program = draft.program()
    inputs = copy_tensors(draft.inputs[name] for name in program.inputs)
    start = torch.default_generator.manual_seed(1).get_state()
    try:
        again = _tensors(program(*inputs))
    except Exception:  # of other numbers than those it was made with
        return None
    first = {value.ref: value.tensor for value in draft.values}
    results = [first[ref] for ref in leaves(program.outputs)]
    left = [first[Ref(name)] for name in program.inputs]
    draws = not torch.equal(start, torch.default_generator.get_state())
    if draws:
        same = [(t.shape, t.dtype) for t in again] == [(t.shape, t.dtype) for t in results]
    else:
        same = all(map(equal_tensors, [*again, *inputs], [*results, *left]))
    if not same:
        return None
    tags = (DRAWS,) if draws else ()
    try:
        return tags if runs_fake(program, inputs, again) else None
    except fake_tensors.DynamicOutputShapeException:
        return (*tags, SIZES_OF_VALUES)


def runs_fake(program: Program, inputs: Sequence[torch.Tensor], real: Sequence[torch.Tensor]) -> bool:
    """Whether the program runs on fake tensors and promises the shapes and dtypes of its real results.

    Raises DynamicOutputShapeException at an op whose sizes depend on values.
    """
    try:
        options: dict[str, Any] = {}
        if any(call.bodies() for call in program.calls):  # PyTorch asks for the sizes that a loop makes new
            new = symbolic_shapes.ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
            options = {"shape_env": new, "static_shapes": True}
        quiet = fake_tensors.refusals_unlogged()
        with quiet, fake_tensors.FakeTensorMode(allow_non_fake_inputs=False, **options) as mode:
            promised = _tensors(program(*(mode.from_tensor(tensor) for tensor in inputs)))
        return [(t.shape, t.dtype) for t in promised] == [(t.shape, t.dtype) for t in real]
    except fake_tensors.DynamicOutputShapeException:
        raise
    except Exception:  # numbers read from tensors, ops without a meta kernel: a compiler could not capture them either
        return False


def _case(draft: Draft, seed: str, index: int, tags: tuple[str, ...]) -> Case:
    program = draft.program()
    inputs = {name: draft.inputs[name] for name in program.inputs}
    names = [call.target.removeprefix("torch.").removeprefix("Tensor.").removeprefix("ops.") for call in program.calls]
    dtype = dtype_name(next(iter(inputs.values())).dtype if inputs else draft.base)
    label = "+".join(names)
    tags += needed_tags() if any(lookup_own(call.target) for call in program.calls) else ()
    return Case(program, inputs, "fuzz", label, dtype, f"seed-{seed}", index, tags)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
