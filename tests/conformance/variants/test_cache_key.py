"""The variant ``constants``: numbers that Python takes for equal are not one to a cache of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from variant_cases import asked, case

from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.cache_key import siblings


class KeptByEquality:
    """Programs of the same op, shapes, dtypes and equal numbers are one program."""

    name = "kept by equality"

    def __init__(self) -> None:
        self.kept: dict[Any, Program] = {}

    def compile(self, fn: Program, args: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
        numbers = tuple(n for call in fn.calls for n in leaves((call.args, call.kwargs)) if not isinstance(n, Ref))
        key = (fn.calls[0].target, tuple((t.shape, t.dtype) for t in args), numbers)
        return self.kept.setdefault(key, fn)


@pytest.mark.parametrize("other", [3.0, torch.tensor([2.0, 4.0])])
def test_a_cache_that_compares_numbers_is_found_by_two_that_are_equal(other: Any) -> None:
    x = torch.tensor([1.0, 2.0])
    given = case("torch.div", x, other) if isinstance(other, torch.Tensor) else case("torch.div", x, args=(other,))
    varied = asked(given, "constants")
    assert [str(one.program.calls[0].args[1]) for one in siblings(varied)][-2:] == ["0.0", "-0.0"]
    backend: Any = KeptByEquality()
    found = run_case(varied, backend)
    assert found.outcome is Outcome.MISMATCH and "expected -inf, got inf" in found.message
