"""Other ways to run a whole program: other memory for inputs and results, functionalized, other random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.pytrees import tree_leaves, tree_map_only
from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.backends.protocol import BackendUnsupported
from torchstone.conformance.controls.control import Control
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.op_traits.execution import READS_THE_LAYOUT
from torchstone.conformance.program.program import GRADIENTS

Program = Callable[..., Any]


def _always(ops: Any) -> bool:
    return True


# Memory of results


def column_major(value: Tensor) -> Tensor:
    reversed_dims = list(range(value.dim()))[::-1]
    return value.permute(reversed_dims).clone(memory_format=torch.contiguous_format).permute(reversed_dims)


def channels_last(value: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return value.clone(memory_format=formats.get(value.dim(), torch.contiguous_format))


def padded(value: Tensor) -> Tensor:
    """Rows with room between them."""
    if not value.dim():
        return value.clone()
    out = value.new_empty([*value.shape[:-1], value.shape[-1] + 3])[..., : value.shape[-1]]
    return out.copy_(value)


def _results(name: str, layout: Callable[[Tensor], Tensor], how: str) -> Control:
    def build(fn: Program, ran: list[str]) -> Program:
        def change(value: Tensor) -> Tensor:
            if value.layout is not torch.strided or value.is_quantized:
                return value
            ran.append(name)
            return layout(value.detach().resolve_conj().resolve_neg())

        return lambda *tensors: tree_map_only(Tensor, change, fn(*tensors))

    claim = f"Results in memory of their own, {how}: strides are not compared, and a copy in place of a view is right."
    return Control(name, claim, build, _always)


# Memory of inputs


def _row_major(fn: Any, ran: list[str]) -> Program:
    if any(READS_THE_LAYOUT.has(call.operator) for call in getattr(fn, "calls", ())):
        raise BackendUnsupported("the program reads how its inputs lie in memory", stage="capture")

    def run(*tensors: Tensor) -> Any:
        keys = [storage_key(tensor) for tensor in tensors]
        copies = []
        for tensor, key in zip(tensors, keys, strict=True):
            alone = keys.count(key) == 1 and not (
                tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
            )
            ran.extend(["inputs"] * alone)
            plain = tensor.detach().resolve_conj().resolve_neg()
            copies.append(plain.clone(memory_format=torch.contiguous_format) if alone else tensor)
        try:
            out = fn(*copies)
        except RuntimeError as error:
            if "inputs" not in ran:
                raise
            raise BackendUnsupported(f"PyTorch refuses these inputs in row-major memory: {error}") from error
        for tensor, copy in zip(tensors, copies, strict=True):
            if copy is not tensor and not same_bits(copy, tensor.detach()):  # not each kernel that writes counts it
                tensor.copy_(copy)
        return out

    return run


# Without writes and views


def _dtypes(out: Any) -> list[Any]:
    return [leaf.dtype for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]


def _functionalized(fn: Any, ran: list[str]) -> Program:
    if any(call.target == GRADIENTS for call in getattr(fn, "calls", ())):
        raise BackendUnsupported("torch.func.functionalize does not take torch.autograd.grad", stage="capture")
    compiled = torch.func.functionalize(fn, remove="mutations_and_views")

    def run(*tensors: Tensor) -> Any:
        ran.append("functionalize")
        with torch.random.fork_rng(devices=[]):
            wanted = _dtypes(fn(*map(torch.clone, tensors)))  # what eager refuses, no control takes
        try:
            out = compiled(*tensors)
        except RuntimeError as error:  # it has no numbers to read, as of the places where a tensor is split
            raise BackendUnsupported(f"torch.func.functionalize does not run it: {error}", stage="run") from error
        if _dtypes(out) != wanted:  # a write into fewer bits becomes a result of more
            raise BackendUnsupported("torch.func.functionalize gives other dtypes than the program", stage="run")
        return out

    return run


# Random numbers


def _draws(ops: Any) -> bool:
    return any(torch.Tag.nondeterministic_seeded in op.tags for op in ops)


def _other_generator(seeded: bool) -> Callable[[Program, list[str]], Program]:
    def build(fn: Program, ran: list[str]) -> Program:
        own = torch.Generator().manual_seed(0xD1CE)

        def run(*tensors: Tensor) -> Any:
            ran.append("generator")
            seed = int(torch.randint(1 << 62, (), generator=None if seeded else own))
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return fn(*tensors)

        return run

    return build


CONTROLS = (
    _results("column_major_results", column_major, "column after column"),
    _results("channels_last_results", channels_last, "channels last"),
    _results("padded_results", padded, "rows with room between them"),
    Control(
        "row_major_inputs",
        "Inputs are copied to row-major memory, and what is written to them is copied back: the values of a program do "
        "not depend on how its inputs lie in memory. What PyTorch refuses in row-major memory is declined.",
        _row_major,
        _always,
    ),
    Control(
        "functionalized",
        "torch.func.functionalize: every view is a copy, every write a new tensor, copied back in the end. A copy in "
        "place of a view is right.",
        _functionalized,
        lambda ops: any(op.is_view or schema_of(op).is_mutable for op in ops),
    ),
    Control(
        "other_generator",
        "Random numbers of a generator of its own: judged by their distribution.",
        _other_generator(seeded=False),
        _draws,
    ),
    Control(
        "seeded_generator",
        "Other random numbers, the same for the same seed, which is all that is claimed.",
        _other_generator(seeded=True),
        _draws,
        random_numbers="seeded",
    ),
)
