"""Programs that are compiled as one by Inductor: in which order, and which of them leaves what to ATen."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.backends.adapters import inductor
from torchstone.conformance.backends.adapters.inductor import Inductor
from torchstone.conformance.backends.adapters.inductor_order import independent, interleaved
from torchstone.conformance.backends.protocol import LEFT_BY
from torchstone.conformance.program.bundle import bundle
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.member_names import is_bundle
from torchstone.conformance.program.program import Call, Program


def test_steps_that_need_each_other_are_one_program():
    assert independent([[], [], [0], [], [2, 3]]) == [[0, 2, 3, 4], [1]]


def test_each_program_keeps_its_order_and_the_calls_that_part_others_stand_together():
    programs = ["aBc", "dEf", "G", "h"]
    assert "".join(interleaved(programs, str.isupper)) == "adhBEGcf"
    assert interleaved(["aBcD"], str.isupper) == list("aBcD")


def _case(index: int, *targets: str) -> Case:
    calls: list[Call] = []
    for at, target in enumerate(targets):
        more = (3,) if target == "torch.matrix_power" else ()
        calls.append(Call(target, (Ref(f"v{at - 1}" if at else "x0"), *more), {}, f"v{at}"))
    program = Program(("x0",), tuple(calls), Ref(calls[-1].result))
    return Case(program, {"x0": torch.rand(3, 3)}, "fuzz", "some", "float32", "seed-0", index)


def _cases() -> list[Case]:
    """The second and the third leave an op to ATen, the last writes to its input."""
    return [
        _case(0, "torch.sin"),
        _case(1, "torch.cos", "torch.matrix_power", "torch.exp"),
        _case(2, "torch.exp", "torch.linalg.inv", "torch.tanh"),
        _case(3, "torch.Tensor.neg_"),
    ]


def test_a_bundle_is_known_by_its_names():
    cases = _cases()
    assert is_bundle(bundle(cases).program)
    assert not any(is_bundle(case.program) for case in cases)


@pytest.mark.torture
@pytest.mark.filterwarnings("ignore")  # of torch.jit, which Inductor imports
def test_the_kernels_of_a_bundle_are_two_files_and_what_is_left_to_aten_is_told_by_program():
    whole = bundle(_cases())
    compiled = Inductor().compile(whole.program, whole.fresh_args())
    given, kept = whole.fresh_args(), whole.fresh_args()
    for result, wanted in zip(compiled(*given), whole.program(*kept), strict=True):
        torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(given, kept)
    assert compiled.evidence[LEFT_BY]["aten::mm"] == [1, 1]
    assert compiled.evidence[LEFT_BY]["aten::linalg_inv_ex"] == [2]
    assert len(compiled.kernels) == 2
    ran = {name.partition(" x")[0] for name in compiled.evidence["ran"]["eager"]}
    assert ran <= compiled.evidence[LEFT_BY].keys()


@pytest.mark.torture
@pytest.mark.filterwarnings("ignore")  # of torch.jit, which Inductor imports
def test_each_size_that_is_asked_has_a_graph(monkeypatch: pytest.MonkeyPatch):
    """Without a place for more of them PyTorch refuses the ninth, as if the program were refused."""
    names = "abcd"
    program = Program(
        tuple(names), tuple(Call("torch.neg", (Ref(n),), {}, f"v{n}") for n in names), [Ref(f"v{n}") for n in names]
    )
    compiled = Inductor().compile_dynamic(program, tuple(torch.rand(5 + at) for at in range(4)), ((0,),) * 4)
    asked = [tuple(torch.rand(1 if 1 << at & which else 7) for at in range(4)) for which in range(10)]
    for args in asked:
        torch.testing.assert_close(compiled(*args), program(*args))
    assert 8 < len(asked) < inductor.GRAPHS
