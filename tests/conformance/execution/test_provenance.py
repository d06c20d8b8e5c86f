"""A pass is the backend's own; what others computed is a fallback, and what nobody tells is marked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.backends.eager_ops import eager_ops
from torchstone.conformance.backends.protocol import counted
from torchstone.conformance.execution.provenance import classify
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import UNPROVEN, Kind, Outcome
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import progress_mark
from torchstone.conformance.runner.sandbox import Sandbox
from torchstone.conformance.variants.dynamic import DYNAMIC


class Compiled:
    """What a backend's ``compile`` returned."""

    def __init__(self, **evidence: Any) -> None:
        self.evidence = evidence

    def __call__(self) -> None: ...


class Told:
    executors = ("ours", "ours too")


RIGHT = Finding(Outcome.PASS, evidence={"rule": "kept"})


def test_what_the_backend_ran_itself_passes() -> None:
    compiled = Compiled(ran={"ours": ["mm x2"], "ours too": ["add"], "eager": []}, more=1)
    assert classify(RIGHT, Told(), compiled) == Finding(Outcome.PASS, evidence={"rule": "kept"} | compiled.evidence)
    assert classify(RIGHT, Told(), Compiled(ran={})).outcome is Outcome.PASS


@pytest.mark.parametrize("ours", [{}, {"ours": ["add"]}])
def test_what_another_ran_is_a_fallback_that_names_the_ops(ours: dict[str, list[str]]) -> None:
    compiled = Compiled(ran=ours | {"eager": ["aten::mm x2", "aten::sort", "aten::mm"], "host": ["copy"]})
    finding = classify(RIGHT, Told(), compiled)
    assert finding.outcome is Outcome.FALLBACK
    assert finding.message == "eager ran aten::mm, aten::sort; host ran copy"
    assert finding.evidence["ran"] == compiled.evidence["ran"]


@pytest.mark.parametrize(
    ("backend", "evidence", "missing"),
    [
        (Told(), {}, "does not tell what ran"),
        (object(), {"ran": {"ours": ["mm"]}}, "which executors are its own"),
        (Told(), {"ran": ["mm"]}, "not ops by executor"),
        (Told(), {"ran": {"ours": "mm"}}, "not ops by executor"),
    ],
)
def test_a_pass_that_nothing_proves_is_marked(backend: Any, evidence: dict[str, Any], missing: str) -> None:
    finding = classify(RIGHT, backend, Compiled(**evidence))
    assert finding.outcome is Outcome.PASS and missing in finding.evidence[UNPROVEN]
    assert UNPROVEN in classify(RIGHT, backend, lambda: None).evidence


@pytest.mark.parametrize("outcome", [Outcome.MISMATCH, Outcome.ILL_CONDITIONED, Outcome.UNTESTED])
def test_what_is_not_right_stays_what_it_is(outcome: Outcome) -> None:
    found = Finding(outcome, Kind.VALUE, "why")
    finding = classify(found, Told(), Compiled(ran={"eager": ["aten::mm"]}))
    assert (finding.outcome, finding.message) == (outcome, "why") and "ran" in finding.evidence
    assert classify(found, Told(), Compiled()) == found


def case_of(target: str, variant: str = "") -> Case:
    program = Program(("x",), (Call(target, (Ref("x"),), {}, "y"),), Ref("y"))
    return Case(program, {"x": torch.eye(3) + 1}, "test", target.removeprefix("torch."), "float32", variant=variant)


def test_eager_and_compiled_code_pass_and_library_calls_are_fallbacks() -> None:
    eager, linalg = backends.load("eager"), backends.load("linalg")
    verdict = run_case(case_of("torch.det"), eager)
    assert (verdict.outcome, verdict.evidence["ran"]) == ("pass", {"eager": ["torch.det"]})
    verdict = run_case(case_of("torch.exp"), linalg)
    assert (
        verdict.outcome == "pass" and list(verdict.evidence["ran"]) == ["linalg"] and verdict.evidence["ran"]["linalg"]
    )
    verdict = run_case(case_of("torch.det"), linalg)
    assert (verdict.outcome, verdict.message) == ("fallback", "eager ran aten._linalg_det.default")
    assert not verdict.failed


def test_a_fallback_is_tried_at_every_size() -> None:
    class Fixed(type(backends.load("eager"))):  # wrong at any size but the first, and eager's everywhere
        executors = ("ours",)

        def compile_dynamic(self, fn, args, dims):
            size = args[0].shape
            run = super().compile(fn, args)

            def wrong(x):
                return run(x) + (x.shape != size)

            wrong.__dict__["evidence"] = run.__dict__["evidence"]
            return wrong

    case = case_of("torch.exp", DYNAMIC)
    assert run_case(case, Fixed()).outcome == "mismatch"


def test_the_profiler_sees_the_kernels_of_pytorch_and_no_views() -> None:
    x = torch.rand(3, 3)
    with eager_ops() as ops:
        x.t().reshape(9)
        x.view(9).unsqueeze(0).split(2)
        torch.empty(3)
        torch.linalg.inv(x @ x)
        x.add_(x @ x)
    assert counted(ops.elements()) == ["aten::clone", "aten::matmul x2", "aten::linalg_inv", "aten::add_"]
    with eager_ops() as ops:
        pass
    assert not ops


def test_what_is_known_after_the_call_only_comes_out_of_a_worker() -> None:
    class Late:
        evidence: Any = {}  # noqa: RUF012

        def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
            self.evidence = {"ran": {"eager": ["exp"]}}
            return tensors[0].exp()

    class Backend(type(backends.load("eager"))):
        def compile(self, fn: Any, args: Any) -> Any:
            return Late()

    byte = progress_mark.create_mark()
    verdict = run_case(case_of("torch.exp"), Sandbox(Backend(), byte))
    assert verdict.outcome == "pass" and verdict.evidence["ran"] == {"eager": ["exp"]}
    assert progress_mark.read_progress(byte).stage == "compare"
