"""Edits of cases that every pass needs: run in eager, rename, prune what nothing uses, rebuild inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.apart import ask_apart
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.ulp import wide
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call, Program


def prune_and_rename(case: Case, program: Program, inputs: dict[str, Tensor]) -> Case:
    """Return the case with this program and these inputs, pruned and renamed.

    ``inputs`` has a tensor for each input of the program. Calls and inputs that no output depends on are gone; inputs
    are called x0, x1 … in the order of their use, and results v0, v1 ….
    """
    needed = {ref.name for ref in leaves(program.outputs)}
    kept: list[Call] = []
    for call in reversed(program.calls):
        if call.result in needed or call.target.endswith("_"):  # an in-place call is used for what it does
            kept.append(call)
            needed |= {ref.name for ref in call.refs()}
    kept.reverse()
    used = [ref.name for call in kept for ref in call.refs()] + [ref.name for ref in leaves(program.outputs)]
    inputs = {name: inputs[name] for name in dict.fromkeys(used) if name in inputs}
    names = {name: f"x{at}" for at, name in enumerate(inputs)}
    names |= {call.result: f"v{at}" for at, call in enumerate(kept)}
    program = Program(tuple(inputs), tuple(kept), program.outputs).rename(names)
    return case.replace(program=program, inputs={names[name]: tensor for name, tensor in inputs.items()})


def tidy(case: Case) -> Case:
    """Return the case pruned and renamed, with nothing else changed."""
    return prune_and_rename(case, case.program, case.inputs)


def with_inputs(case: Case, inputs: dict[str, Tensor]) -> Case:
    """Return the case with some of its inputs replaced; the others are kept as they are."""
    return case.replace(inputs={name: inputs.get(name, tensor) for name, tensor in case.inputs.items()})


def map_arguments(case: Case, change: Callable[[Any], Any]) -> Case:
    """Return the case with ``change`` applied to every leaf of every call's arguments."""
    return prune_and_rename(case, case.program.rewrite(lambda call: call.map_arguments(change)), case.inputs)


def results(case: Case, until: int | None = None) -> dict[str, Any]:
    """Return what eager computes: every name's value after the calls before number ``until`` (all of them) have run."""
    calls = case.program.calls[:until]
    if not calls:
        return dict(zip(case.program.inputs, case.fresh_args(), strict=True))
    everything = [Ref(name) for name in case.program.inputs] + [Ref(call.result) for call in calls]
    with ignore_warnings():
        values = Program(case.program.inputs, calls, everything)(*case.fresh_args())
    return dict(zip([ref.name for ref in everything], values, strict=True))


def tensors_in(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[int | str, ...], Tensor]]:
    """Yield every tensor in a result, with the path to it."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from tensors_in(item, (*path, at))


def trim(tensor: Tensor) -> Tensor:
    """Return the same view into a storage that holds no more than it reaches: contiguous ones become compact."""
    if tensor.is_conj() or tensor.is_neg() or tensor.is_contiguous() or tensor.numel() == 0:
        return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    reach = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    flat = tensor.detach().as_strided((reach,), (1,), tensor.storage_offset()).clone()
    return flat.as_strided(tensor.shape, tensor.stride())


def has_special_values(case: Case) -> bool | None:
    """Run the case in eager: whether an input or a result holds an inf or a nan, None if it raises an error.

    Nor is there an answer where eager would corrupt memory, or end the process: another one runs it.
    """
    return ask_apart(_has_special_values, case)


def _has_special_values(case: Case, _: str) -> bool | None:
    if undefined_behavior(case):
        return None
    try:
        with ignore_warnings():
            found = list(tensors_in([*case.args, case.program(*case.fresh_args())]))
            floating = [t for _, t in found if t.dtype.is_floating_point or t.dtype.is_complex]
            return not all(bool(wide(tensor).isfinite().all()) for tensor in floating)  # not known of float8 as it is
    except Exception:
        return None


def ignore_warnings() -> warnings.catch_warnings:
    """Return a context in which warnings are ignored and afterwards are as before."""
    return warnings.catch_warnings(action="ignore")
