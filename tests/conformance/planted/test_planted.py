"""The planted bugs: each differs from eager on its witness, and equals it where its condition does not hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from torchstone.conformance import planted
from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.planted.bug import ask, steps
from torchstone.conformance.planted.changes import f32
from torchstone.conformance.planted.witness import difference
from torchstone.conformance.program.literals import Ref

GROUPS = sorted({bug.group for bug in planted.BUGS.values()})


@pytest.fixture(autouse=True)
def _as_in_a_worker() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


@pytest.mark.few(8)
@pytest.mark.parametrize("group", GROUPS)
def test_each_bug_shows_on_its_witness_and_nowhere_on_its_control(group: str) -> None:
    for bug in (bug for bug in planted.BUGS.values() if bug.group == group):
        assert difference(bug.witness(), planted.load(bug.name)), f"{bug.name} equals eager on its witness"
        assert not (told := difference(bug.control(), planted.load(bug.name))), f"{bug.name} on its control: {told}"


def test_without_a_bug_the_backend_is_eager() -> None:
    """What the witnesses show is the bugs' doing, not the dispatch mode's."""
    for bug in list(planted.BUGS.values())[::5]:
        assert not difference(bug.witness(), planted.load("none")), bug.name


def test_the_set_is_large_and_its_rows_are_whole() -> None:
    bugs = planted.BUGS.values()
    assert len(bugs) >= 400 and len(GROUPS) >= 50
    assert len({bug.wrong + bug.when + str(bug.ops) for bug in bugs}) == len(bugs)
    for bug in bugs:
        assert bug.wrong and bug.when and bug.modelled_on and bug.name == bug.name.lower()
        assert (bug.rule is None) != (bug.compile is None) and bool(bug.ops) == (bug.rule is not None)


def test_the_halves_follow_from_the_names() -> None:
    held_out = [bug.name for bug in planted.BUGS.values() if bug.held_out]
    assert 0.4 < len(held_out) / len(planted.BUGS) < 0.6
    assert planted.BUGS["exp-beyond-20"].held_out and not planted.BUGS["tanh-saturates-early"].held_out


def test_a_bug_is_a_backend_by_its_name() -> None:
    backend = load_backend("torchstone.conformance.planted:tanh-saturates-early")
    case = ask("torch.tanh", f32(4.2)).case()
    assert run_case(case, backend).outcome is Outcome.MISMATCH
    assert run_case(case, load_backend("torchstone.conformance.planted:none")).outcome is Outcome.PASS
    with pytest.raises(InputError, match='unknown planted bug "tanh-saturates"'):
        load_backend("torchstone.conformance.planted:tanh-saturates")
    with pytest.raises(UnknownName):
        planted.load("tanh-saturates")


def test_an_op_that_writes_to_its_argument_has_the_defect_too() -> None:
    in_place = steps(("torch.clone", f32(4.2)), ("torch.Tensor.tanh_", Ref("y0")))
    assert difference(in_place, planted.load("tanh-saturates-early"))
    written = steps(("torch.zeros", (1,)), ("torch.ops.aten.tanh.out", f32(4.2)), out=Ref("y0"))
    assert difference(written, planted.load("tanh-saturates-early"))


def test_a_difference_is_no_rounding() -> None:
    """What shows a bug is more than what two right backends may differ by."""

    class Rounded:
        name = "rounded"

        def compile(self, fn, args):
            return lambda *tensors: torch.nextafter(fn(*tensors), f32(float("inf")))

    assert not difference(ask("torch.exp", f32(1, 2)), Rounded())
    assert difference(ask("torch.neg", f32(0.0)), planted.load("add-zero-folded")) == ""
