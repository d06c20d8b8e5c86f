"""What eager gives for the same numbers elsewhere in memory: it has other kernels there."""

from __future__ import annotations

import torch

from tests.conformance.oracle.test_compare import X, compare, one
from torchstone.conformance.program.program import Call, Program, Ref

INF = float("inf")
GAPS = torch.full((20,), INF)[::2]


def test_what_eager_gives_for_numbers_in_a_row_is_right_for_those_with_gaps() -> None:
    """oneDNN's GELU of infinity is NaN, and it is asked of contiguous numbers alone."""
    program = one("nn.functional.gelu", X)
    in_a_row = torch.nn.functional.gelu(GAPS.contiguous())
    assert compare(program, lambda x: in_a_row, GAPS).outcome in ("pass", "ill-conditioned")
    assert compare(program, lambda x: torch.full_like(x, -INF), GAPS).outcome == "mismatch"
    assert compare(program, lambda x: torch.full_like(x, 1.0), GAPS).outcome == "mismatch"


def test_a_program_that_reads_strides_is_another_function_elsewhere_in_memory() -> None:
    call = Call("torch.as_strided", (X, (3,), (2,)), {}, "r0")
    program = Program(("x0",), (call, Call("torch.exp", (Ref("r0"),), {}, "r1")), Ref("r1"))
    x = torch.arange(6.0)
    assert compare(program, lambda x: torch.as_strided(x, (3,), (1,)).exp(), x).outcome == "mismatch"
