"""Bugs of the memory of inputs and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.planted.bug import Compile, ask, bugs
from torchstone.conformance.planted.changes import (
    c64,
    f32,
    mixed,
    ramp,
)
from torchstone.conformance.program.literals import map_leaves
from torchstone.conformance.program.program import Program


def _copies(value: Any) -> Any:
    return map_leaves(value, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The results with other leaves, in the same structure: a named tuple of PyTorch's too."""
    made = map_leaves(value, leaf)
    return made if not isinstance(value, tuple) or type(value) is tuple else type(value)(made)


def on_arguments(change: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]) -> Compile:
    """The program on other arguments: a function of those of the example and those of the call."""

    def compile(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
        baked = _copies(example)
        return lambda *args: fn(*change(baked, args))

    return compile


def _static_results(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Results lie in memory that the next call uses again."""
    buffers: list[Tensor] = []

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        found = [leaf for leaf in flatten(result) if isinstance(leaf, Tensor)]
        if len(buffers) != len(found) or any(
            b.shape != t.shape or b.dtype != t.dtype for b, t in zip(buffers, found, strict=True)
        ):
            buffers[:] = [leaf.clone() for leaf in found]
        else:
            for buffer, leaf in zip(buffers, found, strict=True):
                buffer.copy_(leaf)
        following = iter(buffers)
        return _rebuilt(result, lambda leaf: next(following) if isinstance(leaf, Tensor) else leaf)

    return run


def _without_write_back(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Inputs that are not contiguous are copied, and the copy is not written back."""

    def run(*args: Tensor) -> Any:
        return fn(*(a if a.is_contiguous() else a.clone() for a in args))

    return run


def _donated_input(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """The first input's memory is used for the result's intermediate values, if both have one shape and dtype."""

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        first = args[0] if args else None
        if (
            first is not None
            and isinstance(result, Tensor)
            and first.numel() >= 16
            and first.is_contiguous()
            and first.shape == result.shape
            and first.dtype == result.dtype
            and first.data_ptr() != result.data_ptr()
        ):
            result = result.clone()
            first.detach().copy_(result)
        return result

    return run


def _written_gaps(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """An input with gaps that is written to is stored as a block: what lies in its gaps is 0 after it."""

    def run(*args: Tensor) -> Any:
        before = _copies(args)
        result = fn(*args)
        for old, arg in zip(before, args, strict=True):
            if (
                not arg.is_contiguous()
                and arg.numel() > 1
                and arg.dim()
                and not torch.equal(old, arg)
                and min(arg.stride()) > 0
            ):
                span = sum((n - 1) * s for n, s in zip(arg.shape, arg.stride(), strict=True)) + 1
                kept_values = arg.clone()
                torch.as_strided(arg, (span,), (1,), arg.storage_offset()).zero_()
                arg.copy_(kept_values)
        return result

    return run


def _same_memory(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """A result that is equal to an input is the input: a copy taken for nothing."""

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        if isinstance(result, Tensor):
            for arg in args:
                if arg.dtype is result.dtype and arg.shape == result.shape and torch.equal(arg, result):
                    return arg
        return result

    return run


def _equal_results(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Results that are equal are one tensor."""

    def run(*args: Tensor) -> Any:
        seen: list[Tensor] = []

        def leaf(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            for one in seen:
                if one.shape == value.shape and one.dtype is value.dtype and one.numel() and torch.equal(one, value):
                    return one
            seen.append(value)
            return value

        result = fn(*args)
        return _rebuilt(result, leaf)

    return run


def _at_start(example: tuple[Tensor, ...], args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.as_strided(a, a.shape, a.stride(), 0) if a.storage_offset() else a for a in args)


def _transposed(*shape: int) -> Tensor:
    return mixed(*shape).T


def _lazily(bit: str) -> Tensor:
    return c64(1 + 2j, 3 - 1j).conj() if bit == "conj" else c64(1 + 2j, 3 - 1j).conj().imag


MEMORY_OF_INPUTS_AND_RESULTS = bugs(
    "memory of inputs and results",
    (
        "conjugate-bit-dropped",
        "not conjugated",
        "lazily conjugated inputs",
        "memory read without the bit",
        on_arguments(lambda example, args: tuple(a.conj() if a.is_conj() else a for a in args)),
        lambda: ask("torch.exp", _lazily("conj")),
        lambda: ask("torch.exp", c64(1 + 2j)),
    ),
    (
        "negative-bit-dropped",
        "not negated",
        "lazily negated inputs: the imaginary part of a conjugate",
        "memory read without the bit",
        on_arguments(lambda example, args: tuple(torch.ops.aten._neg_view(a) if a.is_neg() else a for a in args)),
        lambda: ask("torch.exp", _lazily("neg")),
        lambda: ask("torch.exp", f32(1)),
    ),
    (
        "offset-ignored",
        "read from the start of the memory",
        "inputs with an offset",
        "pointer of the storage in place of the tensor's: intel/torch-xpu-ops#1656",
        on_arguments(_at_start),
        lambda: ask("torch.exp", ramp(5)[2:]),
        lambda: ask("torch.exp", ramp(5)[:3]),
    ),
    (
        "write-to-copy",
        "the input stays as it was",
        "inputs written to that are not contiguous",
        "copy that is not written back",
        _without_write_back,
        lambda: ask("torch.Tensor.add_", _transposed(2, 2), 1),
        lambda: ask("torch.Tensor.add_", mixed(2, 2), 1),
    ),
    (
        "input-as-scratch",
        "the first input is overwritten",
        "a result of its shape and dtype, 16 or more elements",
        "donated buffer",
        _donated_input,
        lambda: ask("torch.exp", ramp(16)),
        lambda: ask("torch.exp", ramp(15)),
    ),
    (
        "gaps-written",
        "what lies between the elements is 0",
        "inputs written to that have gaps",
        "write through a block: pytorch/pytorch#198102",
        _written_gaps,
        lambda: ask("torch.Tensor.add_", ramp(9)[::2], 1),
        lambda: ask("torch.Tensor.add_", ramp(9)[:4], 1),
    ),
    (
        "result-is-input",
        "the input itself",
        "results that are equal to an input",
        "copy removed as an identity",
        _same_memory,
        lambda: ask("torch.clone", f32(1, 2)),
        lambda: ask("torch.exp", f32(1, 2)),
    ),
    (
        "equal-results-are-one",
        "one tensor for both",
        "two results that are equal",
        "outputs deduplicated by value",
        _equal_results,
        lambda: ask("torch.aminmax", f32(2, 2)),
        lambda: ask("torch.aminmax", f32(2, 3)),
    ),
    (
        "results-in-static-memory",
        "overwritten by the next call",
        "a second call",
        "output buffers of a recorded graph",
        _static_results,
        lambda: ask("torch.exp", f32(1, 2)).again(f32(3, 4)),
        lambda: ask("torch.exp", f32(1, 2)),
    ),
)


BUGS = (*MEMORY_OF_INPUTS_AND_RESULTS,)
