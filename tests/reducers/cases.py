"""Cases to reduce, written down briefly, and a judge that tries them in this process and compares bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.reducers import engine
from torchstone.reducers.engine import Budget, Reduced
from torchstone.reducers.failure import case_problem
from torchstone.reducers.passes import passes


def case(calls: list[tuple], outputs: Any, **inputs: Tensor) -> Case:
    """Return a case; a call is (result, target below torch, arguments), where a name is a string ending in a digit.

    A dict for the last argument holds the keywords.
    """
    made = tuple(_call(result, f"torch.{target}", list(args)) for result, target, *args in calls)
    program = Program(tuple(inputs), made, _refs(outputs))
    return Case(program, inputs, source="test", op="test", dtype="float32")


def _call(result: str, target: str, args: list[Any]) -> Call:
    keywords = args.pop() if args and isinstance(args[-1], dict) else {}
    return Call(target, tuple(_refs(args)), {key: _refs(value) for key, value in keywords.items()}, result)


def _refs(tree: Any) -> Any:
    if isinstance(tree, str) and tree[-1].isdigit():
        return Ref(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(_refs(part) for part in tree)
    return tree


def judge(backend: Any) -> Callable[[Case], Verdict]:
    """Return a judge: the backend's results must be eager's, to the bit."""

    def try_case(candidate: Case) -> Verdict:
        wanted = pytree.tree_leaves(candidate.program(*candidate.fresh_args()))
        try:
            found = pytree.tree_leaves(backend.compile(candidate.program, candidate.args)(*candidate.fresh_args()))
        except Exception as error:
            return _verdict(candidate, Stage.COMPILE, Outcome.ERROR, "", str(error))
        for at, (one, other) in enumerate(zip(wanted, found, strict=True)):
            if one.shape != other.shape:
                return _verdict(candidate, Stage.COMPARE, Outcome.MISMATCH, "shape", f"{one.shape}, {other.shape}")
            if not torch.equal(one.nan_to_num(nan=77.0), other.nan_to_num(nan=77.0)):
                wrong = ~((one == other) | (one.isnan() & other.isnan()))
                where = f"output[{at}]" if isinstance(candidate.program.outputs, list | tuple) else "output"
                evidence = {
                    "where": where,
                    "expected": str(one[wrong][0].item()),
                    "actual": str(other[wrong][0].item()),
                }
                return _verdict(candidate, Stage.COMPARE, Outcome.MISMATCH, "value", f"{one}, {other}", **evidence)
        return _verdict(candidate, Stage.COMPARE, Outcome.PASS, "", "")

    return try_case


def _verdict(candidate: Case, stage: Stage, outcome: Outcome, kind: str, message: str, **evidence: Any) -> Verdict:
    return Verdict(candidate.id, "mutant", "", "", "", "", stage, outcome, kind, message, evidence)


def reduced(start: Case, backend: Any, budget: Budget | None = None, verdicts: dict | None = None) -> Reduced[Case]:
    """Reduce a case that fails on a backend, in this process."""
    trial = judge(backend)
    return engine.reduce(case_problem(start, trial(start), trial), passes(), budget, verdicts)


def shrunk(start: Case, interesting: Callable[[Case], bool]) -> Case:
    """Reduce a case by any predicate on cases."""
    failed = Verdict("", "", "", "", "", "", Stage.COMPARE, Outcome.MISMATCH, "value")
    passed = Verdict("", "", "", "", "", "", Stage.COMPARE, Outcome.PASS)
    asked = case_problem(start, failed, lambda candidate: failed if interesting(candidate) else passed)
    return engine.reduce(asked, passes()).value
