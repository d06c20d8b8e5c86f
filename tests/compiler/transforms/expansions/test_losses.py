"""Losses that choose a class by index, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
aten: Any = torch.ops.aten
NAN, INF = float("nan"), float("inf")
NONE, MEAN, SUM = 0, 1, 2

ONE_TARGET = (
    (torch.tensor([[0.5, -1.0, 2.0, 1.0], [1.0, 0.0, 0.25, -3.0], [0.0, 0.0, 0.0, 0.0]]), torch.tensor([0, 3, 2])),
    (torch.tensor([0.5, -1.0, 2.0, 1.0]), torch.tensor(2)),
    (torch.tensor([[NAN, 1.0, 2.0, INF], [1.0, NAN, -INF, 3.0]]), torch.tensor([1, 1])),
)
MANY_TARGETS = (
    (torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, 0.25]]), torch.tensor([[2, 0, -1], [1, -1, 2]])),
    (torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1, 1, -1])),
    (torch.tensor([[0.5, 1.0, -1.0], [0.0, 2.0, 0.5]]), torch.tensor([[-1, 0, 0], [0, 1, 2]])),
    (torch.tensor([[NAN, 1.0, INF], [1.0, NAN, -INF]]), torch.tensor([[1, 2, -1], [0, -1, -1]])),
)


def _gradient(x: torch.Tensor, reduction: int) -> torch.Tensor:
    return torch.linspace(1, 2, len(x)) if reduction == NONE and x.dim() == 2 else torch.tensor(3.0)


@pytest.mark.parametrize(("x", "target"), ONE_TARGET)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(agrees: Agrees, x: torch.Tensor, target: torch.Tensor, reduction: int, p: int) -> None:
    weights = torch.tensor([0.5, 1.0, 2.0, 0.0])
    for given in ((), (weights,)):
        agrees(lambda x, t, w=None: aten.multi_margin_loss(x, t, p, 1.5, w, reduction), x, target, *given)
        agrees(
            lambda g, x, t, w=None: aten.multi_margin_loss_backward(g, x, t, p, 1.5, w, reduction),
            *(_gradient(x, reduction), x, target, *given),
        )


@pytest.mark.parametrize("gradient", [NAN, INF, 0.0])
@pytest.mark.parametrize("reduction", [NONE, SUM])
def test_a_gradient_that_is_no_number_reaches_what_does_not_count(
    agrees: Agrees, gradient: float, reduction: int
) -> None:
    (x, one), (_, many) = ONE_TARGET[0], MANY_TARGETS[0]
    given = torch.full((3,) if reduction == NONE else (), gradient)
    agrees(lambda g, x, t: aten.multi_margin_loss_backward(g, x, t, 2, 1.5, None, reduction), given, x, one)
    x = x[:2, :3].contiguous()
    _, is_target = aten.multilabel_margin_loss_forward(x, many, reduction)
    agrees(
        lambda g, x, t, i: aten.multilabel_margin_loss_backward(g, x, t, reduction, i),
        *(given[:2] if reduction == NONE else given, x, many, is_target),
    )


@pytest.mark.parametrize(("x", "target"), MANY_TARGETS)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_multilabel_margin(agrees: Agrees, x: torch.Tensor, target: torch.Tensor, reduction: int) -> None:
    agrees(lambda x, t: aten.multilabel_margin_loss_forward(x, t, reduction), x, target)
    _, is_target = aten.multilabel_margin_loss_forward(x, target, reduction)
    agrees(
        lambda g, x, t, i: aten.multilabel_margin_loss_backward(g, x, t, reduction, i),
        *(_gradient(x, reduction), x, target, is_target),
    )


@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_nll(agrees: Agrees, reduction: int) -> None:
    weights = torch.tensor([0.5, 1.0, 2.0, 0.0])
    target = torch.tensor([0, 3, -100, 2])
    for x, t in ((torch.randn(4, 4), target), (torch.randn(4), target[3]), (torch.randn(0, 4), target[:0])):
        for given in ((), (weights,)):
            agrees(lambda x, t, w=None: aten.nll_loss_forward(x, t, w, reduction, -100), x, t, *given)
    x, t = torch.randn(2, 4, 2, 1), target.reshape(2, 2, 1)
    agrees(lambda x, t, w: aten.nll_loss2d_forward(x, t, w, reduction, 2), x, t.clamp(min=0), weights)


def test_a_target_that_is_no_class_is_refused() -> None:
    x = torch.randn(2, 3)
    one, many = torch.tensor([0, 2]), torch.tensor([[0, -1, 1], [2, 0, -1]])
    nll = compile(lambda x, t: aten.nll_loss_forward(x, t, None, MEAN, -100)[0], (x, one), "evaluator")
    margin = compile(lambda x, t: aten.multi_margin_loss(x, t), (x, one), "evaluator")
    labels = compile(lambda x, t: aten.multilabel_margin_loss_forward(x, t, MEAN)[0], (x, many), "evaluator")
    for exe, bad in ((nll, one + 1), (nll, one - 1), (margin, one + 1), (margin, one - 1), (labels, many + 1)):
        with pytest.raises(RuntimeError, match="out of"):
            exe(x, bad)


OTHERS = [(torch.float32, torch.float64), (torch.float64, torch.float32)]
OTHERS += [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("one, other", OTHERS)
@pytest.mark.parametrize("loss", ["huber_loss", "soft_margin_loss", "smooth_l1_loss", "mse_loss"])
def test_a_loss_of_two_dtypes_has_the_one_that_eager_gives(
    agrees: Agrees, loss: str, one: torch.dtype, other: torch.dtype, reduction: str
) -> None:
    x = torch.rand(7, generator=torch.Generator().manual_seed(3))
    fn = getattr(torch.nn.functional, loss)
    agrees(lambda x, y: fn(x, y, reduction=reduction), x.to(one), x.flip(0).to(other))


@pytest.mark.parametrize("target", [torch.uint8, torch.int8, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_target_of_integers_is_negated_as_such(agrees: Agrees, dtype: torch.dtype, target: torch.dtype) -> None:
    x, y = torch.tensor([-0.5, 0.25, 2.0, -3.0]).to(dtype), torch.tensor([3, 1, 0, 2]).to(target)
    agrees(lambda g, x, y: torch.ops.aten.soft_margin_loss_backward(g, x, y, 0), torch.ones_like(x), x, y)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("one, other", OTHERS)
def test_a_binary_cross_entropy_of_weights_of_another_dtype(
    agrees: Agrees, one: torch.dtype, other: torch.dtype, reduction: str
) -> None:
    """Eager has the dtype of what is weighed, which has to be that of its target."""
    x = torch.rand(7, generator=torch.Generator().manual_seed(3))
    fn = torch.nn.functional.binary_cross_entropy
    agrees(lambda x, y, w: fn(x, y, weight=w, reduction=reduction), x.to(one), x.flip(0).to(one), x.sqrt().to(other))


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_of_smooth_l1(agrees: Agrees, beta: float, reduction: int, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.5, -0.5, 0.25, 3.0, -2.0, NAN, INF, -INF, 1.0], dtype=dtype)
    target = torch.zeros(10, dtype=dtype)
    for gradient in (1.5, NAN, INF, 0.0):
        given = torch.full((10,) if reduction == NONE else (), gradient, dtype=dtype)
        agrees(lambda g, x, t: aten.smooth_l1_loss_backward(g, x, t, reduction, beta), given, x, target)


@pytest.mark.few(4)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_of_nll(agrees: Agrees, reduction: int, dtype: torch.dtype) -> None:
    """A gradient, or a weight, that is no number is met at the target class alone."""
    x, targets = torch.randn(4, 4, dtype=dtype), torch.tensor([0, 3, -100, 2])
    for weights in (None, torch.tensor([0.5, INF, 2.0, 0.0]), torch.tensor([NAN, 1.0, -INF, 1.5])):
        given = () if weights is None else (weights.to(dtype),)
        for total, gradient in ((3.0, 1.5), (0.0, 1.0), (2.0, INF), (2.0, NAN)):

            def backward(g, x, t, total, w=None, aten_op=aten.nll_loss_backward, ignored=-100):
                return aten_op(g, x, t, w, reduction, ignored, total)

            scalar, total_weight = torch.tensor(gradient, dtype=dtype), torch.tensor(total, dtype=dtype)
            row = torch.full((4,), gradient, dtype=dtype) if reduction == NONE else scalar
            agrees(backward, row, x, targets, total_weight, *given)
            agrees(backward, scalar, x[0], targets[3], total_weight, *given)
            plane = torch.full((2, 2, 1), gradient, dtype=dtype) if reduction == NONE else scalar
            two = lambda *args: backward(*args, aten_op=aten.nll_loss2d_backward, ignored=2)  # noqa: E731
            image = torch.randn(2, 4, 2, 1, dtype=dtype)
            agrees(two, plane, image, targets.clamp(min=0).reshape(2, 2, 1), total_weight, *given)
    agrees(lambda g, x, t, w: aten.nll_loss_backward(g, x, t, None, SUM, -100, w), x[0, 0], x[:0], targets[:0], x[0, 0])
