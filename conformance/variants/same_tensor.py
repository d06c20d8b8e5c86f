"""The variants ``same`` and ``inplace``: one tensor for every operand, read alone, or written to as well.

``x - x`` is no zero where ``x`` is infinite, and an in-place form reads what it writes: a compiler that simplifies, or
that writes a result before it has read all operands, is found out.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchstone.conformance.program.call_targets import lookup
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Ref
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.shapes import with_equal_sizes
from torchstone.conformance.variants.support import agreeing, answer, change_inputs


def same(case: Case) -> Case:
    """The case with its first input for every one of the same dtype and shape; of all of one size, if there is none."""
    found = _twins(case)
    if not found:
        case = change_inputs(case, with_equal_sizes, "no other input has the dtype and the dims of the first")
        found = _twins(case)
    if not found:
        raise NotApplicable("no other input has the dtype and the dims of the first")
    first = case.program.inputs[0]

    def leaf(value: Any) -> Any:
        return Ref(first, value.path) if isinstance(value, Ref) and value.name in found else value

    inputs = {name: tensor for name, tensor in case.inputs.items() if name not in found}
    program = case.program.rewrite(lambda call: call.map_arguments(leaf), outputs=leaf, inputs=inputs)
    return case.replace(program=program, inputs=inputs)


def inplace(case: Case) -> Case:
    """The in-place form of the call, given the tensor that it writes to for every operand of its dtype and shape.

    Operands that overlap what is written are left to each op by PyTorch: the case is asked where eager gives what it
    gives without writing.
    """
    form = _inplace_form(case)
    first, twins = case.program.inputs[0], _twins(case)
    shared = case.replace(inputs={name: case.inputs[first if name in twins else name] for name in case.inputs})
    changed = shared.replace(program=case.program.rewrite(lambda call: form))
    plain, written = answer(shared), answer(changed)
    if plain is None or written is None or not agreeing(plain, written):
        raise NotApplicable("eager does not take the in-place form, or gives something else")
    return changed


def _inplace_form(case: Case) -> Call:
    if len(case.program.calls) == 1 and case.program.inputs:
        (call,), first = case.program.calls, Ref(case.program.inputs[0])
        target = f"torch.Tensor.{call.operator}_"
        if call.args[:1] == (first,) and case.program.outputs == Ref(call.result) and lookup(target) is not None:
            return Call(target, call.args, call.kwargs, call.result)
    raise NotApplicable("the program is no call that has an in-place form")


def _twins(case: Case) -> list[str]:
    """The other inputs of the dtype and the shape of the first."""
    if not case.inputs:
        return []
    (_, first), *others = case.inputs.items()
    return [name for name, tensor in others if _kind(tensor) == _kind(first)]


def _kind(tensor: Tensor) -> tuple[Any, Any]:
    return tensor.dtype, tensor.shape


SAME = Variant("One tensor in the place of all operands.", same)
INPLACE = Variant("The in-place form, and what it writes to in the place of all operands.", inplace)
