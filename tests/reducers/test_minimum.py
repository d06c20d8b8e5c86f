"""What a reduction ends in, exactly: a mutant comes down to the one op, and the fewest and simplest numbers."""

from __future__ import annotations

import contextlib

import cases
import pytest
import torch
from cases import case, reduced, shrunk

from tests import mutants
from torchstone.conformance.program.literals import leaves
from torchstone.reducers.passes.drop_outputs import drop_outputs
from torchstone.reducers.passes.simplify_dtypes import simplify_dtypes


def _shown(found) -> tuple[list[str], dict]:
    return str(found.program).splitlines(), {name: tensor.tolist() for name, tensor in found.inputs.items()}


def test_swapped_sub_in_a_program_of_five_ops():
    torch.manual_seed(0)
    start = case(
        [
            ("v0", "exp", "x0"),
            ("v1", "mul", "v0", "x1"),
            ("v2", "sub", "v1", "x0"),
            ("v3", "sum", "v2", [0]),
            ("v4", "relu", "v3"),
        ],
        ["v4", "v1"],
        x0=torch.randn(4, 3).t(),
        x1=torch.randn(4),
    )
    found = reduced(start, mutants.swapped_sub)
    assert _shown(found.value) == (["v0 = torch.sub(x0, x1)", "return v0"], {"x0": 0.0, "x1": 1.0})
    assert found.complete


def test_complex_numbers_are_tried_as_real_ones_without_a_warning(request):
    always = torch.is_warn_always_enabled()
    request.addfinalizer(lambda: torch.set_warn_always(always))
    torch.set_warn_always(True)  # PyTorch warns once in a process, and not of the second cast
    start = case([("v0", "sum", "x0")], "v0", x0=torch.tensor([[1 + 2j, 3 - 1j], [0j, 1j]]).t())
    candidate = next(simplify_dtypes(start))
    assert candidate.inputs["x0"].dtype == torch.float32
    assert candidate.inputs["x0"].tolist() == [[1, 0], [3, 0]] and candidate.inputs["x0"].stride() == (1, 2)


def test_max_that_loses_nan():
    x0, x1 = torch.arange(6.0).view(2, 3), torch.full((2, 3), 2.5)
    x1[1, 2] = float("nan")
    start = case([("v0", "maximum", "x0", "x1"), ("v1", "neg", "v0")], "v1", x0=x0, x1=x1)
    lines, values = _shown(reduced(start, mutants.max_without_nan).value)
    assert lines == ["v0 = torch.maximum(x0, x1)", "return v0"]
    assert values["x0"] == 0 and values["x1"] != values["x1"]


def test_sum_over_the_wrong_axis():
    start = case([("v0", "mul", "x0", 2.0), ("v1", "sum", "v0", [1])], "v1", x0=torch.randn(3, 3))
    lines, values = _shown(reduced(start, mutants.sum_wrong_axis).value)
    assert lines == ["v0 = torch.sum(x0, [0])", "return v0"]
    assert sorted(torch.tensor(values["x0"]).flatten().tolist()) == [0, 0, 0, 1]


def test_slice_off_by_one():
    start = case([("v0", "narrow", "x0", 1, 3, 4), ("v1", "exp", "v0")], "v1", x0=torch.randn(3, 9))
    lines, values = _shown(reduced(start, mutants.slice_off_by_one).value)
    assert lines == ["v0 = torch.narrow(x0, 0, 1, 1)", "return v0"]
    assert sorted(values["x0"]) == [0, 1]  # one of two minima: the element that is taken, or the one that should be


def test_wrong_rounding_keeps_the_one_half_it_needs():
    start = case([("v0", "round", "x0"), ("v1", "add", "v0", 1)], "v1", x0=torch.tensor([[0.25, 2.5, -1.75]]))
    lines, values = _shown(reduced(start, mutants.round_half_up).value)
    assert lines == ["v0 = torch.round(x0)", "return v0"]
    assert values == {"x0": 0.5}


def test_an_error_keeps_the_rank_it_needs():
    start = case([("v0", "relu", "x0"), ("v1", "softmax", "v0", 2)], "v1", x0=torch.randn(2, 3, 4))
    lines, values = _shown(reduced(start, mutants.failing_softmax).value)
    assert lines == ["v0 = torch.softmax(x0, 0)", "return v0"]
    assert values == {"x0": [[0.0]]}


def test_dims_that_belong_together_shrink_together():
    start = case([("v0", "mm", "x0", "x1")], "v0", x0=torch.randn(4, 5), x1=torch.randn(5, 5))
    found = shrunk(start, lambda c: c.inputs["x0"].dim() == 2 and c.inputs["x0"].shape[1] >= 3)
    assert [tuple(t.shape) for t in found.args] == [(1, 3), (3, 1)]


def test_sizes_in_the_program_follow_the_inputs():
    start = case([("v0", "reshape", "x0", [2, 6]), ("v1", "exp", "v0")], "v1", x0=torch.randn(2, 6))
    found = shrunk(start, lambda c: any("reshape" in call.target for call in c.program.calls))
    assert sum(t.numel() for t in found.args) == 1
    assert len(found.program.calls) == 1


def test_a_stride_that_matters_stays():
    start = case([("v0", "exp", "x0")], "v0", x0=torch.randn(8, 6)[:, ::2])
    found = shrunk(start, lambda c: any(not t.is_contiguous() for t in c.args))
    assert tuple(found.args[0].shape) == (2,)
    assert found.args[0].stride() == (2,)


def test_a_dtype_that_matters_stays():
    start = case([("v0", "add", "x0", "x1")], "v0", x0=torch.ones(2).half(), x1=torch.ones(2).double())
    found = shrunk(start, lambda c: any(t.dtype == torch.float64 for t in c.args))
    assert sorted(str(t.dtype) for t in found.args) == ["torch.float32", "torch.float64"]


def test_two_inputs_become_one_where_that_does():
    start = case([("v0", "mul", "x0", "x1")], "v0", x0=torch.randn(3), x1=torch.randn(3))
    found = shrunk(start, lambda c: "mul" in c.program.calls[0].target and len(c.program.calls[0].args) == 2)
    assert str(found.program).startswith("v0 = torch.mul(x0, x0)")


def test_an_input_that_is_written_to_stays_apart():
    numbers = {name: torch.randn(3) for name in ("x0", "x1", "x2")}
    start = case([("v0", "Tensor.add_", "x0", "x1"), ("v1", "mul", "v0", "x2")], "v1", **numbers)
    found = shrunk(start, lambda c: [call.operator for call in c.program.calls] == ["add", "mul"])
    assert str(found.program).splitlines()[:2] == ["v0 = torch.Tensor.add_(x0, x1)", "v1 = torch.mul(v0, x1)"]


def test_infinities_and_empty_tensors_are_not_wandered_into():
    start = case([("v0", "div", "x0", "x1")], "v0", x0=torch.ones(3), x1=torch.ones(3) * 2)
    found = shrunk(start, lambda c: True)
    assert all(t.numel() == 1 for t in found.args)
    assert bool(found.program(*found.args).isfinite())


def test_the_reduction_does_not_slip_to_another_bug():
    """The program also fails by shape in an op before: that one would be fewer calls, but it is not the bug."""
    wrong = {**mutants.swapped_sub.wrong, torch.ops.aten.sum: lambda func, x, *a, **k: torch.zeros(7)}
    both = mutants.MutatedEager("both", wrong)
    start = case([("v0", "sum", "x0"), ("v1", "sub", "x0", "v0")], "v1", x0=torch.randn(7))
    assert cases.judge(both)(start).kind == "value"
    found = reduced(start, both)
    assert cases.judge(both)(found.value).kind == "value"
    assert [call.target for call in found.value.program.calls] == ["torch.sub"]


@pytest.mark.parametrize("name", ["swapped_sub", "round_half_up", "slice_off_by_one"])
def test_the_cache_changes_nothing(name):
    start = case(
        [("v0", "sub", "x0", "x1"), ("v1", "narrow", "v0", 0, 1, 2), ("v2", "round", "v1")],
        "v2",
        x0=torch.tensor([0.5, 2.5, 4.5, 1.25]),
        x1=torch.tensor([3.0, 1.0, 2.0, 0.0]),
    )
    verdicts: dict[str, bool] = {}
    cold = reduced(start, getattr(mutants, name), verdicts=verdicts)
    warm = reduced(start, getattr(mutants, name), verdicts=verdicts)
    assert cold.value.to_bytes() == warm.value.to_bytes()
    assert cold.steps == warm.steps and cold.trials == warm.trials


def test_dims_whose_product_must_stay_in_step_shrink_in_step():
    torch.manual_seed(0)
    start = case([("v0", "linalg.tensorinv", "x0", 3)], "v0", x0=torch.randn(2, 2, 3, 12))
    found = shrunk(start, lambda c: "tensorinv" in c.program.calls[0].target)
    assert found.args[0].numel() == 1


def test_outputs_that_are_not_needed_go():
    start = case(
        [("v0", "exp", "x0"), ("v1", "sin", "x1"), ("v2", "cos", "x0")],
        ["v0", "v1", "v2", "x0"],
        x0=torch.randn(2),
        x1=torch.randn(3),
    )
    found = shrunk(start, lambda c: {"torch.exp", "torch.cos"} <= {call.target for call in c.program.calls})
    assert str(found.program) == "v0 = torch.exp(x0)\nv1 = torch.cos(x0)\nreturn (v0, v1)"


def test_two_of_many_outputs_are_found_by_halves():
    """A failure between two results is one of none alone: to try each by itself tells nothing."""
    ops = ["exp", "neg", "abs", "sin", "cos", "tan", "tanh", "sqrt", "relu", "ceil", "floor", "round", "sign", "trunc"]
    start = case(
        [(f"v{at}", op, "x0") for at, op in enumerate(ops)], [f"v{at}" for at in range(len(ops))], x0=torch.ones(2)
    )
    asked = []

    def fails(found) -> bool:
        asked.append(found)
        made = {call.result: call.target for call in found.program.calls}
        return {"torch.sin", "torch.sign"} <= {made[ref.name] for ref in leaves(found.program.outputs)}

    search, fewer = drop_outputs(start), start
    candidate = next(search)
    with contextlib.suppress(StopIteration):
        while True:
            answer = fails(candidate)
            fewer = candidate if answer else fewer
            candidate = search.send(answer)
    assert [call.target for call in fewer.program.calls] == ["torch.sin", "torch.sign"]
    assert len(asked) < len(ops)
