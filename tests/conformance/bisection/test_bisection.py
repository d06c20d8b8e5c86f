"""A mutant of the compiler is blamed on the stage that it is in, and on the part of that stage."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from torchstone.cli import invoke
from torchstone.compiler.lowering.linalg import elementwise
from torchstone.conformance.backends.adapters.builtin import Linalg
from torchstone.conformance.backends.export_support import capture
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported
from torchstone.conformance.backends.registry import load
from torchstone.conformance.bisection import Blame, Tried, bisect, exported, stage_texts
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.same_failure import same_failure
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.mutants import BACKEND_NAME
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case

CASE = "opinfo:add:float32:0"
Text = tuple[str, str] | None


def bisect_none(case: Case) -> Verdict:
    """A verdict, of which the texts ask nothing."""
    return Verdict(case.id, "", "", "", "", "", Stage.COMPARE, Outcome.MISMATCH, "value")


class Refuses(Linalg):
    """The target linalg, which makes no kernels."""

    def compile(self, fn, args):
        if "row" in vars(self):  # it is one up to a stage
            return super().compile(fn, args)
        raise BackendError("no kernel")


class LacksKernels(Linalg):
    """The target linalg, which fails, and whose interpreters have no kernels for a dtype."""

    def compile(self, fn, args):
        raise NotImplementedError("no rshift_cpu of UInt64") if "row" in vars(self) else RuntimeError("not verified")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mutant", "case", "stage", "parts"),
    [
        ("addcdiv-swapped", "opinfo:addcdiv:float32:0", "expansions", ("aten.addcdiv.default",)),
        ("shared-whatever-attributes", "opinfo:aminmax:float32:0", "expansions", ("the pass cse",)),
        ("sub-swapped", "opinfo:sub:float32:2", "lowering", ("flat.sub",)),
        ("last-not-written", CASE, "runtime", ()),
        ("faults-running", "opinfo:amin:float32:1", "runtime", ()),
    ],
)
def test_a_mutant_is_blamed_on_its_stage(mutant: str, case: str, stage: str, parts: tuple[str, ...]) -> None:
    blame = bisect(find_case(case), f"{BACKEND_NAME}+{mutant}", 30.0)
    assert (blame.stage, blame.parts) == (stage, parts)


@pytest.mark.torture
def test_each_trial_is_told_as_it_ends() -> None:
    told: list[Tried] = []
    blame = bisect(find_case("opinfo:addcdiv:float32:0"), f"{BACKEND_NAME}+addcdiv-swapped", say=told.append)
    assert tuple(told) == blame.tried
    assert [(tried.name, tried.shows) for tried in told[:2]] == [("capture", False), ("decompositions", False)]


@pytest.mark.parametrize(
    ("stage", "before", "after"),
    [
        ("lowering", ("flat", "flat.add"), ("linalg", "linalg.generic")),
        pytest.param("capture", None, ("aten", "aten.add.Tensor"), marks=pytest.mark.torture),
        pytest.param("decompositions", ("aten", "aten.add"), ("contract", "aten.add"), marks=pytest.mark.torture),
        pytest.param("expansions", ("contract", "aten.add"), ("flat", "flat.add"), marks=pytest.mark.torture),
        pytest.param("code", ("linalg", "linalg.generic"), ("llvm", "llvm.func"), marks=pytest.mark.torture),
    ],
)
def test_the_program_before_and_after_a_stage(stage: str, before: Text, after: Text) -> None:
    case = find_case("opinfo:add:float32:2")
    texts = stage_texts(case, "linalg", Blame(bisect_none(case), stage))
    assert set(texts) == {side for side, text in (("before", before), ("after", after)) if text}
    for side, text in (("before", before), ("after", after)):
        if text:
            assert texts[side][0] == text[0] and text[1] in texts[side][1]


def test_what_dies_has_the_program_before_it() -> None:
    """Or raises, which is the same for who asks: what the compiler made up to there is shown."""
    case = find_case("opinfo:sub:float32:2")
    blame = Blame(bisect_none(case), "code")
    texts = stage_texts(case, f"{__name__}:Refuses", blame)
    assert texts["before"][0] == "linalg" and "linalg.generic" in texts["before"][1] and "after" not in texts


def test_what_does_not_fail_has_nobody_to_blame() -> None:
    blame = bisect(find_case(CASE), "linalg")
    assert (blame.verdict.outcome, blame.stage, blame.tried) == (Outcome.PASS, "", ())


def test_a_backend_without_known_stages_is_refused() -> None:
    with pytest.raises(InputError, match='stages of backend "eager" are not known'):
        bisect(find_case(CASE), "eager")


class AfterExport:
    """A compiler that takes exported programs, and gives one more."""

    name = "after-export"
    begins_with = "torch.export"

    def available(self):
        from torchstone.conformance.backends.protocol import Availability

        return Availability(True)

    def versions(self):
        return {}

    def compile(self, fn, args):
        return lambda *tensors: fn(*tensors) + 1


def test_a_compiler_behind_the_exporter_is_blamed_for_itself() -> None:
    blame = bisect(find_case(CASE), f"{__name__}:AfterExport")
    assert blame.stage == "after-export"
    assert [(tried.name, tried.shows) for tried in blame.tried] == [("torch.export", False), ("after-export", True)]


class Declines(AfterExport):
    """One that takes no program."""

    name = "declines"

    def compile(self, fn, args):
        raise BackendUnsupported("not today")


def test_a_refusal_has_a_stage() -> None:
    blame = bisect(find_case(CASE), f"{__name__}:Declines")
    assert (blame.verdict.outcome, blame.stage) == (Outcome.UNSUPPORTED, "declines")
    assert [(tried.name, tried.shows) for tried in blame.tried] == [("torch.export", False), ("declines", True)]


def test_a_primitive_without_a_rule_is_refused_by_the_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expansion that asks for it is right: the lowering is asked what it takes where its own turn comes."""
    monkeypatch.delitem(elementwise.FLOAT, "exp")
    elementwise.takes.cache_clear()
    case = find_case("opinfo:sigmoid:float32:0")
    blame = bisect(case, "linalg", 30.0)
    given = stage_texts(case, "linalg", blame, 30.0)["before"]
    elementwise.takes.cache_clear()
    assert (blame.verdict.outcome, blame.stage, blame.parts) == (Outcome.UNSUPPORTED, "lowering", ("flat.exp",))
    assert given[0] == "flat" and "flat.exp(" in given[1]


class WrongTable(AfterExport):
    """One that is right, but has PyTorch decompose expm1 wrongly, as another backend does."""

    name = "wrong-table"

    def decompositions(self):
        return {torch.ops.aten.expm1.default: torch.exp}

    def compile(self, fn, args):
        exported = capture(fn, args, self.decompositions())
        module = exported.program.module()
        return lambda *tensors: exported.finish(tensors, module(*tensors))


class OnWrongTable(AfterExport):
    """A compiler that begins as another one, which is wrong, and is right about the rest."""

    shares_with = f"{__name__}:WrongTable"


def test_torch_mlir_has_a_stage_for_what_its_output_types_share() -> None:
    stages = [rung.stage for rung in exported.rungs(load("torch-mlir-tosa"))]
    assert stages == ["torch.export", "decompositions", "shared with torch-mlir-linalg", "torch-mlir-tosa"]
    stages = [rung.stage for rung in exported.rungs(load("torch-mlir-stablehlo+undecomposed"))]
    assert stages[:3] == ["torch.export", "decompositions", "torch-mlir"]


@pytest.mark.torture
def test_a_table_of_decompositions_is_a_stage() -> None:
    blame = bisect(find_case("opinfo:expm1:float32:0"), f"{__name__}:WrongTable")
    assert blame.stage == "decompositions"


@pytest.mark.torture
def test_what_two_backends_share_is_a_stage() -> None:
    blame = bisect(find_case("opinfo:expm1:float32:0"), f"{__name__}:OnWrongTable")
    assert blame.stage == f"shared with {__name__}:WrongTable"


def test_what_an_interpreter_has_no_kernel_for_is_not_the_failure() -> None:
    blame = bisect(find_case(CASE), f"{__name__}:LacksKernels")
    assert {tried.name for tried in blame.tried if tried.shows} == {blame.stage} == {"code"}


def test_failures_are_the_same_by_outcome_and_kind() -> None:
    case = find_case(CASE)
    wrong = bisect(case, f"{__name__}:AfterExport").verdict
    assert same_failure(wrong, wrong)
    assert not same_failure(dataclasses.replace(wrong, kind="dtype"), wrong)
    rounded = dataclasses.replace(wrong, evidence={"ulps": 1.0})
    assert not same_failure(rounded, wrong) and not same_failure(wrong, rounded)
    assert same_failure(rounded, dataclasses.replace(wrong, evidence={"ulps": 2.0}))
    assert same_failure(wrong, dataclasses.replace(wrong, evidence={"ulps": "inf"}))
    assert not same_failure(dataclasses.replace(wrong, outcome=Outcome.ERROR), wrong)
    crash, hang = (dataclasses.replace(wrong, outcome=outcome) for outcome in (Outcome.CRASH, Outcome.TIMEOUT))
    assert same_failure(crash, hang)


def test_the_command_says_who_is_to_blame(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["bisect", "opinfo:addcdiv:float32:0", "--backend"]
    assert invoke([*words, f"{BACKEND_NAME}+addcdiv-swapped"]) == 1
    out = capfd.readouterr().out.splitlines()
    assert out[-1] == "blame    expansions: aten.addcdiv.default"
    assert "fails        FlatIR, run by the primitives' evaluators" in out
    assert invoke([*words, "eager"]) == 2
    assert "are not known" in capfd.readouterr().err
