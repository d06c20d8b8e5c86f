"""The variant ``mixed``: operands of two dtypes, or a tensor and a Python number of another kind, a few in one program.

What an op does by its operands' dtypes is code of its own for some pairs: a float times a power of two is exact where
the exponent is an integer.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.variants.bundles import draws
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import taken, together

Way = Callable[[], Case]


TELLING = 2
"""Ways that are asked of each sample: the first and the last operand in a dtype of another kind."""
BY_TURNS = 2
"""Ways that differ from sample to sample, of the others."""


def mixed(case: Case) -> Case:
    """One operand in another dtype, or a number of another kind: a few of the ways that eager takes, by the sample."""
    ways = list(_ways(case))
    if not ways:
        raise NotApplicable("no two operands")
    telling, others = [*_taken(_narrow(case), 1), *_taken(ways[:TELLING], TELLING)], ways[TELLING:]
    start = case.index * BY_TURNS % max(1, len(others))
    found = [*telling, *_taken(others[start:] + others[:start], TELLING + BY_TURNS - len(telling))]
    if not found:
        raise NotApplicable("eager takes operands of one dtype only")
    return found[0] if len(found) == 1 or draws(case) else together(found)


def narrow_places(case: Case) -> Case:
    """The case with its whole numbers of 64 bits in 32, where they are beside floats: indices and offsets are both."""
    places = [name for name, tensor in case.inputs.items() if tensor.dtype == torch.int64]
    if not places or not any(tensor.is_floating_point() for tensor in case.args):
        raise NotApplicable("no whole numbers beside floats")
    return case.replace(inputs={**case.inputs, **{name: case.inputs[name].to(torch.int32) for name in places}})


def _narrow(case: Case) -> list[Way]:
    with contextlib.suppress(NotApplicable):
        narrow = narrow_places(case)
        return [lambda: narrow]
    return []


def mixed_operands(case: Case, most: int) -> list[Case]:
    """The case with each of its operands in a dtype that is drawn, drawn so often; whole numbers beside floats stay."""
    floats = any(_is_float(tensor.dtype) for tensor in case.args)
    names = [name for name, tensor in case.inputs.items() if _is_float(tensor.dtype) == floats]
    if len(names) < 2:
        raise NotApplicable("no two operands")

    def drawn(tensor: Tensor) -> Tensor:
        return _converted(tensor, random.choice((tensor.dtype, *_others(tensor.dtype), *_LARGE_UNSIGNED)))

    return [
        case.replace(inputs={**case.inputs, **{name: drawn(case.inputs[name]) for name in names}}) for _ in range(most)
    ]


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _taken(ways: Sequence[Way], most: int) -> list[Case]:
    return list(itertools.islice((changed for way in ways if taken(changed := way())), most))


def _ways(case: Case) -> Iterator[Way]:
    names = list(case.inputs)
    for turn in range(len(_KINDS)):
        for name in dict.fromkeys((names[0], names[-1])) if len(names) > 1 else ():
            dtypes = _others(case.inputs[name].dtype)
            if turn < len(dtypes):
                yield partial(_as, case, name, dtypes[turn])
        if turn == 0:
            yield from (partial(_other_number, case, at) for at in range(_numbers(case)))
            if len(names) > 1 and _is_operand(case, names[-1]):
                yield partial(_number_for, case, names[-1])


def _as(case: Case, name: str, dtype: torch.dtype) -> Case:
    return case.replace(inputs={**case.inputs, name: _converted(case.inputs[name], dtype)})


_KINDS = (torch.complex64, torch.bool, torch.float16, torch.uint8, torch.uint16, torch.complex128)
"""Dtypes beside those that are tried first."""


def _others(dtype: torch.dtype) -> Sequence[torch.dtype]:
    """Dtypes of another kind, then of another width, then more."""
    if dtype.is_complex:
        own = dtype.to_real()
        first = [own, torch.int64, torch.float64 if own != torch.float64 else torch.float32]
    elif dtype.is_floating_point:
        first = [torch.int32, torch.float64 if dtype != torch.float64 else torch.float32, torch.bfloat16]
    elif dtype == torch.bool:
        first = [torch.int8, torch.float32]
    else:
        first = [torch.float32, torch.int64 if dtype != torch.int64 else torch.int16, torch.uint8]
    return [other for other in dict.fromkeys((*first, *_KINDS)) if other != dtype]


_LARGE_UNSIGNED = (torch.uint32, torch.uint64)
_UNSIGNED = (torch.uint8, torch.uint16, *_LARGE_UNSIGNED)


def _converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers in another dtype; of integers the halves, so that there is something that their dtype cannot hold."""
    if dtype.is_floating_point and not (tensor.is_floating_point() or tensor.is_complex()):
        return (tensor.to(torch.float64) / 2 + 0.25).to(dtype)
    numbers = tensor.real if tensor.is_complex() and not dtype.is_complex else tensor
    return numbers.abs().to(dtype) if dtype in _UNSIGNED and numbers.dtype != torch.bool else numbers.to(dtype)


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _numbers(case: Case) -> int:
    """How many numbers stand where an operand may: not inside a list of sizes, and no flag."""
    return sum(_is_number(v) for call in case.program.calls for v in (*call.args, *call.kwargs.values()))


def _other_number(case: Case, at: int) -> Case:
    """The case with its number ``at`` one of the other kind: a fraction for a whole one, or the other way round."""
    count = -1

    def change(value: Any) -> Any:
        nonlocal count
        count += _is_number(value)
        if not _is_number(value) or count != at:
            return value
        return value + 0.5 if type(value) is int else int(value)

    return case.replace(program=case.program.rewrite(lambda call: call.map_arguments(change, nested=False)))


def _is_operand(case: Case, name: str) -> bool:
    refs = [value for call in case.program.calls for value in (*call.args, *call.kwargs.values())]
    return sum(isinstance(ref, Ref) and ref.name == name for ref in refs) == 1


def _number_for(case: Case, name: str) -> Case:
    """The case with a Python number in the place of an input: of a kind that the others' dtype cannot hold."""
    first = next(iter(case.inputs.values()))
    number = 1.5 if not first.is_floating_point() and not first.is_complex() else 2

    def leaf(value: Any) -> Any:
        return number if isinstance(value, Ref) and value.name == name else value

    inputs = {key: tensor for key, tensor in case.inputs.items() if key != name}
    program = case.program.rewrite(lambda call: call.map_arguments(leaf), inputs=inputs)
    return case.replace(program=program, inputs=inputs)


def wide(case: Case) -> Case:
    """The case with one operand 0-d and of a wider dtype, or of the next kind where there is no wider one.

    A 0-d operand takes part in promotion by its kind alone: the result is as narrow as the others.
    """
    names = list(case.inputs)
    if len(names) < 2:
        raise NotApplicable("no two operands")
    start = case.index % 2 - 1  # the last operand of one sample, the first one of the next
    for name in names[start:] + names[:start]:
        if case.inputs[name].numel():
            changed = case.replace(inputs={**case.inputs, name: _widened(case.inputs[name])})
            if taken(changed):
                return changed
    raise NotApplicable("eager takes no 0-d operand of another dtype")


def _widened(tensor: Tensor) -> Tensor:
    """The first number in the widest dtype of its kind, and of integers one that the narrow dtype cannot hold."""
    dtype = tensor.dtype
    first = tensor.reshape(-1)[:1].clone().reshape(())
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex or dtype == torch.float64 else torch.float64
        return first.to(wide) * (1 + 1e-5)
    if dtype in (torch.int64, torch.uint64):
        return first.to(torch.float64) / 2 + 0.25
    return first.to(torch.int64) + (0 if dtype == torch.bool else 1 << 8 * dtype.itemsize)


WIDE = Variant("One operand 0-d and of a wider dtype than the others.", wide)
MIXED = Variant("Operands of two dtypes, or a tensor and a Python number of another kind, in one program.", mixed)
