"""Each legalized function, over every exponent of float32, is as near to the truth as it says.

The primitives that it is made of give the nearest number here, so that the formula alone is measured, and on any
machine alike: eager's own are as far off as its library of the processor has them.
"""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from tests.compiler.flat import (
    legalized,
    magnitudes,
    nearest,
    pairs,
    primitive,
    signs_of_zero_differ,
    special,
    ulp_error,
)
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.transforms.legalizations.common import BOUNDS

FUNCTIONS = [name for name, dtype in BOUNDS if dtype == "float32"]
TRUTH = {"erfc": torch.special.erfc, "rem": torch.fmod}
# The primitives that some target lacks together: a formula is also tried on top of other formulas.
CHAINS = {
    "log1p": ("ne", "le", "lt"), "asinh": ("log1p", "sqrt", "lt"), "acosh": ("log1p", "sqrt", "abs"),
    "sinh": ("expm1",), "atanh": ("log1p", "ge", "ne"), "tanh": ("expm1", "abs", "neg"), "log10": ("round",),
    "round": ("abs", "neg", "sub"), "asin": ("sqrt",), "acos": ("sqrt",), "atan2": ("ne", "max", "min"),
    "rsqrt": ("sqrt",), "trunc": ("ceil", "lt"),
}  # fmt: skip


def operands(arity: int) -> tuple[torch.Tensor, ...]:
    x = magnitudes()
    if arity == 1:
        return (x,)
    generator = torch.Generator().manual_seed(0)
    shuffled = x[torch.randperm(len(x), generator=generator)]
    plain = torch.randn(2, 20_000, generator=generator) * 10
    return tuple(torch.cat(parts) for parts in zip((x, shuffled), plain, pairs(torch.float32), strict=True))


@pytest.mark.parametrize("missing", [(name,) for name in (*FUNCTIONS, "rem")] + [(n, *c) for n, c in CHAINS.items()])
def test_bound(missing: tuple[str, ...]) -> None:
    name = missing[0]
    xs = operands(PRIMITIVES[f"flat.{name}"].arity or 0)
    (got,) = legalized(primitive(name, *xs), xs, *missing, by=nearest)
    want = (TRUTH.get(name) or getattr(torch, name))(*(x.double() for x in xs))
    error = ulp_error(got, want)
    worst = int(error.argmax())
    assert error[worst] <= BOUNDS.get((name, "float32"), 0.0), (
        error[worst],
        [x[worst] for x in xs],
        got[worst],
        want[worst],
    )
    assert not signs_of_zero_differ(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_are_rounded_once(dtype: torch.dtype) -> None:
    x = magnitudes()[::7].to(dtype)
    for name in ("log2", "expm1", "atan"):
        (got,) = legalized(primitive(name, x), (x,), name, by=nearest)
        assert got.dtype is dtype
        assert ulp_error(got, getattr(torch, name)(x.double())).max() <= 0.51


# What mpmath has by another name.
_MPMATH = {"exp2": lambda x: mpmath.power(2, x), "log2": lambda x: mpmath.log(x, 2), "lgamma": mpmath.loggamma}
DOUBLES = [name for name, dtype in BOUNDS if dtype == "float64" and name not in ("trunc", "round", "ceil")]


@pytest.mark.few(7)
@pytest.mark.parametrize("name", DOUBLES)
def test_bound_in_float64(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = (
        torch.randn(300, generator=generator, dtype=torch.float64)
        * torch.tensor([1e-9, 0.5, 1, 10, 300]).double()[:, None]
    )
    x = torch.cat([x.flatten(), 1 + x.flatten()[:300], special(torch.float64)])
    (got,) = legalized(primitive(name, x), (x,), name)
    whole = getattr(torch, name)(x)
    with mpmath.workprec(200):
        truth = _MPMATH.get(name) or getattr(mpmath, name)
        fine = whole.isfinite() & got.isfinite() & (whole != 0)
        places = zip(x[fine].tolist(), got[fine].tolist(), whole[fine].tolist(), strict=True)
        error = [abs(truth(v) - g) / math.ulp(w) for v, g, w in places]
    worst = max(range(len(error)), key=error.__getitem__)
    if name == "lgamma":  # below 0 it has zeros whose distance nobody can tell from x
        error = [e for e, v in zip(error, x[fine].tolist(), strict=True) if v > 0]
        worst = max(range(len(error)), key=error.__getitem__)
    # The primitives it is made of are eager's here: each may be off by one.
    assert error[worst] <= BOUNDS[name, "float64"] + 2, (error[worst], x[fine][worst])
    assert torch.equal(got[~fine].nan_to_num(nan=7), whole[~fine].nan_to_num(nan=7))


def test_logarithms_of_powers_are_whole() -> None:
    for name, base, exponents in (("log2", 2.0, range(-149, 128)), ("log10", 10.0, range(11))):
        x = torch.tensor([base**n for n in exponents])
        (got,) = legalized(primitive(name, x), (x,), name, by=nearest)
        assert torch.equal(got, torch.tensor(list(exponents), dtype=torch.float32))


def test_remainder_of_every_quotient_is_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, 50_000), generator=generator).to(torch.int32)
    a, b = bits.view(torch.float32)
    whole = torch.arange(-60.0, 60.0)
    a, b = torch.cat([a, whole.repeat(120)]), torch.cat([b, whole.repeat_interleave(120)])
    (got,) = legalized(primitive("rem", a, b), (a, b), "rem", by=nearest)
    assert ulp_error(got, torch.fmod(a.double(), b.double())).max() == 0
