"""Where eager's sums of int8 products are cut off, exact ones are right, what follows from them too, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.ambiguity.saturation import ExactProducts
from torchstone.conformance.oracle.compare import Observed, judge
from torchstone.conformance.program.program import Call, Program, Ref

PRODUCT = Call("torch._int_mm", (X, Y), {}, "r0")
SCALED = Call("torch.mul", (Ref("r0"), 0.037), {}, "r1")
PROGRAMS = {
    "product": Program(("x0", "x1"), (PRODUCT,), Ref("r0")),
    "scaled": Program(("x0", "x1"), (PRODUCT, SCALED), (Ref("r1"), Ref("r0"))),
}


def operands() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randint(100, 128, shape, dtype=torch.int8, generator=generator) for shape in ((20, 8), (8, 16)))


def cut_off(exact: Tensor) -> Tensor:
    """What eager gives without VNNI, as far as it matters here: other numbers, in some places."""
    return torch.where(torch.arange(exact.numel()).reshape(exact.shape) % 3 == 0, exact - 10_000, exact)


def results(name: str, product: Tensor) -> Tensor | tuple[Tensor, ...]:
    return product if name == "product" else (product * 0.037, product)


@pytest.mark.parametrize("name", PROGRAMS)
def test_exact_sums_are_right_beside_cut_off_ones(name: str) -> None:
    program, args = PROGRAMS[name], operands()
    exact = args[0].long() @ args[1].long()
    eager = Observed(results(name, cut_off(exact.int())), args)
    outcomes = [
        judge(program, args, eager, Observed(results(name, product.int()), args)).outcome
        for product in (exact, cut_off(exact), exact + 1, torch.where(exact == exact.max(), 0, exact))
    ]
    assert outcomes == [Outcome.PASS, Outcome.PASS, Outcome.MISMATCH, Outcome.MISMATCH]


def test_the_exact_product() -> None:
    x, y = operands()
    with ExactProducts():
        product, written = torch._int_mm(x, y), torch.empty(0, dtype=torch.int32)
        torch._int_mm(x, y, out=written)
    assert product.dtype == torch.int32
    assert torch.equal(product, (x.double() @ y.double()).int())
    assert torch.equal(written, product)
