"""Equal elements, rows of one sign, and gradients that come in."""

from __future__ import annotations

import torch
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case


def test_elements_lie_on_the_numbers_among_the_arguments() -> None:
    shrunk = asked(case("torch.nn.functional.hardshrink", torch.randn(50), args=(0.75,)), "ties")
    assert set(shrunk.args[0].tolist()) == {-1.0, -0.75, 0.0, 0.75, 1.0}
    default = asked(case("torch.nn.functional.threshold", torch.rand(50), args=(0.25, 7.0)), "ties")
    assert set(default.args[0].tolist()) == {0.0, 0.25, 1.0, 7.0}, "what has no negative number gets none"
    whole = asked(case("torch.maximum", torch.arange(-9, 9), torch.arange(18)), "ties")
    assert bool((whole.args[0] == whole.args[1]).any()) and whole.args[0].dtype == torch.int64


def test_ties_and_inputs_without_rows_have_gradients() -> None:
    whole = asked(case("torch.amax", torch.randn(4, 6), args=(1,)), "gradients")
    turned = [call.result for call in whole.program.calls if call.target == "torch.autograd.grad"]
    assert {"gradients_ties", "gradients_empty"} <= set(turned)
    assert run_case(whole, load("linalg")).outcome == "pass"


def test_gradients_come_in_dense_turned_and_expanded() -> None:
    strides = []
    for index in range(3):
        changed = asked(case("torch.mm", torch.randn(3, 4), torch.randn(4, 2), index=index), "backward")
        strides.append(changed.inputs["cotangent0"].stride())
        x, w = changed.args[:2]
        cotangent = changed.inputs["cotangent0"]
        result, (dx, dw) = changed.program(*changed.fresh_args())
        torch.testing.assert_close((result, dx, dw), (x @ w, cotangent @ w.T, x.T @ cotangent))
    assert strides == [(2, 1), (1, 3), (0, 1)]


def test_each_of_several_results_alone() -> None:
    alone = asked(case("torch.var_mean", torch.randn(5)), "backward")
    *_, gradients, of_var, of_mean = alone.program(*alone.fresh_args())
    torch.testing.assert_close(gradients[0], of_var[0] + of_mean[0])


def test_rows_of_one_sign() -> None:
    for dtype in (torch.float32, torch.int64):
        rows = asked(case("torch.amax", torch.arange(-6, 6).to(dtype).reshape(3, 4), args=(1,)), "uniform")
        seen = torch.cat([tensor.reshape(-1, tensor.shape[-1]) for tensor in rows.args])
        varied = seen[(seen != seen[:, :1]).any(1)]
        assert (varied < 0).all(1).any() and (varied > 0).all(1).any()
        assert (seen == (torch.finfo if dtype.is_floating_point else torch.iinfo)(dtype).min).all(1).any()
    whole = [asked(case("torch.argmax", torch.randn(7), index=index), "uniform") for index in range(3)]
    assert len(whole[0].program.calls) > 1, "one row is asked again, and samples take turns, until it was of each kind"
    assert any(bool(tensor.isneginf().all()) for given in whole for tensor in given.args)
    assert any(bool(tensor.isnan().all()) for given in whole for tensor in given.args)
