"""Functions of float32 over the whole of float32: few ULP from float64's, with its NaN, infinities and signs."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.linalg.polynomials import POLYNOMIALS
from torchstone.compiler.lowering.linalg.single import SINGLE

SMALLEST_NORMAL = 2.0**-126
# Those computed in float32; the others are rounded once.
ULPS = {"exp": 1.1, "erfc": 5.0}
# The first bits of every float32 and a prime number of those after: 2**32 / 4093, about a million.
EVERYWHERE = torch.arange(0, 1 << 32, 4093).to(torch.int32).view(torch.float32)
EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 2.0, 10.0, 1000.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72284,
     88.72283, -103.97208, -103.9, -87.33655, 128.0, -149.0, -150.0, 0.70710677, 0.7071068, 1.4142135, 0.99999994,
     -0.99999994, 1e-8, -1e-8, 4.0, -4.0, 10.05, 10.2, 9.0, -9.0, 20.0, -88.0, -103.0, 88.7,
     float("inf"), float("-inf"), float("nan")]
)  # fmt: skip


def function(name: str):
    return getattr(torch, name)


@pytest.mark.few(7)
@pytest.mark.parametrize("name", sorted({*POLYNOMIALS, *SINGLE}))
def test_within_few_ulp_of_float64(name: str) -> None:
    x = torch.cat([EVERYWHERE, EDGES])
    out, exact = compile(function(name), (x,))(x), function(name)(x.double())
    rounded = exact.float()
    assert torch.equal(out.isnan(), rounded.isnan())
    assert torch.equal(out.signbit()[~out.isnan()], rounded.signbit()[~out.isnan()])
    finite = rounded.isfinite() & out.isfinite()
    assert torch.equal(out[~finite & ~out.isnan()], rounded[~finite & ~out.isnan()])
    ulp = torch.exp2(exact.abs().clamp(min=SMALLEST_NORMAL).log2().floor() - 23)
    assert ((out.double() - exact).abs() / ulp)[finite].max() < ULPS.get(name, 0.51)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted({*POLYNOMIALS, *SINGLE}))
def test_every_16_bit_float_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(1 << 16).to(torch.int16).view(dtype)
    out, exact = compile(function(name), (x,))(x), function(name)(x.double())
    assert torch.equal(out.isnan(), exact.isnan())
    rounded = exact.float().to(dtype)
    other = (out != rounded) & ~rounded.isnan()
    if name in SINGLE:
        # Few ULP of float32 are not half a ULP of float16, but where the exact value lies half way.
        assert other.sum() <= 4
        out, rounded = out[other].float(), rounded[other].float()
        torch.testing.assert_close(out, rounded, rtol=torch.finfo(dtype).eps, atol=0)
    else:
        assert not other.any()
