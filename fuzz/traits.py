"""What is not plain about a case's inputs, and how to take that away from a case or give it to another.

Plain are float32 numbers from 0 to 10,000 in contiguous tensors of a few elements. Anything else may be what a bug
needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_lazy_bits
from torchstone.conformance.oracle.ulp import wide
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import DTYPES, dtype_name, leaves
from torchstone.conformance.variants.dynamic import BATCH, DYNAMIC

SPECIAL = "NaN or infinity"
LARGE = 1e4
"""A magnitude that a program of plain numbers does not have."""
MANY = 64
"""Elements that are not few."""


@dataclass(frozen=True)
class Change:
    """How a tensor loses a trait, and how it gets it from another, ``like``, that has it. Sizes may change with 0-d."""

    without: Callable[[Tensor], Tensor]
    put: Callable[[Tensor, Tensor], Tensor]


def traits(case: Case) -> frozenset[str]:
    """Return what is not plain about a case."""
    found = {trait for tensor in case.args for trait in of_tensor(tensor)}
    if case.args and all(tensor.dim() == 0 for tensor in case.args):
        found.add("0-d")
    if len({tensor.dtype for tensor in case.args}) > 1:
        found.add("mixed dtypes")
    if len({tensor.untyped_storage().data_ptr() for tensor in case.args if tensor.numel()}) < sum(
        bool(tensor.numel()) for tensor in case.args
    ):
        found.add("shared memory")
    if any(call.target == "torch.autograd.grad" for call in case.program.calls):
        found.add("gradients")
    literals = [leaf for call in case.program.calls for leaf in leaves((call.args, call.kwargs))]
    if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in literals):
        found.add(SPECIAL)
    if any("_given" in name for name in case.inputs):
        found.add("out=")
    if case.variant in (DYNAMIC, BATCH):
        found.add("sizes that vary")
    return frozenset(found)


def of_tensor(tensor: Tensor) -> Iterator[str]:
    """Yield what is not plain about a tensor."""
    if tensor.dtype != torch.float32:
        yield dtype_name(tensor.dtype)
    if not tensor.numel():
        yield "empty"
        return
    yield from layouts(tensor)
    if tensor.dtype == torch.bool:
        return
    numbers = _numbers(tensor)
    sizes = numbers.abs()
    if not bool(sizes.isfinite().all()):
        yield SPECIAL
    if bool((sizes.nan_to_num(0, 0, 0) > LARGE).any()):
        yield "large numbers"
    if bool((numbers < 0).any()):
        yield "negative numbers"
    if bool(((numbers == 0) & (torch.copysign(torch.ones_like(numbers), numbers) < 0)).any()):
        yield "negative zero"
    if tensor.numel() > MANY:
        yield "many elements"


def layouts(tensor: Tensor) -> Iterator[str]:
    """Yield what is not plain about how a tensor lies in memory."""
    if _is_expanded(tensor):
        yield "expanded"
    elif not tensor.is_contiguous():
        yield "not contiguous"
    if tensor.storage_offset():
        yield "offset"
    if tensor.is_conj():
        yield "lazy conjugate"
    if tensor.is_neg():
        yield "lazy negative"


def without(case: Case, names: Collection[str]) -> Case | None:
    """Return the case with traits taken away from every input; None where one cannot be."""
    if not all(name in CHANGES for name in names):
        return None
    inputs = dict(case.inputs)
    for name in names:
        inputs = {key: CHANGES[name].without(t) if _has(t, name) else t for key, t in inputs.items()}
    return case.replace(inputs=inputs)


_KINDS = (("bfloat16", "float16", "float64"), ("int32", "int16", "int8", "uint8"), ("complex128",))


def in_another_dtype(case: Case, name: str) -> Case | None:
    """Return the case with another dtype of its kind, not plain, in the place of one of several dtypes.

    None for a trait that is no dtype, and where every other one of the kind is among the inputs.
    """
    has = {dtype_name(tensor.dtype) for tensor in case.args}
    if name not in has or len(has) == 1:
        return None
    others = next((kind for kind in _KINDS if name in kind), ())
    other = next((one for one in others if one not in has), None)
    if other is None:
        return None
    inputs = {key: t.to(DTYPES[other]) if dtype_name(t.dtype) == name else t for key, t in case.inputs.items()}
    return case.replace(inputs=inputs)


def put(case: Case, name: str, source: Case) -> Case | None:
    """Return the case with a trait that ``source`` has in every input that can have it; None where none can."""
    like = next((tensor for tensor in source.args if _has(tensor, name)), None)
    if like is None or name not in CHANGES:
        return None
    fit = [key for key, t in case.inputs.items() if t.numel() and _may_have(t, name) and not _has(t, name)]
    if not fit:
        return None
    return case.replace(inputs={key: CHANGES[name].put(t, like) if key in fit else t for key, t in case.inputs.items()})


def _has(tensor: Tensor, name: str) -> bool:
    return tensor.dim() == 0 if name == "0-d" else name in of_tensor(tensor)


def _may_have(tensor: Tensor, name: str) -> bool:
    """Whether a tensor can have a trait. Integers are left as they are: most of them are indices or sizes."""
    if name == "lazy conjugate":
        return tensor.is_complex()
    return tensor.dtype.is_floating_point and (tensor.dim() > 0 or name not in ("not contiguous", "offset", "expanded"))


def _numbers(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj().to(torch.complex128))
    return tensor.to(torch.float64)


def _is_expanded(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _plain(tensor: Tensor) -> Tensor:
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _plain_dtype(tensor: Tensor) -> Tensor:
    """The tensor in the plain dtype of its kind."""
    if tensor.is_complex():
        return tensor.to(torch.complex64)
    return tensor.to(torch.float32 if tensor.dtype.is_floating_point or tensor.dtype == torch.bool else torch.int64)


def _first(tensor: Tensor, value: Tensor) -> Tensor:
    """The tensor with its first element replaced."""
    changed = tensor.clone()
    changed[(0,) * tensor.dim()] = value.to(tensor.dtype)
    return changed


def _special_of(like: Tensor) -> Tensor:
    numbers = _numbers(like).flatten()
    return numbers[~numbers.isfinite()][0]


def _largest(like: Tensor) -> Tensor:
    return _numbers(like).nan_to_num(0, 0, 0).abs().max()


def _finite(tensor: Tensor) -> Tensor:
    return torch.where(wide(tensor).isfinite(), tensor, torch.ones_like(tensor))


def _of_ordinary_size(tensor: Tensor) -> Tensor:
    return torch.where(wide(tensor).abs() > LARGE, torch.ones_like(tensor), tensor)


def _without_sign(tensor: Tensor) -> Tensor:
    return tensor.abs().to(tensor.dtype)


def _positive_zeros(tensor: Tensor) -> Tensor:
    return torch.where(tensor == 0, torch.zeros_like(tensor), tensor)


_LAYOUTS = {
    "not contiguous": lambda tensor, like: torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)[..., 0],
    "offset": lambda tensor, like: torch.cat([torch.zeros_like(tensor[:1]), tensor])[tensor[:1].shape[0] :],
    "expanded": lambda tensor, like: tensor[:1].clone().expand(tensor.shape),
    "lazy conjugate": lambda tensor, like: tensor.conj_physical().conj(),
    "lazy negative": lambda tensor, like: flip_lazy_bits(tensor.neg(), neg=True),
}
CHANGES: dict[str, Change] = {
    **{name: Change(_plain, make) for name, make in _LAYOUTS.items()},
    **{
        name: Change(_plain_dtype, lambda tensor, like: tensor.to(like.dtype))
        for name in DTYPES
        if name not in ("float32", "int64", "complex64")
    },
    SPECIAL: Change(_finite, lambda tensor, like: _first(tensor, _special_of(like))),
    "large numbers": Change(_of_ordinary_size, lambda tensor, like: _first(tensor, _largest(like))),
    "negative numbers": Change(_without_sign, lambda tensor, like: -_without_sign(tensor)),
    "negative zero": Change(_positive_zeros, lambda tensor, like: _first(tensor, torch.tensor(-0.0))),
    "0-d": Change(lambda tensor: tensor.reshape(1), lambda tensor, like: tensor.reshape(-1)[0].clone()),
}
"""How a trait is taken away and given, for those of which there is a way that fits any program."""
