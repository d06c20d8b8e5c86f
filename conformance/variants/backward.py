"""The variant ``backward``: a program that takes gradients, made of one that does not."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.evidence import inexact
from torchstone.conformance.oracle.op_traits.right_answers import DIFFERENTIABLE_IN_PART
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.ulp import step
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaf_paths
from torchstone.conformance.program.program import GRADIENTS, Call, Program
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.layout import expanded, transposed
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import FIRST_DIGITS, taken

MOST_ALONE = 4
"""Results of a program of which each is asked for gradients alone."""
_OF_ONE = {"allow_unused": True, "retain_graph": True}


def backward(case: Case, *, of_any_size: bool = False) -> Case:
    """The program, and the gradients of its differentiable results, together and each alone, for given ones of them.

    Results that have none stay among the outputs: indices show what the gradients follow from. Gradients that come in
    are inputs, or, ``of_any_size``, the cosines of the results: these have their sizes whatever the inputs' are.
    """
    program = case.program
    if any(call.target == GRADIENTS for call in program.calls):
        raise NotApplicable("the program takes gradients already")
    floats = [name for name, t in case.inputs.items() if inexact(t)]
    if not floats:
        raise NotApplicable("no input is differentiable")
    steps = _Steps()
    try:
        with steps:
            forward, results = _forward(case, floats)
    except RuntimeError:  # an input that is no parameter, a running mean: leave those out that cannot be alone
        floats = [name for name in floats if _runs(case, name)]
        forward, results = _forward(case, floats)
    tensors = [(path, value) for path, value in leaf_paths(results) if isinstance(value, Tensor)]
    paths = [path for path, value in tensors if value.requires_grad]
    others = [_ref(forward.outputs, path) for path, value in tensors if not value.requires_grad]
    if not paths:
        raise NotApplicable("no result is differentiable")
    refs = [_ref(forward.outputs, path) for path in paths]
    given = {f"cotangent{i}": _cotangent(_at(results, path), case.index) for i, path in enumerate(paths)}
    made = [Call("torch.cos", (ref,), {}, name) for ref, name in zip(refs, given, strict=True) if of_any_size]
    inputs = {} if of_any_size else given
    leaves = [Ref(f"{name}_leaf") for name in floats]
    alone = [
        Call(GRADIENTS, ([ref], leaves, [Ref(name)]), _OF_ONE, f"gradients_of_{i}")
        for i, (ref, name) in enumerate(zip(refs, given, strict=True))
        if 1 < len(refs) <= MOST_ALONE
    ]
    cotangents = [Ref(name) for name in given]
    gradients = Call(GRADIENTS, (refs, leaves, cotangents), {"allow_unused": True}, "gradients")
    detached = [Call("torch.Tensor.detach", (ref,), {}, f"result{i}") for i, ref in enumerate(refs)]
    outputs = (*(Ref(call.result) for call in detached), Ref("gradients"), *others, *(Ref(c.result) for c in alone))
    whole = Program((*program.inputs, *inputs), (*forward.calls, *made, *alone, gradients, *detached), outputs)
    found = case.replace(program=whole, inputs={**case.inputs, **inputs})
    if steps.differentiable_in_part and not _are_steady(found, floats):
        raise NotApplicable("PyTorch defines no gradient of such a matrix")
    return found


def has_gradients(case: Case) -> bool:
    """Whether PyTorch defines the gradients that a case asks for: at another size a matrix may be singular."""
    if not case.program.differentiates:
        return True
    with _Steps() as steps:
        case.program(*case.fresh_args())
    if not steps.differentiable_in_part:
        return True
    return _are_steady(case, [name for name, t in case.inputs.items() if inexact(t)])


class _Steps(ComputingMode):
    """Notes whether an operator has a gradient of some matrices alone."""

    differentiable_in_part = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.differentiable_in_part |= DIFFERENTIABLE_IN_PART.holds(func)
        return func(*args, **(kwargs or {}))


def _are_steady(case: Case, names: Sequence[str]) -> bool:
    """Whether eager's gradients are finite, and keep their first digits when the inputs ``names`` move by one ULP."""
    program = case.program
    grads = tuple(Ref(call.result) for call in program.calls if call.target == GRADIENTS)

    def gradients(seed: int) -> list[Tensor]:
        draws, inputs = torch.Generator().manual_seed(seed), dict(case.inputs)
        for name in names if seed else ():
            inputs[name] = step(inputs[name], torch.randint(0, 2, inputs[name].shape, generator=draws) * 2 - 1)
        asked = case.replace(program=replace(program, outputs=grads), inputs=inputs)
        return [leaf for leaf in flatten(asked.program(*asked.fresh_args())) if isinstance(leaf, Tensor)]

    try:
        first, *others = map(gradients, (0, 1, 2))
    except RuntimeError:  # it is eager that refuses them
        return True
    if not all(bool(torch.isfinite(gradient).all()) for gradient in first):
        return False
    for moved in others:
        for gradient, other in zip(first, moved, strict=True):
            if gradient.numel() and not (other - gradient).abs().max() <= FIRST_DIGITS * gradient.abs().max():
                return False
    return True


def with_gradients(case: Case, *, of_any_size: bool = False) -> Case:
    """The case with its gradients, where it has some and eager comes through them; else as it is.

    Eager's gradient of a batch norm of nothing divides by zero, and ends the process; so does a segment reduction.
    """
    if answers([lambda: taken(backward(case, of_any_size=of_any_size))], most=1)[0]:
        with contextlib.suppress(NotApplicable):
            return backward(case, of_any_size=of_any_size)
    return case


def _cotangent(result: Tensor, index: int) -> Tensor:
    """A gradient that comes in, of both signs: dense, with its dims turned round in memory, or one row for all."""
    drawn = torch.randn_like(result, memory_format=torch.contiguous_format)
    return (drawn, transposed(drawn), expanded(drawn))[index % 3]


def _forward(case: Case, wanted: Sequence[str]) -> tuple[Program, Any]:
    """The program on leaves that ask for gradients in place of the inputs ``wanted``, and what it gives."""
    program = case.program

    def leaf(value: Any) -> Any:
        return Ref(f"{value.name}_leaf", value.path) if isinstance(value, Ref) and value.name in wanted else value

    leaves = [Call("torch.Tensor.detach", (Ref(name),), {}, f"{name}_data") for name in wanted]
    leaves += [Call("torch.Tensor.requires_grad_", (Ref(f"{name}_data"),), {}, f"{name}_leaf") for name in wanted]
    forward = program.rewrite(lambda call: call.map_arguments(leaf), outputs=leaf, before=leaves)
    with torch.enable_grad():
        return forward, forward(*case.fresh_args())


def _runs(case: Case, name: str) -> bool:
    try:
        _forward(case, [name])
    except RuntimeError:
        return False
    return True


def _at(results: Any, path: Sequence[Any]) -> Tensor:
    for key in path:
        results = results[key]
    return results


def _ref(outputs: Any, path: Sequence[Any]) -> Ref:
    """The reference to a result: into the tree of outputs as far as it goes, then into what the call gave."""
    steps = list(path)
    while not isinstance(outputs, Ref):
        outputs = outputs[steps.pop(0)]
    return Ref(outputs.name, (*outputs.path, *steps))


BACKWARD = Variant("The results and the gradients of the inputs.", backward)
