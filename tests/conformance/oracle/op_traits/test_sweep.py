"""What the table says of ops, measured: the op database is run once, and each operator that runs is looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.conformance.oracle.op_traits.sweep import Measured, sweep
from torchstone.conformance.oracle.exactness.steps import never_rounds
from torchstone.conformance.oracle.op_traits.rounding import GIVES_INTEGERS_OR_BOOLEANS, NEVER_ROUNDS, ONE_ROUNDING
from torchstone.conformance.oracle.op_traits.trait import each
from torchstone.conformance.oracle.op_traits.undetermined import DRAWS_RANDOM_NUMBERS, UNINITIALIZED


@pytest.fixture(scope="module")
def measured() -> Measured:
    return sweep()


def operator(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


NOT_THE_SAME_NUMBERS = {
    "aten.nextafter.default": "the next number is another one in each dtype",
    "aten.new_full.default": "the number that is filled in is rounded to the dtype",
    "aten.round.decimals": "rounds to decimals by a product and a quotient",
    "aten.put.default": "adds up where accumulate is set",
    "aten.scatter.reduce": "adds up or multiplies",
}
"""What the table takes for exact, and is not for these arguments. It stays so: verdicts would change."""

MAY_SEEM_EXACT = each(
    """
    _cdist_forward _chunk_cat _fft_r2c _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors
    _linalg_det _pdist_forward _unsafe_masked_index _upsample_nearest_exact1d all allclose any as_strided_scatter
    block_diag cholesky_inverse cholesky_solve complex count_nonzero div floor_divide fmod fractional_max_pool2d
    fractional_max_pool3d frexp grid_sampler_3d hardshrink hardtanh hash_tensor histc histogram igamma igammac im2col
    isin linalg_eig linspace lu_unpack max_unpool2d max_unpool3d nansum native_dropout_backward nonzero_static polar
    segment_reduce softshrink special_zeta threshold upsample_nearest1d
    """
)
"""Ops that the table does not take for exact, whose first samples need no rounding or that select numbers. Leaving one
out of the table is safe: the rounding model then gives its results room that they do not need."""


def test_ops_that_never_round_give_the_same_numbers_in_float64(measured: Measured) -> None:
    rounded = {
        name
        for name, seen in measured.rounded.items()
        if any(seen) and never_rounds(operator(name)) and not UNINITIALIZED.holds(operator(name))
    }
    assert not rounded - NOT_THE_SAME_NUMBERS.keys(), "these round, and NEVER_ROUNDS names them"
    looked_at = {name for name, seen in measured.rounded.items() if seen and NEVER_ROUNDS.holds(operator(name))}
    assert len(looked_at) > 80


def test_ops_that_round_are_seen_to(measured: Measured) -> None:
    exact = {
        name.split(".")[1]
        for name, seen in measured.rounded.items()
        if seen and not any(seen) and not never_rounds(operator(name))
    }
    assert not exact - MAY_SEEM_EXACT.keys(), (
        "these gave the same numbers in float64: do they belong into NEVER_ROUNDS?"
    )
    assert sum(any(seen) for seen in measured.rounded.values()) > 150


@pytest.mark.parametrize("sign", ["zero_signs", "nan_signs"])
def test_ops_that_keep_signs_give_the_same_ones_however_they_are_run(measured: Measured, sign: str) -> None:
    seen: dict[str, list[bool]] = getattr(measured, sign)
    other = {name for name, same in seen.items() if not all(same) and "as_strided" not in name}  # reads other memory
    assert not other, "eager gives other signs in float64 or from memory with gaps"
    assert len(seen) > 40


def test_ops_that_give_integers_are_those_of_the_table(measured: Measured) -> None:
    """Beside casts, which give what they are asked for, and views of floating numbers as complex ones."""
    casts = {"aten._local_scalar_dense.default", "aten._to_copy.default", "aten.view_as_complex.default"}
    for name, floats in measured.gives_floats.items():
        if GIVES_INTEGERS_OR_BOOLEANS.holds(operator(name)):
            assert not any(floats), name
        elif never_rounds(operator(name)) and name not in casts:
            assert any(floats), f"{name} gives integers or booleans only"


def test_ops_that_draw_are_those_of_the_table(measured: Measured) -> None:
    draws = {name for name, drew in measured.draws.items() if drew}
    assert not {name for name in draws if not DRAWS_RANDOM_NUMBERS.has(name) and not name.endswith("_")}
    # A backward is given the mask, and the first samples of these do not train.
    asked = {"native_dropout_backward"} | {f"nn.functional.{kind}dropout" for kind in ("", "alpha_")}
    asked |= {"nn.functional.dropout2d", "nn.functional.dropout3d"}
    assert (
        not DRAWS_RANDOM_NUMBERS.ops.keys() - draws - asked - (DRAWS_RANDOM_NUMBERS.ops.keys() - measured.draws.keys())
    )


ARITHMETIC: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: torch.add(x, y),
    "sub": lambda x, y: torch.sub(x, y),
    "rsub": lambda x, y: torch.rsub(x, y),
    "mul": lambda x, y: torch.mul(x, y),
    "div": lambda x, y: torch.div(x, y),
    "sqrt": lambda x, y: torch.sqrt(x),
    "reciprocal": lambda x, y: torch.reciprocal(x),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ops_that_round_once_give_the_nearest_number(dtype: torch.dtype) -> None:
    assert ARITHMETIC.keys() == ONE_ROUNDING.ops.keys()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(5000, generator=generator).add(0.5).to(dtype) for _ in range(2))
    for name, function in ARITHMETIC.items():
        nearest = function(x.double(), y.double()).to(dtype)
        assert torch.equal(function(x, y), nearest), name
