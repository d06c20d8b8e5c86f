"""Cases as one: what a bundle computes, and the cases that are found again in it."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.program.bundle import bundle, may_be_member, members, with_inputs
from torchstone.conformance.program.case import Case, CaseError
from torchstone.conformance.program.fx import keeps_graph
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.backward import backward


def _case(target: str, index: int, shape: tuple[int, ...] = (2, 3)) -> Case:
    program = Program(("x0",), (Call(target, (Ref("x0"),), {}, "v0"),), Ref("v0"))
    numbers = torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape) / (1 + index)
    return Case(program, {"x0": numbers}, "fuzz", target, "float32", "default", index, ("kept",))


def _given(case: Case) -> list:
    found = case.program(*case.fresh_args())
    return torch.utils._pytree.tree_leaves(found)


CASES = [_case("torch.sin", 0), _case("torch.exp", 3, (4,)), _case("torch.Tensor.mul_", 5)]
CASES[2] = CASES[2].replace(
    program=Program(("x0",), (Call("torch.Tensor.mul_", (Ref("x0"), 2.0), {}, "v0"),), (Ref("v0"), Ref("x0")))
)


@pytest.mark.parametrize(
    "cases", [CASES, [backward(_case(name, at)) for at, name in enumerate(["torch.sin", "torch.exp"])]]
)
def test_a_bundle_gives_what_each_member_gives_and_its_members_are_found_again(cases):
    whole = Case.from_bytes(bundle(cases).to_bytes())
    results = whole.program(*whole.fresh_args())
    for case, result, member in zip(cases, results, members(whole), strict=True):
        for wanted, got, again in zip(
            _given(case), torch.utils._pytree.tree_leaves(result), _given(member), strict=True
        ):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
            torch.testing.assert_close(again, wanted, rtol=0, atol=0)
        assert (member.id, member.op, member.tags) == (case.id, case.op, case.tags)
        assert [str(call) for call in member.program.calls] == [str(call) for call in case.program.calls]


def test_one_case_is_its_own_bundle_and_has_itself_for_a_member():
    assert bundle(CASES[:1]) is CASES[0] and members(CASES[0]) == [CASES[0]]


def test_gradients_are_taken_after_all_forward_parts_and_at_once_where_each_takes_them_once():
    once = [backward(_case(name, at)) for at, name in enumerate(["torch.sin", "torch.exp", "torch.cos"])]
    targets = [call.target for call in bundle(once).program.calls]
    assert targets.count("torch.autograd.grad") == 1
    assert targets.index("torch.autograd.grad") > max(targets.index(f"torch.{name}") for name in ("sin", "exp", "cos"))
    assert not keeps_graph(bundle(once).program)

    two = Program(("x0",), (Call("torch.frexp", (Ref("x0"),), {}, "v0"), Call("torch.sin", (Ref("x0"),), {}, "v1")),
                  (Ref("v0", (0,)), Ref("v1")))  # fmt: skip
    several = [backward(_case("torch.sin", at).replace(program=two)) for at in range(2)]
    assert all(keeps_graph(case.program) for case in several)
    calls = bundle(several).program.calls
    assert sum(call.target == "torch.autograd.grad" for call in calls) > 2


def test_inputs_are_given_to_the_members_that_they_are_for():
    whole = with_inputs(bundle(CASES), {1: {"x0": torch.ones(7)}})
    assert [tuple(member.args[0].shape) for member in members(whole)] == [(2, 3), (7,), (2, 3)]


def test_what_has_too_long_a_name_or_is_a_bundle_is_no_member():
    assert may_be_member(CASES[0])
    assert not may_be_member(CASES[0].replace(op="x" * 500))
    assert not may_be_member(bundle(CASES))


@pytest.mark.parametrize("tag", ["member:", 'member:["fuzz"]', 'member:["fuzz", "sin", "float32", 0, 1]'])
def test_a_bundle_of_a_stranger_that_is_none_is_refused_by_name(tag):
    with pytest.raises(CaseError, match="damaged bundle"):
        members(CASES[0].replace(tags=(tag,)))
