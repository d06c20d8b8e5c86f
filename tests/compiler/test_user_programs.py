"""Programs of many fields, small: compiled for the sizes of the example and for any, under torch.compile too."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from torchstone.compiler.driver import compile

AUTO = torch.export.Dim.AUTO


def compiled(fn: Callable[..., Any], args: tuple[Any, ...], leg: str, dims: Any = None) -> Callable[..., Any]:
    if leg == "torch.compile":
        torch._dynamo.reset()
        return torch.compile(fn, backend="torchstone")
    return compile(fn, args, "linalg", dims if leg == "dynamic" else None)


def updated_then_scattered(x, c):
    x[torch.arange(x.size(0)), c] = 0
    return x.scatter(1, c[:, None], 3.0)


def views_of_what_is_updated(x, c):
    filled = x.index_fill(0, c, 2.0)
    again = filled.index_fill(1, c, 5.0)
    return again, filled.view(-1), filled.t(), again


@pytest.mark.few(4)
@pytest.mark.parametrize("leg", ["static", "dynamic", "torch.compile"])
@pytest.mark.parametrize("fn", [updated_then_scattered, views_of_what_is_updated])
def test_a_value_lives_on_where_a_later_one_is_made_from_it(fn: Callable[..., Any], leg: str) -> None:
    make = lambda: (torch.randn(3, 4), torch.tensor([0, 2, 1]))  # noqa: E731
    exe = compiled(fn, make(), leg, ({0: AUTO, 1: AUTO}, {0: AUTO}))
    x, c = make()
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(exe(mine, c), fn(theirs, c))
    torch.testing.assert_close(mine, theirs)


def asserted(x):
    torch._assert_async((x > 0).all(), "not positive")
    torch._assert_async(x.sum())
    return x.log()


# A program, arguments that it takes, and some that eager raises for.
RAISING: dict[str, tuple[Callable[..., Any], torch.Tensor, torch.Tensor]] = {
    "assert": (asserted, torch.ones(3), torch.zeros(3)),
    "class too large": (lambda x: F.one_hot(x, 4), torch.tensor([0, 3]), torch.tensor([0, 4])),
    "class negative": (lambda x: F.one_hot(x, 4), torch.tensor([0, 3]), torch.tensor([0, -1])),
    "cholesky": (torch.linalg.cholesky, torch.eye(2), -torch.eye(2)),
    "inverse": (torch.linalg.inv, torch.eye(2), torch.zeros(2, 2)),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("leg", ["static", "dynamic", "torch.compile"])
@pytest.mark.parametrize("name", RAISING)
def test_raises_where_eager_does(name: str, leg: str) -> None:
    fn, good, bad = RAISING[name]
    exe = compiled(fn, (good,), leg, ({0: AUTO} if good.dim() == 1 else None,))
    torch.testing.assert_close(exe(good), fn(good))
    with pytest.raises(RuntimeError):
        fn(bad)
    with pytest.raises(RuntimeError):
        exe(bad)


def test_factorizations_train_under_torch_compile() -> None:
    def fn(x):
        s = x @ x.mT + 2 * torch.eye(3)
        return torch.linalg.cholesky(s).sum() + torch.linalg.inv(s).sum() + math.pi * torch.linalg.solve(s, x).sum()

    gradients = []
    for f in (fn, compiled(fn, (), "torch.compile")):
        torch.manual_seed(0)
        x = torch.randn(3, 3, requires_grad=True)
        f(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def window(q, k, v):
    i = torch.arange(q.shape[2])
    near = (i[:, None] >= i) & (i[:, None] - i < 3)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=near)


def resized(x):
    return F.interpolate(x, scale_factor=1.5, mode="bilinear"), F.interpolate(x, scale_factor=0.5)


# Programs of run-time sizes, and their arguments at a size.
SIZED: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "a window of attention": (window, lambda n: tuple(torch.randn(3, 1, 2, n, 4))),
    "resized by a fraction": (resized, lambda n: (torch.randn(1, 2, n, 5),)),
}


@pytest.mark.parametrize("name", SIZED)
def test_any_size(name: str) -> None:
    fn, make = SIZED[name]
    exe = compile(fn, make(6), "linalg", tuple({2: AUTO} for _ in make(6)))
    for n in (6, 9, 4):
        args = make(n)
        torch.testing.assert_close(exe(*args), fn(*args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_fake_quantization_rounds_as_eager_does(dtype: torch.dtype) -> None:
    aten = torch.ops.aten
    special = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30, 0.25, -0.25, -0.0])

    def fn(x, columns, scale, zero, enabled):
        return (
            aten.fake_quantize_per_tensor_affine_cachemask(x, 1 / 3, 3, -128, 127),
            aten.fake_quantize_per_channel_affine_cachemask(columns, scale, zero, 1, 0, 255),
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                columns, scale[:1], zero[:1], enabled, -8, 7
            ),
        )

    torch.manual_seed(0)
    scale, zero = torch.tensor([0.1, 0.2, 1 / 3, 0.7]), torch.tensor([0, 1, 9, 255], dtype=torch.int32)
    columns = (torch.randn(50, 4) * 10).to(dtype)
    for enabled in (0, 1):
        args = (special.to(dtype), columns, scale, zero, torch.tensor([enabled]))
        torch.testing.assert_close(compile(fn, args)(*args), fn(*args), rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_frequencies_of_a_fourier_transform(n: int) -> None:
    def fn(x):
        return torch.fft.fftfreq(n, 0.3) + x, torch.fft.rfftfreq(n, 0.3) + x

    x = torch.zeros(())
    torch.testing.assert_close(compile(fn, (x,))(x), fn(x), rtol=0, atol=0)


def test_a_factor_read_from_a_tensor_is_another_at_each_call() -> None:
    def fn(factor, x):
        return x.sub(1, alpha=factor.item()), x.add(x, alpha=factor.item())

    exe = compile(fn, (torch.tensor(3), torch.randn(4)), "linalg", (None, {0: AUTO}))
    for factor, n in ((3, 4), (-2, 5), (0, 3)):
        args = torch.tensor(factor), torch.randn(n)
        torch.testing.assert_close(exe(*args), fn(*args))
