"""Programs that write: what is written is tracked through every view, and no write has a result that is left open."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.program.literals import Ref
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.choices import ReplayedChoices
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft
from torchstone.fuzz.generator.generate import nth_program
from torchstone.fuzz.generator.writes import is_writable


def _draft(tensor: torch.Tensor | None = None) -> Draft:
    draft = Draft(ReplayedChoices([]))
    draft.given(torch.arange(6.0).reshape(2, 3) / 4 if tensor is None else tensor)
    return draft


def _viewed(draft: Draft) -> Draft:
    """The first input copied, and the first row of the copy."""
    draft.call("torch.clone", Arguments((draft.values[0],)), exact=True, cuts=False)
    draft.call("torch.select", Arguments((draft.values[1], 0, 0)), exact=True, cuts=False)
    return draft


def test_programs_write_to_inputs_to_intermediates_and_through_views():
    pool = select_rules(("add", "sin", "select", "narrow", "transpose", "__setitem__", "copy_", "index_put"))
    kinds = set()
    for index in range(60):
        case = nth_program(0, index, pool)
        args = case.fresh_args()
        case.program(*args)
        if not all(map(equal_tensors, args, case.args)):
            kinds.add("input")
        made = {call.result: call.target for call in case.program.calls}
        for call in case.program.calls:
            if call.target.endswith("_"):
                kinds.add(made.get(call.args[0].name, "").rpartition(".")[2])
    assert kinds >= {"input", "sin", "select", "narrow", "transpose"}


def test_a_write_through_a_view_returns_what_it_is_a_view_of():
    draft = _viewed(_draft())
    draft.call("torch.Tensor.add_", Arguments((draft.values[2], 1)), exact=False, cuts=False)
    assert draft.program().outputs == (Ref("v0"), Ref("v2"))
    assert draft.values[1].tensor[0].tolist() == [1.0, 1.25, 1.5]


def test_rounding_reaches_every_view_of_what_is_written():
    draft = _viewed(_draft())
    draft.call("torch.Tensor.exp_", Arguments((draft.values[2],)), exact=False, cuts=False)
    assert [value.exact for value in draft.values] == [True, False, False, False]
    rounded, whole = draft.values[1], draft.given(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(CallRejected, match="integers from rounded operands"):
        draft.call("torch.Tensor.copy_", Arguments((whole, rounded)), exact=True, cuts=False)
    assert not whole.tensor.any()


def test_a_refused_write_is_undone_and_an_input_of_the_case_is_never_written():
    draft = _draft()
    before = draft.inputs["x0"].clone()
    with pytest.raises(CallRejected, match="as large as"):
        draft.call("torch.Tensor.mul_", Arguments((draft.values[0], 1e30)), exact=False, cuts=False)
    assert torch.equal(draft.values[0].tensor, before)
    draft.call("torch.Tensor.mul_", Arguments((draft.values[0], 2)), exact=False, cuts=False)
    assert torch.equal(draft.inputs["x0"], before) and torch.equal(draft.values[0].tensor, 2 * before)
    assert draft.program().outputs == Ref("v0")


def test_a_write_without_a_result_returns_what_was_written():
    draft = _draft()
    draft.call("torch.Tensor.__setitem__", Arguments((draft.values[0], 0, 1.0)), exact=True, cuts=False)
    assert draft.program().outputs == Ref("x0")


def test_writes_whose_result_pytorch_leaves_open_are_refused():
    def write(target: str, *others: int, elementwise: bool = False) -> None:
        draft = _draft(torch.arange(9.0).reshape(3, 3))
        draft.call("torch.t", Arguments((draft.values[0],)), exact=True, cuts=False)
        operands = tuple(draft.values[at] for at in (0, *others))
        draft.call(f"torch.Tensor.{target}", Arguments(operands), False, False, elementwise)

    write("add_", 0, elementwise=True)  # each element reads itself alone
    for target, others in (("copy_", (1,)), ("addmm_", (0, 0)), ("mul_", (1,))):
        with pytest.raises(CallRejected, match=r"it reads or writes|given twice|clone\(\)"):
            write(target, *others)
    draft = _draft()
    draft.call("torch.reshape", Arguments((draft.values[0], (3, 2))), exact=True, cuts=False)
    with pytest.raises(CallRejected, match="a view or a copy"):
        draft.call("torch.Tensor.neg_", Arguments((draft.values[0],)), exact=True, cuts=False)
    draft = _draft()
    mean, var = draft.given(torch.ones(1).expand(3)), draft.given(torch.ones(3))
    with pytest.raises(CallRejected, match="in one place"):  # of which eager's batch norm takes no notice
        arguments = Arguments((draft.values[0], mean, var), {"training": True})
        draft.call("torch.nn.functional.batch_norm", arguments, exact=False, cuts=False)


def test_what_may_be_written_to():
    row = torch.arange(12.0)
    assert all(map(is_writable, (row, row.view(3, 4).t(), row[::2], row[:0], row[0], row.view(1, 12).expand(1, 12))))
    assert not any(map(is_writable, (row[:1].expand(3), row.unfold(0, 3, 1), row.to(torch.complex64).conj())))


def test_inputs_that_share_memory_are_there_and_stay_together_in_copies():
    cases = [nth_program(0, index, select_rules(("add", "copy_"))) for index in range(120)]
    shared = [c for c in cases if len({storage_key(t) for t in c.args}) < len(c.args)]
    assert shared
    for case in shared:
        assert len({storage_key(t) for t in case.fresh_args()}) == len({storage_key(t) for t in case.args})
