"""Branches and loops in generated programs: valid, decided by exact numbers, and reduced with what is in them."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.program import control_flow
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Program
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.extend import Drafts
from torchstone.fuzz.generator.generate import SIZES_OF_VALUES, nth_program, runs_fake

COUNT = 12


@pytest.fixture(scope="module", params=["cond", "while_loop"])
def drawn(request: pytest.FixtureRequest) -> tuple[str, list[Case], Drafts]:
    drafts, must = Drafts(), select_rules((request.param,))
    cases = [nth_program(3, index, must=must, max_ops=3, drafts=drafts) for index in range(COUNT)]
    return f"torch.{request.param}", cases, drafts


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_they_are_drawn_run_and_are_seldom_refused(drawn: tuple[str, list[Case], Drafts]) -> None:
    target, cases, drafts = drawn
    assert drafts.programs_kept > 0.8 * drafts.programs
    for case in cases:
        assert any(call.target == target and call.bodies() for call in case.program.calls)
        results = case.program(*case.fresh_args())
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
        assert SIZES_OF_VALUES in case.tags or runs_fake(case.program, case.fresh_args(), leaves)


def test_a_body_has_calls_of_many_ops_and_gives_memory_of_its_own(drawn: tuple[str, list[Case], Drafts]) -> None:
    target, cases, _ = drawn
    inside = [call.target for case in cases for call in case.program.every_call if call not in case.program.calls]
    assert len(set(inside)) > COUNT
    for case in cases:
        args = case.fresh_args()
        taken = {tensor.untyped_storage().data_ptr() for tensor in args if tensor.numel()}
        env = dict(zip(case.program.inputs, args, strict=True))
        first = case.program.calls[0]
        if first.target == target and all(ref.name in env for ref in first.refs()):
            result = Program(case.program.inputs, (first,), Ref(first.result))(*args)
            assert not taken & {tensor.untyped_storage().data_ptr() for tensor in result if tensor.numel()}


def test_loops_come_to_an_end_without_floating_numbers() -> None:
    for index in range(6):
        case = nth_program(4, index, must=select_rules(("while_loop",)), max_ops=2)
        for call in case.program.every_call:
            if call.target == control_flow.WHILE_LOOP:
                assert [inner.target for inner in call.args[0].calls] == ["torch.lt"]
