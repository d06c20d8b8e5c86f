"""Runs of the rounding model that are made at once are those that are made one by one."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.perturbation.draws import Draws, on_line
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.reference.scatter import Scatter, one_run
from torchstone.conformance.program.program import Call, Program, Ref

X = Ref("x")


def referee(*targets: str, dtype: torch.dtype = torch.float32) -> Referee:
    """Of functions one after the other."""
    names = ["x", *(f"r{k}" for k in range(len(targets)))]
    calls = [Call(f"torch.{target}", (Ref(names[k]),), {}, names[k + 1]) for k, target in enumerate(targets)]
    return Referee(Program(("x",), tuple(calls), Ref(names[-1])), (torch.tensor([0.3, 0.7, -1.9], dtype=dtype),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64])
def test_they_are_those_made_one_by_one(dtype: torch.dtype) -> None:
    runs = referee("exp", "sin", "expm1", dtype=dtype)
    draws = [one_run(Draws(seed)) for seed in range(4)]
    draws.append(on_line(draws[0], draws[1], 0.25))
    at_once, alone = Scatter(runs, inputs=True), Scatter(runs, inputs=True)
    assert runs.runs_stack
    for run, mix in zip(at_once.runs(draws), draws, strict=True):
        assert all(torch.allclose(a, b, 1e-12, 0) for a, b in zip(run.leaves, alone.run(mix).leaves, strict=True))
    assert not same_bits(at_once.run(draws[0]).leaves[0], at_once.run(draws[1]).leaves[0])


@pytest.mark.parametrize("target", ["sum", "cumsum", "sort", "dropout", "outer"])
def test_only_what_works_element_by_element_is_stacked(target: str) -> None:
    call = {
        "cumsum": Call("torch.cumsum", (X, 0), {}, "y"),
        "dropout": Call("torch.dropout", (X, 0.5, True), {}, "y"),
        "outer": Call("torch.outer", (X, X), {}, "y"),
    }.get(target, Call(f"torch.{target}", (X,), {}, "y"))
    assert not Referee(Program(("x",), (call,), Ref("y")), (torch.tensor([0.3, 0.7]),)).runs_stack
