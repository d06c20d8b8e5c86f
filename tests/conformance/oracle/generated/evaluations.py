"""Right evaluations of a program that are not eager's: other roundings, another library, another order of the terms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from torchstone.conformance.oracle.exactness.steps import never_rounds
from torchstone.conformance.oracle.op_traits.rounding import ONE_ROUNDING
from torchstone.conformance.oracle.reference.widen import float64_by_default, widen_inputs, widen_program
from torchstone.conformance.oracle.ulp import step
from torchstone.conformance.program.program import Program

aten = torch.ops.aten


class OtherLibrary(TorchDispatchMode):
    """Each step that IEEE 754 does not prescribe is off by up to so many ULPs, as those of a good library are."""

    def __init__(self, seed: int, ulps: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.ulps = ulps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out if never_rounds(func) or ONE_ROUNDING.holds(func) else tree_map(self._off, out)

    def _off(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
            return value
        for _ in range(self.ulps):
            value = step(value, torch.randint(-1, 2, value.shape, generator=self.generator))
        return value


class OneByOne(TorchDispatchMode):
    """Sums and contractions from the first term to the last, in float32 where operands have 16 bits."""

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self.backwards = backwards

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.sum.default, aten.mean.default):
            terms = args[0].reshape(-1)
            total = self._total(terms)
            return (total / terms.numel() if func is aten.mean.default else total).to(args[0].dtype)
        if func is aten.sum.dim_IntList and len(args[1]) == 1 and len(args) < 3:
            return self._total(args[0].movedim(args[1][0], 0)).to(args[0].dtype)
        if func is aten.mv.default:
            return self._total((self._wide(args[0]) * self._wide(args[1])).mT).to(args[0].dtype)
        if func is aten.mm.default:
            products = self._wide(args[0]).mT.unsqueeze(-1) * self._wide(args[1]).unsqueeze(1)
            return self._total(products).to(args[0].dtype)
        return func(*args, **kwargs)

    def _wide(self, value: Tensor) -> Tensor:
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value

    def _total(self, terms: Tensor) -> Tensor:
        rows = list(self._wide(terms).unbind(0))
        rows = rows[::-1] if self.backwards else rows
        total = rows[0]
        for row in rows[1:]:
            total = total + row
        return total


def _inside(program: Program, mode: Any) -> Callable[..., Any]:
    def run(*tensors: Tensor) -> Any:
        with mode:
            return program(*tensors)

    return run


def rounded_once(program: Program) -> Callable[..., Any]:
    """The program in float64, and its results, and what it writes to, rounded to the dtype of eager's."""

    def run(*tensors: Tensor) -> Any:
        plain = program(*(tensor.clone() for tensor in tensors))
        wide = widen_inputs(tensors)
        with float64_by_default():
            outputs = widen_program(program)(*wide)
        for tensor, after in zip(tensors, wide, strict=True):
            tensor.copy_(after)
        return tree_map(lambda a, b: a.to(b.dtype) if isinstance(a, Tensor) else a, outputs, plain)

    return run


def moved(program: Program, seed: int) -> Callable[..., Any]:
    """Eager on inputs that are off by up to one ULP."""
    generator = torch.Generator().manual_seed(seed)

    def run(*tensors: Tensor) -> Any:
        near = [step(t, torch.randint(-1, 2, t.shape, generator=generator)) for t in tensors]
        return program(*near)

    return run


def evaluations(program: Program, dtype: torch.dtype, rng: random.Random) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Other right evaluations, with their names."""
    seed = rng.randrange(1 << 30)
    yield "float64 rounded once", rounded_once(program)
    yield "inputs moved by an ULP", moved(program, seed)
    yield "another library", _inside(program, OtherLibrary(seed, 1))
    if torch.finfo(dtype).bits > 16:
        yield "another library, 2 ULPs", _inside(program, OtherLibrary(seed + 1, 2))
    yield "one by one", _inside(program, OneByOne(False))
    yield "one by one backwards", _inside(program, OneByOne(True))
