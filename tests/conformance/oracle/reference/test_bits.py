"""Bits viewed as numbers of another dtype are eager's in the float64 run: other ones would let a wrong result pass."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, several
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.reference.widen import wider
from torchstone.conformance.program.program import Call, Program, Ref

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.int64, torch.int32, torch.int16, torch.uint8),
    *(torch.complex64, torch.complex128),
)
NUMBERS = torch.tensor([1.0, 2.0, 3.5, 4.25, 0.125, 0.75, 9.0, 11.0] * 2)
R0, R1, R2 = (Ref(f"r{k}") for k in range(3))


@pytest.mark.few(71)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("named", DTYPES, ids=str)
@pytest.mark.parametrize("target", ["Tensor.view", "view_copy", "ops.aten.view.dtype"])
def test_a_view_gives_eagers_numbers(target: str, named: torch.dtype, dtype: torch.dtype) -> None:
    program, x = several((target, X, named)), NUMBERS.to(dtype)
    run = Referee(program, (x,)).float64
    torch.testing.assert_close(run.leaves[0], program(x).to(wider(named)), rtol=0, atol=0, equal_nan=True)


WHOLE = several(("Tensor.view", X, torch.int32), ("Tensor.float", R0), ("mean", R1))
HALVES = several(("Tensor.view", X, torch.bfloat16), ("sum", R0))
WITHOUT_SIGN = several(
    ("exp", X), ("Tensor.view", R0, torch.int32), ("bitwise_and", R1, 0x7FFFFFFF), ("Tensor.view", R2, torch.float32)
)
NORM = several(("Tensor.view", X, torch.float64), ("nn.functional.group_norm", R0, 2, Y), inputs=("x0", "x1"))
PAIRS = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
WEIGHT = torch.tensor([0.0, 1.0], dtype=torch.float64)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("program", "inputs", "backend", "outcome"),
    [
        (WHOLE, (NUMBERS,), lambda x: x.view(torch.int32).double().mean().float(), Outcome.PASS),
        (WHOLE, (NUMBERS,), lambda x: WHOLE(x) / 2, Outcome.MISMATCH),  # what float64's bits give
        (HALVES, (NUMBERS,), lambda x: HALVES(x) / 2, Outcome.MISMATCH),
        (WITHOUT_SIGN, (NUMBERS,), lambda x: x.double().exp().float(), Outcome.PASS),
        (WITHOUT_SIGN, (NUMBERS,), lambda x: x.exp() * 1.001, Outcome.MISMATCH),
        (NORM, (PAIRS, WEIGHT), lambda x, weight: weight.new_zeros(2, 2), Outcome.ILL_CONDITIONED),
        (NORM, (PAIRS, WEIGHT), lambda x, weight: weight.new_full((2, 2), 1e-14), Outcome.MISMATCH),
    ],
)
def test_what_is_computed_of_bits(
    program: Program, inputs: tuple[Tensor, ...], backend: Callable[..., Tensor], outcome: Outcome
) -> None:
    assert compare(program, backend, *inputs).outcome is outcome


STEPS = (
    *(("view", dtype) for dtype in (torch.int32, torch.int16, torch.uint8, torch.float32, torch.float64)),
    *(("__getitem__", 0), ("mul_", -1.0), ("fill_", 3), ("bitwise_xor_", 1)),
)


def drawn(seed: int) -> tuple[Program, Tensor]:
    """A program that views, slices, and writes to what it has. What it computes is exact in any dtype, and no NaN."""
    choose = random.Random(seed)
    x = NUMBERS.reshape(2, 8).to(choose.choice((torch.float64, torch.float32, torch.bfloat16)))
    calls, known = [], {"x": x.clone()}
    for at in range(12):
        name = choose.choice(sorted(known))
        target, *rest = choose.choice(STEPS)
        with contextlib.suppress(RuntimeError, IndexError):  # what eager refuses is no step
            known[f"v{at}"] = getattr(known[name], target)(*rest)
            calls.append(Call(f"torch.Tensor.{target}", (Ref(name), *rest), {}, f"v{at}"))
    return Program(("x",), tuple(calls), tuple(map(Ref, known))), x


@pytest.mark.few(1)
@pytest.mark.parametrize("seeds", [range(50 * k, 50 * k + 50) for k in range(4)], ids=str)
def test_what_is_written_to_a_view_and_to_what_it_views_is_eagers(seeds: range) -> None:
    for seed in seeds:
        program, x = drawn(seed)
        given = x.clone()
        wanted = [leaf.to(wider(leaf.dtype)) for leaf in (*program(given), given)]
        run = Referee(program, (x,)).float64
        assert not run.problem
        torch.testing.assert_close(run.leaves, wanted, rtol=0, atol=0, equal_nan=True, msg=str(program))


INDEPENDENT = several(
    ("Tensor.view", X, torch.int32), ("Tensor.bitwise_and_", R0, 0x7FFFFFFF), ("fft.fft", Y), inputs=("x0", "x1")
)


@pytest.mark.parametrize(("factor", "outcome"), [(1.0, Outcome.PASS), (1.01, Outcome.MISMATCH)])
def test_numbers_beside_bits_that_are_written_to_are_judged_by_float64(factor: float, outcome: Outcome) -> None:
    """The transform cancels: few of its numbers are within ULPs of eager's."""
    program = replace(INDEPENDENT, outputs=(Ref("r1"), Ref("r2")))
    wave = torch.sin(torch.arange(64.0))

    def backend(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return program(x, y)[0], torch.fft.fft(y.double()).to(torch.complex64) * factor

    assert compare(program, backend, -NUMBERS, wave).outcome is outcome


def test_where_a_body_reads_bits_there_is_no_run_and_the_evidence_says_so() -> None:
    """What eager's bits are is not known in there: such numbers are held against a wider tolerance."""
    bodies = several(("view_copy", X, torch.bfloat16)), several(("cat", [X, X], 1), ("Tensor.bfloat16", R0))
    program = several(("cond", Y, *bodies, [X]), inputs=("x0", "x1"))
    inputs = NUMBERS.reshape(4, 4), torch.tensor(True)
    finding = compare(program, lambda x, y: x.view(torch.bfloat16) + 1, *inputs)
    assert finding.outcome is Outcome.MISMATCH
    assert finding.evidence["note"] == "no float64 run: a body of control flow views numbers as those of another dtype"
    close = compare(program, lambda x, y: x.view(torch.bfloat16) * (1 + 3 * 2**-8), *inputs)
    assert close.evidence["rule"].startswith("wider tolerance")


def test_a_leaf_of_autograd_is_not_written_to() -> None:
    calls = (
        Call("torch.Tensor.requires_grad_", (X,), {}, "leaf"),
        Call("torch.Tensor.view", (Ref("bits"), torch.float32), {}, "factor"),
        Call("torch.mul", (Ref("leaf"), Ref("factor")), {}, "product"),
        Call("torch.autograd.grad", ([Ref("product")], [Ref("leaf")], [Ref("leaf")]), {}, "gradient"),
    )
    program = Program(("x0", "bits"), calls, Ref("gradient", (0,)))
    run = Referee(program, (NUMBERS, NUMBERS.clone().view(torch.int32))).float64
    assert torch.equal(run.leaves[0], NUMBERS.double() ** 2)
