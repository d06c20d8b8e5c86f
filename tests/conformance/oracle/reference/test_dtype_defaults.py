"""A default that hangs on the dtype is eager's in the float64 run: who computes with float64's is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref


def one_call(target: str, *rest: Any, **kwargs: Any) -> Program:
    return Program(("x",), (Call(target, (Ref("x"), *rest), kwargs, "r"),), Ref("r"))


def verdict(program: Program, x: Tensor, given: Any) -> Outcome:
    return judge(program, (x,), Observed(program(x), (x,)), Observed(given, (x,))).outcome


SMALL = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)) * 1e-4
OF_RANK_2 = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
NEARLY = OF_RANK_2 @ OF_RANK_2.mT + 1e-9 * torch.eye(6)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "target", ["torch.nn.functional.rms_norm", "torch.rms_norm", "torch.ops.aten.rms_norm.default"]
)
@pytest.mark.parametrize("rest", [((16,),), ((16,), None), ((16,), None, None)])
def test_what_a_norm_adds(target: str, rest: tuple[Any, ...]) -> None:
    program = one_call(target, *rest)
    own = torch.finfo(torch.float32).eps
    assert verdict(program, SMALL, torch.nn.functional.rms_norm(SMALL, (16,), eps=own)) is Outcome.PASS
    by_float64 = torch.nn.functional.rms_norm(SMALL.double(), (16,)).float()
    assert verdict(program, SMALL, by_float64) is Outcome.MISMATCH


@pytest.mark.parametrize("target", ["torch.linalg.pinv", "torch.linalg.matrix_rank"])
def test_what_is_cut_off(target: str) -> None:
    program = one_call(target)
    assert torch.linalg.matrix_rank(NEARLY) == 2 < torch.linalg.matrix_rank(NEARLY.double())
    assert verdict(program, NEARLY, program(NEARLY)) is Outcome.PASS
    by_float64 = program(NEARLY.double())
    by_float64 = by_float64.float() if by_float64.is_floating_point() else by_float64
    assert verdict(program, NEARLY, by_float64) is Outcome.MISMATCH


@pytest.mark.parametrize("rest", [(), (0.5,), (0.5, None, -7.0), (None, None, None), (None, 3.0)])
def test_ends_that_are_eagers(rest: tuple[Any, ...]) -> None:
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0])
    program = one_call("torch.nan_to_num", *rest)
    (leaf, _) = Referee(program, (x,)).float64.leaves
    assert torch.equal(leaf, program(x).double())


@pytest.mark.parametrize("kwargs", [{"rtol": 0.5}, {"atol": 1e-3}, {"hermitian": True, "rtol": 0.1}])
def test_what_is_given_stays(kwargs: dict[str, Any]) -> None:
    program = one_call("torch.linalg.pinv", **kwargs)
    (leaf, _) = Referee(program, (NEARLY,)).float64.leaves
    torch.testing.assert_close(leaf, torch.linalg.pinv(NEARLY.double(), **kwargs))


def test_the_dtype_is_that_of_the_operand() -> None:
    """The program is told of float64 numbers where a call is given these."""
    calls = (
        Call("torch.Tensor.double", (Ref("x"),), {}, "wide"),
        Call("torch.nn.functional.rms_norm", (Ref("wide"), (16,)), {}, "r"),
    )
    program = Program(("x",), calls, Ref("r"))
    (leaf, _) = Referee(program, (SMALL,)).float64.leaves
    torch.testing.assert_close(leaf, program(SMALL), rtol=1e-12, atol=0.0)


CONVERSIONS: tuple[tuple[Any, ...], ...] = (
    *((name,) for name in ("double", "float", "half", "bfloat16", "cdouble", "contiguous", "clone")),
    *((name, dtype) for name in ("to", "type") for dtype in (torch.float64, torch.float32, torch.bfloat16)),
    *((name, Ref("y")) for name in ("to", "type_as")),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("written", ["x", "r", "row"])
@pytest.mark.parametrize("conversion", CONVERSIONS, ids=str)
def test_a_conversion_is_a_copy_where_it_is_eagers(
    conversion: tuple[Any, ...], written: str, dtype: torch.dtype
) -> None:
    """In float64 more of them give the operand itself: what is written afterwards is in both then."""
    calls = (
        Call(f"torch.Tensor.{conversion[0]}", (Ref("x"), *conversion[1:]), {}, "r"),
        Call("torch.Tensor.select", (Ref("r"), 0, 1), {}, "row"),
        Call("torch.Tensor.fill_", (Ref(written), 7.0), {}, "filled"),
    )
    program = Program(("x", "y"), calls, (Ref("r"), Ref("row")))
    given = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype), torch.ones(1, dtype=torch.float64)
    leaves = Referee(program, given).float64.leaves
    eager = tuple(tensor.clone() for tensor in given)
    for leaf, expected in zip(leaves, (*program(*eager), *eager), strict=True):
        assert torch.equal(leaf, expected.to(leaf.dtype))
