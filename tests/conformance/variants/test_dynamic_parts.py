"""Sizes known at run time only: of samples with other arguments, in other dtypes, and of nothing along one dim."""

from __future__ import annotations

import pytest
import torch
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import part_of, run_case
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case
from torchstone.conformance.variants.dynamic import ELEMENTS, LONG_OF, MORE, _long, plan

pytestmark = pytest.mark.usefixtures("no_forks")


def alone(whole: Case) -> list[Case]:
    return [part_of(whole, program) for _, program in parts_of(whole.program, whole.args)]


def test_samples_with_other_arguments_and_dtypes_are_compiled_each_by_itself() -> None:
    whole = asked(find_case("opinfo:diagonal:float32:1"), "dynamic")
    parts = alone(whole)
    assert len(parts) == 1 + MORE
    assert len({tensor.dtype for part in parts for tensor in part.args}) > 1
    calls = [call for part in parts for call in part.program.calls if call.operator == "diagonal"]
    assert len({repr((call.args[1:], call.kwargs)) for call in calls}) > 1
    assert 0 < sum(part.program.differentiates for part in parts) < len(parts)
    assert all(plan(part) is not None for part in parts)


class Wrong:
    """Right at the sizes it is compiled for, and wrong for one dtype at all others."""

    name = "wrong"

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def compile_dynamic(self, fn, args, dims):
        def run(*tensors):
            out = fn(*tensors)
            wrong = tensors[0].dtype == self.dtype and tensors[0].shape != args[0].shape
            return torch.utils._pytree.tree_map(lambda leaf: leaf + 1, out) if wrong else out

        return run


def test_a_failure_of_a_part_is_that_of_the_case() -> None:
    whole = asked(find_case("opinfo:diagonal:float32:0"), "dynamic")
    assert run_case(whole, Wrong(torch.float64)).outcome == "pass"
    for dtype in {tensor.dtype for tensor in whole.args}:
        verdict = run_case(whole, Wrong(dtype))
        assert verdict.outcome == "mismatch" and verdict.message.startswith("called with sizes")


@pytest.mark.filterwarnings("ignore:var")
def test_one_size_alone_is_1_and_0() -> None:
    whole = asked(case("torch.var", torch.randn(4, 6), args=(1,)), "dynamic")
    varying = plan(whole)
    assert varying is not None
    assert {tuple(other.args[0].shape) for other in varying.small} == {(1, 1), (0, 0), (1, 6), (0, 6), (4, 1), (4, 0)}
    assert run_case(whole, load("linalg")).outcome == "pass"


def test_sizes_vary_that_go_with_no_fixed_one() -> None:
    given = case("torch.nn.functional.fold", torch.randn(4, 12, 6), args=((4, 3), (2, 2)))
    varying = plan(asked(given, "dynamic"))
    assert varying is not None and varying.dims == ((0,),)
    assert [other.args[0].shape for other in varying.others] == [(5, 12, 6), (8, 12, 6), (3, 12, 6)]


@pytest.mark.parametrize(
    ("target", "args", "is_long"),
    [("torch.sin", (), True), ("torch.unbind", (), False), ("torch.split", (1,), False), ("torch.chunk", (2,), True)],
)
def test_no_size_is_long_that_gives_as_many_tensors(target: str, args: tuple[int, ...], is_long: bool) -> None:
    given = case(target, torch.randn(6), args=args).replace(index=LONG_OF + 2)
    found = list(_long(given, ((0,),)))
    assert [other.args[0].numel() for other in found] == [ELEMENTS] * is_long
