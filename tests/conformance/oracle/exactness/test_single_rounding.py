"""Sums that eager adds up in float32, and single operations: what eager does, and what is wrong beside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.op_traits.rounding import ADDS_IN_FLOAT32
from torchstone.conformance.oracle.ulp import ulp
from torchstone.conformance.program.program import Call, Program, Ref

HALVES = (torch.float16, torch.bfloat16)
LENGTH = 4096
aten = torch.ops.aten


def _row(dtype: torch.dtype, *shape: int) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.25).to(dtype)


def _pair(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return _row(dtype, 3, LENGTH) / 16, _row(dtype, LENGTH, 2) / 16


def _measured(dtype: torch.dtype) -> dict[str, Tensor]:
    """What eager gives for each op of the table, over long rows."""
    x, (a, b) = _row(dtype, 2, LENGTH) / 16, _pair(dtype)
    c = _row(dtype, 3, 2)
    ops = {
        "sum": lambda x, a, b, c: aten.sum(x, [1]),
        "mean": lambda x, a, b, c: aten.mean(x, [1]),
        "nansum": lambda x, a, b, c: aten.nansum(x, [1]),
        "cumsum": lambda x, a, b, c: aten.cumsum(x, 1),
        "mm": lambda x, a, b, c: aten.mm(a, b),
        "mv": lambda x, a, b, c: aten.mv(a, b[:, 0]),
        "dot": lambda x, a, b, c: aten.dot(a[0], b[:, 0]),
        "vdot": lambda x, a, b, c: aten.vdot(a[0], b[:, 0]),
        "bmm": lambda x, a, b, c: aten.bmm(a[None], b[None]),
        "addmm": lambda x, a, b, c: aten.addmm(c, a, b),
        "addmv": lambda x, a, b, c: aten.addmv(c[:, 0], a, b[:, 0]),
        "baddbmm": lambda x, a, b, c: aten.baddbmm(c[None], a[None], b[None]),
        "_softmax": lambda x, a, b, c: aten._softmax(x, 1, False),
        "_log_softmax": lambda x, a, b, c: aten._log_softmax(x, 1, False),
        "native_layer_norm": lambda x, a, b, c: aten.native_layer_norm(x, [LENGTH], None, None, 1e-5)[0],
        "native_group_norm": lambda x, a, b, c: aten.native_group_norm(x, None, None, 2, LENGTH, 1, 1, 1e-5)[0],
        "var": lambda x, a, b, c: aten.var(x, [1]),
        "var_mean": lambda x, a, b, c: aten.var_mean(x, [1])[1],
        "std": lambda x, a, b, c: aten.std(x, [1]),
        "std_mean": lambda x, a, b, c: aten.std_mean(x, [1])[0],
        "linalg_vector_norm": lambda x, a, b, c: aten.linalg_vector_norm(x, 2, [1]),
        "logsumexp": lambda x, a, b, c: aten.logsumexp(x, [1]),
    }
    return {name: torch.stack([op(x, a, b, c).double(), op(*(t.double() for t in (x, a, b, c)))])
            for name, op in ops.items()}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
def test_eager_adds_up_in_float32_what_the_table_says(dtype: torch.dtype) -> None:
    measured = _measured(dtype)
    assert set(measured) == set(ADDS_IN_FLOAT32.ops)
    for name, (eager, truth) in measured.items():
        units = ((eager - truth).abs() / ulp(truth.abs().clamp(min=1e-3), dtype)).max()
        assert units <= 1.5, (name, units)


def _judged(target: str, inputs: tuple[Tensor, ...], given: Tensor, *args: object) -> Finding:
    names = tuple(f"x{i}" for i in range(len(inputs)))
    program = Program(names, (Call(target, (*map(Ref, names), *args), {}, "r"),), Ref("r"))
    return judge(program, inputs, Observed(program(*inputs), inputs), Observed(given, inputs))


def _added_in(dtype: torch.dtype, x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0], dtype=dtype)
    for column in x.unbind(1):
        total = total + column
    return total


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_sum_added_up_in_16_bits_is_wrong_and_one_in_another_order_is_right(dtype: torch.dtype) -> None:
    x = _row(dtype, 3, LENGTH)
    assert _judged("torch.sum", (x,), x.float().flip(1).sum(1).to(dtype), 1).outcome == "pass"
    assert _judged("torch.sum", (x,), _added_in(dtype, x), 1).outcome == "mismatch"
    assert _judged("torch.cumsum", (x,), torch.stack([_added_in(dtype, x[:, :k]) for k in (1, 9)]), 1).kind == "shape"
    steps = x.cumsum(1).clone()
    steps[:, -1] = _added_in(dtype, x)
    assert _judged("torch.cumsum", (x,), steps, 1).outcome == "mismatch"


def _cut_off(x: Tensor) -> Tensor:
    return (x.float().view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()


@pytest.mark.parametrize("target", ["torch.add", "torch.mul", "torch.div", "torch.sub"])
def test_one_operation_that_is_cut_off_is_wrong(target: str) -> None:
    x, y = _row(torch.bfloat16, 64), _row(torch.bfloat16, 65)[1:]
    y = y / 16  # so that differences are not exact
    exact = getattr(torch, target.rpartition(".")[2])(x.float(), y.float())
    finding = _judged(target, (x, y), _cut_off(exact))
    assert finding.outcome == "mismatch" and finding.evidence["count"] > 5
    nearly = (exact * (1 + 2.0**-23)).bfloat16()  # computed in float32 to within a unit
    assert _judged(target, (x, y), nearly).outcome == "pass"


def test_a_conversion_that_is_cut_off_is_wrong_in_any_dtype() -> None:
    x = _row(torch.float32, 64)
    assert _judged("torch.Tensor.to", (x,), _cut_off(x), torch.bfloat16).outcome == "mismatch"
    wide = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    down = torch.nextafter(wide.float(), torch.zeros(64))
    cut = torch.where(wide.float().double() > wide, down, wide.float())
    assert _judged("torch.Tensor.to", (wide,), cut, torch.float32).outcome == "mismatch"
    assert _judged("torch.Tensor.to", (wide,), wide.float(), torch.float32).outcome == "pass"


@pytest.mark.parametrize(("source", "dtype"), [(torch.float32, torch.bfloat16), (torch.float64, torch.float32)])
def test_a_conversion_of_what_lies_half_way_goes_to_the_even_one(source: torch.dtype, dtype: torch.dtype) -> None:
    """Some come down to the even number, and some up: cutting off, and going away from zero, are both wrong."""
    even = 1 + torch.arange(8, dtype=source) * torch.finfo(dtype).eps
    x = even + torch.finfo(dtype).eps / 2
    right, down, up = x.to(dtype), even.to(dtype), (even + torch.finfo(dtype).eps).to(dtype)
    assert _judged("torch.Tensor.to", (x,), right, dtype).outcome == "pass"
    for wrong in (down, up):
        finding = _judged("torch.Tensor.to", (x,), wrong, dtype)
        assert finding.outcome == "mismatch" and finding.evidence["count"] == 4


def test_what_rounds_more_than_once_keeps_its_room() -> None:
    """Several operations, a function, a factor, a number that 16 bits do not hold, and what is subnormal."""
    x, y = _row(torch.bfloat16, 64), _row(torch.bfloat16, 65)[1:]
    assert _judged("torch.exp", (x,), _cut_off(x.float().exp())).outcome == "pass"
    assert _judged("torch.addcmul", (x, x, y), _cut_off(x.float() + x.float() * y.float())).outcome == "pass"
    assert _judged("torch.add", (x,), (x.float() + torch.tensor(0.1).bfloat16()).bfloat16(), 0.1).outcome == "pass"
    assert _judged("torch.mul", (x.float(),), torch.nextafter(x.float() * 3, torch.zeros(64)), 3).outcome == "pass"
    tiny = torch.full((4,), 2.0**-100, dtype=torch.bfloat16)
    assert _judged("torch.mul", (tiny, tiny / 2**30), torch.zeros(4, dtype=torch.bfloat16)).outcome == "pass"
