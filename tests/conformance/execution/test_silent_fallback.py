"""A program that eager ran is no pass, whatever the backend tells of itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

ADD = Program(("x", "y"), (Call("torch.add", (Ref("x"), Ref("y")), {"alpha": 2}, "z"),), Ref("z"))
COPY = Program(("x", "y"), (Call("torch.clone", (Ref("x"),), {}, "z"),), Ref("z"))
NORM = Program(("x", "y"), (Call("torch.nn.functional.layer_norm", (Ref("x"), [3]), {}, "z"),), Ref("z"))


class Swallows:
    """Says that it compiled everything, and runs the program."""

    name = "swallows"
    executors: tuple[str, ...] = ("swallows",)

    def compile(self, fn: Any, args: Any) -> Any:
        def run(*tensors: torch.Tensor) -> Any:
            return fn(*tensors)

        run.__dict__["evidence"] = {"ran": {"swallows": ["everything"]}}
        return run


def _case(program: Program) -> Case:
    return Case(program, {"x": torch.rand(2, 3), "y": torch.rand(3)}, "test", "op", "float32")


@pytest.mark.parametrize("program, op", [(ADD, "aten::add"), (NORM, "aten::layer_norm")])
def test_a_program_that_eager_ran_is_a_fallback(program: Program, op: str) -> None:
    verdict = run_case(_case(program), Swallows())  # type: ignore[arg-type]
    assert verdict.outcome is Outcome.FALLBACK
    assert verdict.message == f"eager ran {op}, unseen by the backend, which tells of swallows alone"


@pytest.mark.parametrize("program", [ADD, COPY, NORM])
def test_compiled_code_that_copies_by_eager_passes(program: Program) -> None:
    assert run_case(_case(program), backends.load("linalg")).outcome is Outcome.PASS


def test_copies_are_nobodys_own() -> None:
    assert run_case(_case(COPY), Swallows()).outcome is Outcome.PASS  # type: ignore[arg-type]


def test_eager_is_its_own_executor() -> None:
    assert run_case(_case(ADD), backends.load("eager")).outcome is Outcome.PASS


def test_a_backend_that_is_made_of_pytorchs_kernels_is_not_convicted_by_them() -> None:
    class Interpreter(Swallows):
        uses_eager_kernels = True

    assert run_case(_case(ADD), Interpreter()).outcome is Outcome.PASS  # type: ignore[arg-type]
