"""Normalization: what eager reads past the end of is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile


@pytest.mark.parametrize("short", range(4))
def test_parameters_of_another_size_than_the_channels_are_refused(short: int) -> None:
    args = (torch.randn(2, 5, 3), *(torch.ones(1 if i == short else 5) for i in range(4)))
    with pytest.raises(Unsupported, match="another size than the channels"):
        compile(lambda x, *v: torch.ops.aten.native_batch_norm(x, *v, True, 0.1, 1e-5), args, target="evaluator")


@pytest.mark.parametrize("momentum", [0.5, -1.2])
def test_running_statistics_of_float16_are_rounded_once(momentum: float) -> None:
    """PyTorch's own decomposition rounds between, and overflows on the way to what float16 can hold or to -inf."""
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)).half() * 200
    x[0, 1], x[1, 1] = 60000, -60000

    def update(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ones, zeros = torch.ones_like(mean), torch.zeros_like(mean)
        torch.ops.aten._batch_norm_with_update(x, ones, zeros, mean, var, momentum, 0.6)
        return mean, var

    def args() -> tuple[torch.Tensor, ...]:
        return x.clone(), torch.zeros(4).half(), torch.full((4,), 60000.0).half()

    for got, want in zip(compile(update, args(), "linalg")(*args()), update(*args()), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_groups_of_what_has_other_dims_than_it_is_said_to_have(agrees: Callable[..., None]) -> None:
    """Eager counts elements: 18 of them are three positions of six channels."""
    weight, bias = torch.randn(6), torch.randn(6)
    agrees(lambda x: torch.native_group_norm(x, weight, bias, 1, 6, 3, 2, 0.5), torch.randn(18))
    agrees(lambda x: torch.native_group_norm(x, None, None, 2, 6, 3, 2, 0.5)[0], torch.randn(2, 3, 6))


def test_of_no_elements_the_mean_is_0_and_the_deviation_nan(agrees: Callable[..., None]) -> None:
    agrees(lambda x: torch.native_layer_norm(x, (2, 0), None, None, 0.25), torch.empty(5, 2, 0))
    agrees(lambda x: torch.native_group_norm(x, None, None, 5, 2, 0, 1, 0.25), torch.empty(5, 2, 0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_batch_of_one_number_without_eps_is_its_bias(agrees: Agrees, rows: int, dtype: torch.dtype) -> None:
    """Eager takes 0 for 1 / sqrt(0) of a variance of 0 and no eps."""
    x = torch.tensor([[-2.0, 1.0]]).expand(rows, 2).contiguous().to(dtype)
    x[-1, 1] += rows - 1
    weight, bias = torch.tensor([[-4.5, 2.0], [-7.5, 0.5]]).to(dtype)
    for eps in (0.0, 1e-5):
        agrees(lambda x, w, b, eps=eps: torch.native_batch_norm(x, w, b, None, None, True, 0.1, eps), x, weight, bias)


def test_groups_of_fewer_than_no_positions_are_refused() -> None:
    with pytest.raises(Unsupported, match="groups of -2 positions"):
        compile(lambda x: torch.native_group_norm(x, None, None, 0, 2, -2, 1, 0.25), (torch.empty(0, 2, 3),), "linalg")


def test_a_gradient_of_another_dtype_than_the_softmax_is_refused() -> None:
    grad, output = torch.empty(5, 0, dtype=torch.uint8), torch.empty(5, 0)
    with pytest.raises(Unsupported, match="a gradient of u8 for a result of f32"):
        compile(lambda g, y: torch._softmax_backward_data(g, y, -1, torch.float32), (grad, output), "linalg")


Agrees = Callable[..., None]

UPDATES = {
    "batch_norm_update_stats": lambda x, mean, var: torch.batch_norm_update_stats(x, mean, var, 0.3),
    "native_batch_norm": lambda x, mean, var: torch.native_batch_norm(x, None, None, mean, var, True, 0.3, 1e-5),
}


@pytest.mark.parametrize("name", UPDATES)
def test_statistics_are_updated_whatever_becomes_of_the_results(agrees: Agrees, name: str) -> None:
    """The schemas of these ops do not say that they write."""
    x, mean, var = torch.arange(12.0).reshape(4, 3) ** 2, torch.ones(3), torch.zeros(3)
    for used in (
        lambda x, out, mean: out,
        lambda x, out, mean: x + 1,
        lambda x, out, mean: (mean * 2, out[0].shape[0]),
    ):
        agrees(lambda x, mean, var, used=used: used(x, UPDATES[name](x, mean, var), mean), x, mean, var)


def test_statistics_of_more_digits_than_the_numbers(agrees: Agrees) -> None:
    x, mean, var = torch.linspace(-1, 3, 12, dtype=torch.float16).reshape(4, 3), torch.ones(3), torch.zeros(3)
    agrees(UPDATES["batch_norm_update_stats"], x, mean, var)
