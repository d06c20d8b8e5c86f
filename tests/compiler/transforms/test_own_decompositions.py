"""Decompositions of our own, against eager, on every target that has what they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg", "tosa", "stablehlo", "tensorrt")
WINDOWS: dict[str, Callable[[int, bool], Tensor]] = {
    "bartlett": torch.bartlett_window,
    "blackman": torch.blackman_window,
    "hamming": torch.hamming_window,
    "hamming with parameters": lambda length, periodic: torch.hamming_window(length, periodic, 0.6, 0.3),
    "kaiser": torch.kaiser_window,
    "kaiser with beta": lambda length, periodic: torch.kaiser_window(length, periodic, 5.0),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows(window: Callable[[int, bool], Tensor]) -> None:
    def several(x: Tensor) -> list[Tensor]:
        return [x * window(length, periodic).sum() for length in (0, 1) for periodic in (True, False)] + [
            window(length, periodic) for length in (2, 5, 8) for periodic in (True, False)
        ]

    x = torch.ones(())
    torch.testing.assert_close(compile(several, (x,), "linalg")(x), several(x), rtol=2e-6, atol=1e-7)


@pytest.mark.few(2)
@pytest.mark.parametrize("target", TARGETS)
def test_convolutions_over_the_first_dim(target: str) -> None:
    torch.manual_seed(0)
    for times, kernel, pad in ((6, 3, 0), (6, 3, 2), (6, 3, -1), (2, 5, 3), (5, 13, 5)):
        args = torch.randn(times, 2, 3), torch.randn(kernel, 3, 4), torch.randn(4)
        args[1][0, 0, 0] = float("inf")  # which no padding is multiplied by
        program = lambda x, w, b, pad=pad: torch.conv_tbc(x, w, b, pad)  # noqa: E731
        torch.testing.assert_close(compile(program, args, target)(*args), program(*args), equal_nan=True)


@pytest.mark.parametrize("size", [(2, 3, 0, 5), (2, 1, 1, 3), (1, 2, 1, 1), (2, 1, 2, 1, 3)], ids=str)
def test_affine_grids_of_one_place(size: tuple[int, ...]) -> None:
    theta = torch.randn(size[0], len(size) - 2, len(size) - 1)
    for corners in (False, True):
        program = lambda x, corners=corners: torch.affine_grid_generator(x, list(size), corners)  # noqa: E731
        torch.testing.assert_close(compile(program, (theta,), "linalg")(theta), program(theta))


@pytest.mark.parametrize("grad", [torch.bool, torch.int16, torch.float16, torch.float32])
def test_a_mask_of_any_dtype_keeps_its_numbers(grad: torch.dtype) -> None:
    for mask in (torch.bool, torch.int8, torch.float64):
        args = torch.tensor([1, 0, 1, 1]).to(grad), torch.tensor([3, 1, -2, 0]).to(mask)
        program = lambda *x: torch.ops.aten.native_dropout_backward(*x, 1.5)  # noqa: E731
        result = compile(program, args, "linalg")(*args)
        assert result.dtype == program(*args).dtype and torch.equal(result, program(*args))


def test_a_zero_point_that_is_no_integer_is_added_before_it_rounds() -> None:
    args = torch.linspace(-3, 3, 12).view(2, 6), torch.tensor([0.5, 0.3]), torch.tensor([1.25, 2.5])
    program = lambda *x: torch.fake_quantize_per_channel_affine(*x, 0, 0, 15)  # noqa: E731
    assert torch.equal(compile(program, args, "linalg")(*args), program(*args))


def test_what_reads_memory_in_c_is_refused() -> None:
    program = lambda x: torch.choose_qparams_optimized(x, 5, 10, 0.5, 4)  # noqa: E731
    with pytest.raises(Unsupported, match=r"choose_qparams_optimized.*the memory of a tensor itself"):
        compile(program, (torch.randn(5),), "linalg")


TESTS = torch.cat([torch.tensor([1.0, float("inf"), -float("inf"), float("nan"), 0.0]), torch.arange(5.0, 200.0)])


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 0.0, 2.0, 7, 16777217])
@pytest.mark.parametrize("invert", [False, True])
def test_a_number_among_tests_of_which_one_is_none(number: float, invert: bool) -> None:
    for tests in (TESTS, TESTS[:4], torch.tensor([16777216] * 300)):
        program = lambda tests: torch.isin(number, tests, invert=invert)  # noqa: E731
        assert torch.equal(compile(program, (tests,), "evaluator")(tests), program(tests))
