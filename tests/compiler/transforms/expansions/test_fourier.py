"""Fourier transforms against their definition: what vanishes is exactly 0, and float64 keeps its digits."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile
from torchstone.compiler.transforms.expansions.linalg.fourier import LONGEST


@pytest.mark.parametrize("length", [2, 10, 48, 100])
def test_the_middle_frequency_of_real_numbers_is_real(length: int) -> None:
    x = torch.randn(3, length, dtype=torch.float64)
    got = compile(torch.fft.rfft, (x,), target="evaluator")(x)
    assert torch.equal(got.imag[:, [0, -1]], torch.zeros(3, 2, dtype=torch.float64))


@pytest.mark.parametrize("length", [1, 3, 8, 129, 1000])
def test_a_single_impulse_gives_roots_of_unity(length: int) -> None:
    x = torch.zeros(length, dtype=torch.complex128)
    x[-1] = 1
    got = compile(torch.fft.fft, (x,), target="evaluator")(x)
    exact = torch.polar(
        torch.ones(length, dtype=torch.float64), torch.arange(length).double() * (2 * torch.pi / length)
    )
    torch.testing.assert_close(got.abs(), torch.ones(length, dtype=torch.float64), rtol=2**-52, atol=0)
    torch.testing.assert_close(got, exact, rtol=0, atol=2e-15)


@pytest.mark.parametrize("length", [7, 8, 30])
def test_there_and_back(length: int) -> None:
    x = torch.randn(length, 5, dtype=torch.float64)
    there = compile(lambda x: torch.fft.rfft(x, dim=0), (x,), target="evaluator")(x)
    back = compile(lambda x: torch.fft.irfft(x, length, dim=0), (there,), target="evaluator")(there)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("length", [7, 8])
def test_what_a_real_signal_has_no_imaginary_part_of(length: int) -> None:
    x = torch.arange(1.0, length + 1)
    x[3] = torch.inf
    got = compile(torch.fft.rfft, (x,), target="linalg")(x)
    assert (got.imag[[0, -1] if length % 2 == 0 else [0]] == 0).all()
    half = torch.fft.rfft(torch.arange(1.0, length + 1))
    half.imag[0], half.imag[-1] = torch.nan, half.imag[-1] if length % 2 else torch.inf
    back = compile(lambda x: torch.fft.irfft(x, length), (half,), target="linalg")(half)
    torch.testing.assert_close(back, torch.arange(1.0, length + 1))


def test_of_run_time_length_to_the_same_digits() -> None:
    x = torch.randn(1000, dtype=torch.complex128)
    fixed = compile(torch.fft.fft, (x,), target="evaluator")
    free = compile(torch.fft.fft, (x[:30],), target="evaluator", dynamic_shapes=({0: Dim.AUTO},))
    torch.testing.assert_close(free(x), fixed(x), rtol=0, atol=0)


def test_a_run_time_length_that_is_too_long() -> None:
    free = compile(torch.fft.rfft, (torch.randn(30),), target="evaluator", dynamic_shapes=({0: Dim.AUTO},))
    with pytest.raises(GuardError, match=f"<= {LONGEST} must hold"):
        free(torch.randn(LONGEST + 1))
