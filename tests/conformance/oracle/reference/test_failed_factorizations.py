"""A factorization that fails in float64 alone has no reference, and takes none from the rest of the program."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.oracle.test_compare import compare
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref


@pytest.mark.parametrize("target", ["cholesky", "inv", "solve", "lu_solve"])
def test_what_fails_in_float64_is_lost_of_that_matrix_alone(target: str) -> None:
    """LAPACK leaves numbers where it gave up."""
    x = torch.stack([torch.eye(2), torch.zeros(2, 2)])
    if target == "lu_solve":
        calls = (
            Call("torch.linalg.lu_factor", (Ref("x"),), {}, "f"),
            Call("torch.linalg.lu_solve", (Ref("f", (0,)), Ref("f", (1,)), Ref("x")), {}, "y"),
        )
    else:
        calls = (Call(f"torch.linalg.{target}", (Ref("x"), *[Ref("x")] * (target == "solve")), {}, "y"),)
    run = Referee(Program(("x",), calls, (Ref("y"),)), (x,)).float64
    assert not run.problem
    assert torch.equal(run.leaves[0][0], torch.eye(2).double())
    assert run.leaves[0][1].isnan().any()


def test_a_matrix_that_is_singular_in_float64_alone_takes_no_reference_from_the_rest() -> None:
    """Its solution has none. A sum that cancels does, and eager's number alone would leave it no room."""
    calls = (
        Call("torch.linalg.solve", (Ref("a"), Ref("b")), {}, "r0"),
        Call("torch.sum", (Ref("x"),), {}, "r1"),
    )
    program = Program(("a", "b", "x"), calls, (Ref("r0"), Ref("r1")))
    singular = torch.tensor([[7.0, 3.0, 7.0], [2.0, -7.0, 2.0], [3.0, 2.0, 3.0]])
    terms = torch.rand(4096, generator=torch.Generator().manual_seed(0)) * 1e3
    x = torch.cat([terms, -terms.flip(0), torch.tensor([1e-3])])
    args = (singular, torch.ones(3), x)
    solution, total = program(*args)  # in float32 it has a last pivot
    run = Referee(program, args).float64
    assert not run.problem
    assert not torch.isfinite(run.leaves[0]).all()
    assert run.leaves[1].item() == pytest.approx(1e-3, rel=1e-6)
    in_another_order = x.double().cumsum(0)[-1].float()
    assert compare(program, lambda a, b, x: (solution, in_another_order), *args).outcome == "pass", total
    assert compare(program, lambda a, b, x: (solution, x.sum() + 1e5), *args).outcome == "mismatch"
