"""Backends with one mistake each: what the suite, the fuzzer and the reducers must catch.

Some are eager PyTorch but for one op, others the built-in compiler but for one row of its linalg lowering. They are
named on the command line as ``--backend tests.mutants:swapped_sub``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.conformance.backends.adapters.builtin import Linalg
from torchstone.conformance.backends.protocol import Availability, BackendError

aten = torch.ops.aten
Wrong = Callable[..., Any]


class MutatedEager:
    """Eager with a wrong version of some ATen ops: ``wrong`` maps overload packets to what runs in their place."""

    def __init__(self, name: str, wrong: dict[Any, Wrong]) -> None:
        self.name = name
        self.wrong = wrong

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            with _Swap(self.wrong):
                return fn(*tensors)

        return run


class _Swap(TorchDispatchMode):
    def __init__(self, wrong: dict[Any, Wrong]) -> None:
        super().__init__()
        self.wrong = wrong

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        wrong = self.wrong.get(func.overloadpacket)
        return wrong(func, *args, **(kwargs or {})) if wrong else func(*args, **(kwargs or {}))


class MutatedRow(Linalg):
    """The built-in linalg backend with one row of an elementwise table (FLOAT, INT …) replaced while it compiles."""

    def __init__(self, name: str, table: str, op: str, rule: Callable[[], Wrong]) -> None:
        self.label, self.table, self.op, self.rule = name, table, op, rule

    def _mutated(self) -> Any:
        from torchstone.compiler.lowering.linalg import elementwise

        return mock.patch.dict(getattr(elementwise, self.table), {self.op: self.rule()})

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        with self._mutated():
            return super().compile(fn, args)

    def compile_many(self, programs: Any) -> list[Any]:
        with self._mutated():
            return super().compile_many(programs)


def _arith(name: str, *order: int) -> Callable[[], Wrong]:
    """A rule that builds an arith op, or a math one, on operands in the given order."""

    def rule() -> Wrong:
        from torchstone.compiler import mlir

        build = getattr(mlir.arith, name, None) or getattr(mlir.math, name)
        return lambda scope, *operands: build(*(operands[at] for at in order))

    return rule


def swapped(func: Any, left: Any, right: Any, **kwargs: Any) -> Any:
    if not isinstance(right, Tensor):
        return func(left, right, **kwargs)
    return func(right, left, **kwargs)


def _max_without_nan(func: Any, left: Tensor, right: Tensor) -> Tensor:
    return torch.fmax(left, right)


def _sum_over_next_axis(func: Any, operand: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Tensor:
    if dim is None or operand.dim() < 2 or len(dim) != 1:
        return func(operand, dim, keepdim, **kwargs) if dim is not None else func(operand, **kwargs)
    return func(operand, [(dim[0] + 1) % operand.dim()], keepdim, **kwargs)


def _slice_off_by_one(
    func: Any, operand: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    if end is not None and 0 < (start or 0) < end <= operand.shape[dim]:
        start, end = start - 1, end - 1
    return func(operand, dim, start, end, step)


def _round_half_up(func: Any, operand: Tensor, **kwargs: Any) -> Tensor:
    return torch.floor(operand + 0.5) if operand.dtype.is_floating_point and not kwargs else func(operand, **kwargs)


def _abort(func: Any, *args: Any, **kwargs: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _refuse(func: Any, operand: Tensor, *args: Any, **kwargs: Any) -> Any:
    if operand.dim() >= 2:
        raise BackendError(f"failed to legalize operation '{func}' on {tuple(operand.shape)}", "compile")
    return func(operand, *args, **kwargs)


def _lost_through_a_view(func: Any, written: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(written.clone() if written._base is not None else written, *args, **kwargs)


swapped_sub = MutatedEager("swapped-sub", {aten.sub: swapped})
max_without_nan = MutatedEager("max-without-nan", {aten.maximum: _max_without_nan})
sum_wrong_axis = MutatedEager("sum-wrong-axis", {aten.sum: _sum_over_next_axis})
slice_off_by_one = MutatedEager("slice-off-by-one", {aten.slice: _slice_off_by_one})
round_half_up = MutatedEager("round-half-up", {aten.round: _round_half_up})
crashing_cumsum = MutatedEager("crashing-cumsum", {aten.cumsum: _abort})
failing_softmax = MutatedEager("failing-softmax", {aten._softmax: _refuse})
lost_through_a_view = MutatedEager(
    "lost-through-a-view", dict.fromkeys((aten.copy_, aten.fill_, aten.add_, aten.mul_), _lost_through_a_view)
)
correct = MutatedEager("correct", {})

linalg_swapped_sub = MutatedRow("linalg-swapped-sub", "FLOAT", "sub", _arith("subf", 1, 0))
linalg_max_without_nan = MutatedRow("linalg-max-without-nan", "FLOAT", "max", _arith("maxnumf", 0, 1))
linalg_round_away = MutatedRow("linalg-round-away", "FLOAT", "round", _arith("round", 0))
linalg_swapped_int_sub = MutatedRow("linalg-swapped-int-sub", "INT", "sub", _arith("subi", 1, 0))
