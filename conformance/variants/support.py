"""What several variants need: other inputs, eager's answer, and whether two answers are the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.equality import close, equal_tensors
from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.random.unwritten import run_filled
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import map_leaves
from torchstone.conformance.program.program import Program, Ref
from torchstone.conformance.variants.protocol import NotApplicable, Variant

FIRST_DIGITS = 1e-2
"""Relative and absolute: further apart than this, eager's two results are of different numbers."""

_MARGIN = 64
"""Elements on each side of a tensor that are changed, to see whether eager reads them."""


def change_inputs(case: Case, change: Callable[[Tensor], Tensor], reason: str) -> Case:
    """The case with every input changed; NotApplicable when ``change`` returns all of them as they are."""
    storages = [t.untyped_storage().data_ptr() for t in case.args if t.numel()]
    if len(set(storages)) < len(storages):
        raise NotApplicable("inputs share memory, and the variant would part them")
    changed = {name: change(tensor) for name, tensor in case.inputs.items()}
    if all(changed[name] is tensor for name, tensor in case.inputs.items()):
        raise NotApplicable(reason)
    return case.replace(inputs=changed)


def together(cases: Sequence[Case], names: Sequence[str] = ()) -> Case:
    """One case that asks several of one program's kind, one after the other; inputs that are one tensor stay one, but
    where a program may write to its inputs, which would be another part's.

    With ``names`` the results and inputs of each have its name behind theirs; without, a number, but for the first.
    """
    if len(cases) == 1:
        return cases[0]
    first, ends = cases[0], [f"_{name}" for name in names] or ["", *(f"_{number}" for number in range(1, len(cases)))]
    inputs: dict[str, Tensor] = {}
    known: dict[int, str] = {}
    calls, outputs = [], []
    for case, end in zip(map(_with_inputs_of_its_own, cases), ends, strict=True):
        renamed = {call.result: f"{call.result}{end}" for call in case.program.calls}
        for name, tensor in case.inputs.items():
            renamed[name] = known.setdefault(id(tensor), f"{name}{end}")
            inputs[renamed[name]] = tensor

        def leaf(value: Any, renamed: dict[str, str] = renamed) -> Any:
            return Ref(renamed[value.name], value.path) if isinstance(value, Ref) else value

        for call in case.program.calls:
            calls.append(replace(call.map_arguments(leaf), result=renamed[call.result]))
        outputs.append(map_leaves(case.program.outputs, leaf))
    return first.replace(program=Program(tuple(inputs), tuple(calls), tuple(outputs)), inputs=inputs)


def _with_inputs_of_its_own(case: Case) -> Case:
    if not any(call.writes for call in case.program.calls):
        return case
    return case.replace(inputs=dict(zip(case.inputs, case.fresh_args(), strict=True)))


def resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """A tensor of another size in one dim, its elements taken from ``tensor`` again and again: indices stay indices.

    Of integers the last one is repeated: what rises goes on rising, as offsets have to.
    """
    places, before = torch.arange(size), tensor.shape[axis]
    floats = tensor.is_floating_point() or tensor.is_complex()
    return tensor.index_select(axis, places % before if floats else places.clamp(max=before - 1))


def of_each_input(doc: str, change: Callable[[Tensor], Tensor], reason: str, *, try_eager: bool = True) -> Variant:
    """A variant that changes each input by itself; ``reason`` is told of cases in which that changes nothing."""
    return Variant(doc, lambda case: change_inputs(case, change, reason), try_eager=try_eager)


def answer(case: Case) -> list[Any] | None:
    """The leaves of what eager gives, None where it does not take the case."""
    try:
        with torch.no_grad():
            if undefined_behavior(case):
                return None
            return determined(case.program, case.fresh_args())[: -len(case.args) or None]
    except Exception:
        return None


def determined(program: Program, args: tuple[Tensor, ...]) -> list[Any]:
    """The leaves of what eager gives, then its inputs afterwards: from one seed, and with no memory left unwritten."""
    torch.default_generator.manual_seed(0)
    return run_filled(program, args)


def taken(case: Case) -> bool:
    """Whether eager takes the case."""
    return answer(case) is not None


def complaint(case: Case) -> str:
    """What eager says where it refuses the case, without its numbers; "" where it takes it, or may do anything."""
    try:
        with torch.no_grad():
            if not undefined_behavior(case):
                determined(case.program, case.fresh_args())
    except Exception as error:
        return re.sub(r"\d+", "0", f"{type(error).__name__}: {error}")
    return ""


def alike(one: list[Any], other: list[Any]) -> bool:
    """Whether two results have the same shapes and dtypes."""
    return [_kind(leaf) for leaf in one] == [_kind(leaf) for leaf in other]


def _kind(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf)


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two results are the same in every number."""
    return alike(one, other) and all(map(_equal, one, other))


def _equal(one: Any, other: Any) -> bool:
    return equal_tensors(one, other) if isinstance(one, Tensor) else bool(one == other)


def agreeing(one: list[Any], other: list[Any]) -> bool:
    """Whether two results agree in their first digits."""
    if not alike(one, other):
        return False
    return all(_close(a, b) if isinstance(a, Tensor) else bool(a == b) for a, b in zip(one, other, strict=True))


def _close(one: Tensor, other: Tensor) -> bool:
    one, other = (dense(t).to(torch.complex128 if t.is_complex() else torch.float64) for t in (one, other))
    return close(one, other, FIRST_DIGITS, FIRST_DIGITS)


def reads_beyond(case: Case) -> bool:
    """Whether eager's results depend on what lies around its inputs in memory; raises what eager raises.

    Offsets and lengths that fitted the sizes of before need not fit these, and eager does not always look.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        if undefined_behavior(case):
            return True
    found = []
    for around in (1000.0, -1000.0):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            args = tuple(_surrounded(tensor, around) for tensor in case.args)
            found.append(determined(case.program, args)[: -len(args) or None])
    return any(
        isinstance(a, Tensor) and a.is_floating_point() and not equal_tensors(a, b) for a, b in zip(*found, strict=True)
    )


def _surrounded(tensor: Tensor, around: float) -> Tensor:
    """A copy, of floats with ``around`` on both sides of it in memory."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.clone()
    row = torch.full((tensor.numel() + 2 * _MARGIN,), around, dtype=tensor.dtype)
    return row[_MARGIN : _MARGIN + tensor.numel()].view(tensor.shape).copy_(tensor)
