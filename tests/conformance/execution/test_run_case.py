"""From a case to a verdict: each way a backend can be right, wrong, unable or broken has its own outcome."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.backends.protocol import Availability, BackendError, BackendUnsupported
from torchstone.conformance.execution.run_case import compile_cases, run_case, untested_verdict
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.oracle import compare as judge_module
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref

Compiler = Callable[[Callable[..., Any], tuple[Tensor, ...]], Callable[..., Any]]


class Fake:
    """A backend made of one function."""

    name = "fake"

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self.compiler(fn, args)


def case_of(target: str, *args: Any, inputs: dict[str, Tensor] | None = None, **kwargs: Any) -> Case:
    inputs = {"x0": torch.arange(4.0), "x1": torch.ones(4)} if inputs is None else inputs
    program = Program(tuple(inputs), (Call(target, args or tuple(map(Ref, inputs)), kwargs, "r0"),), Ref("r0"))
    return Case(program, inputs, "test", target.removeprefix("torch."), "float32", variant="odd", index=3)


SUB = case_of("torch.sub")


@pytest.mark.parametrize("target", ["torch.linalg.eigvals", "torch.ops.aten.linalg_eigvals"])
def test_eager_is_not_given_what_makes_it_corrupt_memory(target: str) -> None:
    ordinary, broken = torch.eye(3), torch.full((3, 3), float("nan"))
    cases = [case_of(target, inputs={"x0": x}) for x in (broken, ordinary, broken)]
    backend: Any = Eager()
    backend.compile_many = lambda programs: [program for program, _ in programs]
    verdicts = [run_case(*pair) for pair in zip(cases, [backend] * 3, compile_cases(cases, backend), strict=True)]
    assert [verdict.outcome for verdict in verdicts] == [Outcome.UNTESTED, Outcome.PASS, Outcome.UNTESTED]
    assert "is not finite" in verdicts[0].message


def test_what_the_backend_tells_about_its_code_is_evidence() -> None:
    def compiler(fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            return fn(*tensors)

        run.__dict__["evidence"] = {"seen": ["aten.sub"]}
        return run

    verdict = run_case(SUB, Fake(compiler))
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence["seen"] == ["aten.sub"]


def running(function: Callable[..., Any]) -> Fake:
    return Fake(lambda fn, args: function)


def raising(error: BaseException, at_run: bool = False) -> Fake:
    def fail(*args: Any) -> Any:
        raise error

    return Fake(lambda fn, args: fail) if at_run else Fake(fail)


def outcome(verdict: Verdict) -> tuple[str, str, str]:
    return str(verdict.stage), str(verdict.outcome), verdict.kind


def test_eager_passes_and_the_verdict_is_labelled() -> None:
    verdict = run_case(SUB, Eager())
    assert outcome(verdict) == ("compare", "pass", "")
    assert verdict.case_id == "test:sub:float32:3:odd"
    assert (verdict.backend, verdict.source, verdict.op, verdict.dtype) == ("eager", "test", "sub", "float32")
    assert verdict.variant == "odd"
    assert 0 < verdict.seconds < 60


def test_swapped_operands_are_a_mismatch() -> None:
    verdict = run_case(SUB, running(lambda x, y: y - x))
    assert outcome(verdict) == ("compare", "mismatch", "value")
    assert verdict.failed
    assert verdict.evidence["count"] == 3
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_inputs_written_to_are_a_mismatch() -> None:
    assert outcome(run_case(SUB, running(lambda x, y: x.sub_(y).clone())))[1:] == ("mismatch", "mutation")


def test_a_backend_may_write_to_the_example_inputs_of_its_compilation() -> None:
    def compiler(fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        args[0].zero_()
        return fn

    assert run_case(SUB, Fake(compiler)).outcome is Outcome.PASS
    assert SUB.args[0].tolist() == [0, 1, 2, 3]


def test_a_backend_that_changes_its_mind_is_nondeterministic() -> None:
    answers = iter(range(1, 100))
    verdict = run_case(SUB, running(lambda x, y: x - y + next(answers)))
    assert outcome(verdict) == ("compare", "mismatch", "nondeterministic")


@pytest.mark.parametrize("at_run", [False, True])
@pytest.mark.parametrize(
    ("error", "stage", "result"),
    [
        (BackendUnsupported("no such op", stage="capture", op="aten.sub"), Stage.CAPTURE, Outcome.UNSUPPORTED),
        (Unsupported("no rule", stage="lower", op="aten.sub.Tensor"), Stage.LOWER, Outcome.UNSUPPORTED),
        (Unsupported("not legal", stage="contract", op="aten.sub.Tensor"), Stage.LOWER, Outcome.UNSUPPORTED),
        (BackendError("pass failed", stage="lower"), Stage.LOWER, Outcome.ERROR),
        (TorchstoneError("broken", stage="compile"), Stage.COMPILE, Outcome.ERROR),
        (GuardError("shape differs"), Stage.RUN, Outcome.ERROR),
    ],
)
def test_what_a_backend_says_of_itself(error: Exception, stage: Stage, result: Outcome, at_run: bool) -> None:
    verdict = run_case(SUB, raising(error, at_run))
    assert (verdict.stage, verdict.outcome) == (stage, result)
    op = getattr(error, "op", "")
    if result is Outcome.UNSUPPORTED:
        assert op in verdict.message
        assert verdict.evidence == {"op": op}


@pytest.mark.parametrize(("at_run", "stage"), [(False, "compile"), (True, "run")])
def test_exceptions_a_backend_did_not_mean(at_run: bool, stage: str) -> None:
    verdict = run_case(SUB, raising(IndexError("list index out of range"), at_run))
    assert outcome(verdict) == (stage, "error", "")
    assert verdict.message == "IndexError: list index out of range"
    assert verdict.evidence == {"class": "IndexError"}
    memory = run_case(SUB, raising(MemoryError(), at_run))
    assert outcome(memory) == (stage, "oom", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_through(error: type[BaseException]) -> None:
    with pytest.raises(error):
        run_case(SUB, raising(error()))


def test_what_eager_cannot_do_is_untested() -> None:
    verdict = run_case(case_of("torch.matmul", inputs={"x0": torch.ones(2, 3), "x1": torch.ones(2, 3)}), Eager())
    assert verdict.outcome is Outcome.UNTESTED
    assert verdict.message.startswith("eager raises RuntimeError: mat1 and mat2 shapes cannot be multiplied")


def test_random_values_have_an_outline() -> None:
    drawn = case_of("torch.bernoulli", inputs={"x0": torch.full((8,), 0.5)})
    assert outcome(run_case(drawn, running(lambda x: torch.zeros(8)))) == ("compare", "mismatch", "distribution")
    assert outcome(run_case(drawn, running(lambda x: torch.zeros(7)))) == ("compare", "mismatch", "shape")
    assert outcome(run_case(drawn, running(lambda x: torch.zeros(8).int()))) == ("compare", "mismatch", "dtype")
    assert outcome(run_case(drawn, running(lambda x: 1))) == ("compare", "mismatch", "structure")


def test_generators_used_without_effect_leave_the_case_tested() -> None:
    still = case_of("torch.nn.functional.dropout", Ref("x0"), 0.0, inputs={"x0": torch.ones(3)})
    assert run_case(still, Eager()).outcome is Outcome.PASS
    assert run_case(still, running(lambda x: x + 1)).outcome is Outcome.MISMATCH


def test_memory_kept_beside_uninitialized_memory_is_compared() -> None:
    case = case_of("torch.Tensor.resize_", Ref("x0"), (5,), inputs={"x0": torch.ones(3)})
    verdict = run_case(case, Eager())
    assert verdict.outcome is Outcome.PASS and verdict.evidence["unwritten"] == 4  # of the result, which is the input
    assert run_case(case, running(lambda x: x.resize_(5).mul_(2))).outcome is Outcome.MISMATCH


def test_warnings_of_a_backend_break_nothing() -> None:
    def warn(x: Tensor, y: Tensor) -> Tensor:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return x - y

    assert run_case(SUB, running(warn)).outcome is Outcome.PASS


def test_a_fault_of_the_harness_is_not_the_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(judge_module, "_judge", broken)
    verdict = run_case(SUB, Eager())
    assert verdict.outcome is Outcome.HARNESS_ERROR
    assert verdict.message == "ZeroDivisionError: ours"
    assert "Traceback" in verdict.evidence["traceback"]


def test_evidence_is_json_whatever_the_numbers() -> None:
    odd = case_of("torch.abs", inputs={"x0": torch.tensor([1 + 1j, complex("nan"), complex("inf")])})
    verdict = run_case(odd, running(lambda x: torch.tensor([float("nan")] * 3)))
    assert json.loads(verdict.to_json())["outcome"] == "mismatch"
    json.dumps(verdict.evidence, allow_nan=False)


def test_what_a_source_could_not_express() -> None:
    verdict = untested_verdict(Untested("opinfo", "sparse.mm", "float32", "a sparse tensor", 4), "linalg")
    assert verdict.case_id == "opinfo:sparse.mm:float32:4"
    assert (verdict.outcome, verdict.message) == (Outcome.UNTESTED, "a sparse tensor")
    assert not verdict.failed


def test_kinds_and_outcomes_are_the_documented_words() -> None:
    kinds = {"structure", "shape", "dtype", "device", "value", "distribution", "mutation", "aliasing", "accepted"}
    kinds |= {"nondeterministic", "later-call", "leak"}
    assert {str(kind) for kind in Kind} == kinds
    assert "ill-conditioned" in {str(outcome) for outcome in Outcome}


@pytest.mark.parametrize(
    ("dtype", "outcome"), [(torch.float32, Outcome.ILL_CONDITIONED), (torch.int64, Outcome.UNTESTED)]
)
def test_eager_that_goes_by_layout_is_no_referee(dtype: torch.dtype, outcome: Outcome) -> None:
    row = torch.tensor([1.0, 10.0, 20.0, 30.0, 40.0]).to(dtype)[:1].expand(5)
    odd = case_of("torch.median", Ref("x0"), 0, inputs={"x0": row})
    assert not torch.equal(torch.median(row, 0).values, row[0]), "PyTorch has mended it: another example is needed"
    verdict = run_case(odd, running(lambda x: torch.median(x.contiguous(), 0)))
    assert verdict.outcome is outcome and (outcome is not Outcome.UNTESTED or "row-major" in verdict.message)
    verdict = run_case(odd, running(lambda x: (torch.tensor(2, dtype=dtype), torch.tensor(0))))
    assert verdict.outcome is Outcome.MISMATCH
    plain = case_of("torch.sum", inputs={"x0": torch.randn(4, 3).t()})
    assert run_case(plain, running(lambda x: x.sum() + 1)).outcome is Outcome.MISMATCH
