"""Where eager's line x * a + b is infinity minus infinity, the documented formula of a norm has an answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.conformance.oracle.test_compare import compare
from torchstone.conformance.program.program import Call, Program, Ref

NORM = Call("torch.nn.functional.instance_norm", (Ref("x0"),), {"weight": Ref("x1"), "bias": Ref("x2")}, "y")
ROW = torch.tensor([[[-2.1171875, 5.4765625, 65504.0, 65504.0, 5.4765625, -1.447265625, -3.265625]]]).half()
SIDES = torch.sgn(ROW.double() - ROW.double().mean())


@pytest.mark.torture
@pytest.mark.parametrize(
    ("size", "outcome"),
    [
        (math.inf, "ill-conditioned"),
        (-math.inf, "mismatch"),
        pytest.param(5.0, "mismatch", marks=pytest.mark.torture),
    ],
)
def test_infinity_on_the_side_of_the_mean_and_nothing_else(size: float, outcome: str) -> None:
    program = Program(("x0", "x1", "x2"), (NORM,), Ref("y"))
    weight, bias = torch.full((1,), math.inf).half(), torch.ones(1).half()
    assert torch.isnan(torch.nn.functional.instance_norm(ROW, weight=weight, bias=bias)).any()
    assert compare(program, lambda x, w, b: (SIDES * size).half(), ROW, weight, bias).outcome == outcome


@pytest.mark.parametrize(("eps", "size"), [(-1.0, 1.0), (-0.5, 0.5), (-1.0, 2.0)])
@pytest.mark.parametrize(
    "given", ["right", *(pytest.param(name, marks=pytest.mark.torture) for name in ("negated", "finite"))]
)
def test_a_variance_that_eps_cancels_is_a_weight_without_end(eps: float, size: float, given: str) -> None:
    means, bias = torch.tensor([1.0, -2.0]), torch.tensor([0.5, -0.5])
    variances, x = torch.tensor([size, 4.0]), torch.tensor([[[3.0, -1.0], [2.0, 1.0]], [[7.0, 0.0], [0.5, -3.0]]])
    inputs = {"x": x, "running_mean": means, "running_var": variances, "bias": bias}
    named: dict[str, Any] = {name: Ref(name) for name in list(inputs)[1:]}
    call = Call("torch.nn.functional.instance_norm", (Ref("x"),), named | {"eps": eps, "use_input_stats": False}, "y")
    program = Program(tuple(inputs), (call,), Ref("y"))

    def documented(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        mean, variance, bias = (each.reshape(1, 2, 1) for each in rest)
        out = (x - mean) / torch.sqrt(variance + eps) + bias
        wrong = {"right": out, "negated": -out, "finite": torch.ones(())}[given]
        return torch.where(torch.isfinite(out), out, wrong)

    cancels = size + eps == 0
    assert bool(torch.isnan(program(*inputs.values())).any()) == cancels
    wanted = "pass" if not cancels else "ill-conditioned" if given == "right" else "mismatch"
    assert compare(program, documented, *inputs.values()).outcome == wanted


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "value", "right"), [(3, math.inf, True), (3, -math.inf, False), (0, math.inf, False)]
)
def test_the_weight_may_come_before_the_deviation(where: int, value: float, right: bool) -> None:
    """As a GPU has it: 3 * 1.8e38 leaves the range, and what the deviation and the bias make of it is in it."""
    operands = [Ref(f"x{at}") for at in range(3)]
    call = Call("torch.native_batch_norm", (*operands, None, None, True, 0.1, 1e-5), {}, "y")
    program = Program(("x0", "x1", "x2"), (call,), Ref("y", (0,)))
    x, weight, bias = torch.tensor([[[-1.5, -0.5, -1.0, 3.0]]]), torch.tensor([1.8e38]), torch.tensor([-1e38])
    eager = program(x, weight, bias)
    assert torch.isfinite(eager).all()

    def given(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        out = eager.clone()
        out[0, 0, where] = value
        return out

    assert (compare(program, given, x, weight, bias).outcome != "mismatch") == right
