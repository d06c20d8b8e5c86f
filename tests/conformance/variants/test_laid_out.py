"""Parts of a program whose inputs lie otherwise in memory by turns."""

from __future__ import annotations

import torch
from variant_cases import asked, case

from torchstone.conformance.variants.laid_out import TURNS, laid_out_by_turns


def test_two_of_three_lie_otherwise_and_hold_the_same_numbers() -> None:
    given = [case("torch.neg", torch.randn(4, 3)) for _ in range(2 * len(TURNS))]
    changed = laid_out_by_turns(given)
    assert [one.args[0].is_contiguous() for one in changed] == [True, False, False] * 2
    assert all(torch.equal(one.args[0], other.args[0]) for one, other in zip(given, changed, strict=True))


def test_what_eager_reads_as_it_lies_stays_as_it_is() -> None:
    """``as_strided`` reads memory: of transposed inputs it would be other numbers."""
    given = [case("torch.as_strided", torch.arange(12.0).reshape(4, 3), args=((2, 2), (3, 1))) for _ in TURNS]
    assert all(one.args[0].is_contiguous() for one in laid_out_by_turns(given))


def test_programs_of_other_arguments_are_laid_out() -> None:
    changed = asked(case("torch.sum", torch.randn(4, 3), args=(1,)), "arguments")
    assert {tensor.is_contiguous() for tensor in changed.args} == {True, False}
