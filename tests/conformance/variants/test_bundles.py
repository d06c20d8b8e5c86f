"""Several variants in one program: each with the inputs that it has alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from variant_cases import asked, case, own

from torchstone.conformance import planted
from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Untested
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import BUNDLES, VARIANTS


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors lie in memory alike, with the same numbers."""
    return one.stride() == other.stride() and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("target", ["torch.fmax", "torch.sub"])
def test_each_part_has_the_inputs_that_it_has_alone(name: str, target: str) -> None:
    given = case(target, own(6, 8), own(6, 8))
    whole, found = asked(given, name), set()
    for part in BUNDLES[name]:
        alone = apply(given, part)
        if isinstance(alone, Untested):
            continue
        found.add(part)
        if part == "same":  # with values that tell
            continue
        call = next(call for call in whole.program.calls if call.result.endswith(f"_{part}"))
        wanted = [alone.inputs[ref.name] for ref in alone.program.calls[0].refs()]
        assert all(map(same, [whole.inputs[ref.name] for ref in call.refs()], wanted)), part
    ends = (next((p for p in BUNDLES[name] if call.result.endswith(f"_{p}")), "") for call in whole.program.calls)
    assert set(ends) == found
    assert len(found) > 2
    assert run_case(whole, load("linalg")).outcome == "pass"


def test_parts_are_variants_that_are_run_as_they_are() -> None:
    assert all(VARIANTS.load(part).run is None for parts in BUNDLES.values() for part in parts)
    assert not set(BUNDLES) & {part for parts in BUNDLES.values() for part in parts}


def test_what_eager_refuses_is_left_out() -> None:
    target = "torch.nn.functional.binary_cross_entropy"
    changed = asked(case(target, torch.rand(20), torch.rand(20)), "values")
    assert len(changed.program.calls) == 1, "only ties are probabilities"
    refused = apply(case("torch.logical_not", torch.tensor([True])), "values")
    assert isinstance(refused, Untested) and "nothing to change" in refused.reason


def test_what_draws_random_numbers_is_asked_call_by_call() -> None:
    refused = apply(case("torch.bernoulli", torch.rand(6, 8)), "layouts")
    assert isinstance(refused, Untested) and "draws random numbers" in refused.reason


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bug", "target", "name"),
    [
        ("tanh-saturates-early", "torch.tanh", "values"),
        ("variance-by-squares", "torch.var", "values"),
        ("log1p-by-log", "torch.log1p", "values"),
        ("hardshrink-keeps-lambda", "torch.nn.functional.hardshrink", "values"),
        ("copysign-by-sign", "torch.copysign", "values"),
        ("row-sum-drops-tail", "torch.sum", "sizes"),
        ("unfold-of-offset", "torch.Tensor.unfold", "layouts"),
    ],
)
def test_a_bug_is_found_by_one_case(bug: str, target: str, name: str) -> None:
    args = {"torch.sum": (1,), "torch.Tensor.unfold": (0, 2, 1)}.get(target, ())
    given = case(target, *(own(6, 8) for _ in range(2 if target == "torch.copysign" else 1)), args=args)
    changed = asked(given, name)
    assert run_case(changed, load("eager")).outcome == "pass"
    assert run_case(changed, planted.load(bug)).outcome == "mismatch"
