"""Where eager cuts off sums of int8 products, exact ones are right, what follows from them too, and nothing else."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.warm_python import WarmPython
from torchstone.conformance.oracle.ambiguity.saturation import ExactProducts

JUDGE = """
import torch
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

product = Call("torch._int_mm", (Ref("x"), Ref("y")), {}, "r0")
scaled = Call("torch.mul", (Ref("r0"), 0.037), {}, "r1")
generator = torch.Generator().manual_seed(1)
args = tuple(torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator) for shape in ((20, 8), (8, 16)))
exact = (args[0].long() @ args[1].long()).int()
eager = torch._int_mm(*args)
print("cut off" if not torch.equal(exact, eager) else "exact")
for program in (Program(("x", "y"), (product,), Ref("r0")), Program(("x", "y"), (product, scaled), Ref("r1"))):
    given = [numbers * 0.037 if len(program.calls) == 2 else numbers for numbers in (eager, exact, exact + 1, -exact)]
    print(*(judge(program, args, Observed(given[0], args), Observed(one, args)).outcome for one in given))
"""


def test_exact_sums_are_right_beside_cut_off_ones(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "script.py").write_text(JUDGE)
    done = warm_python.run(tmp_path / "script.py", cwd=tmp_path, environment={"ONEDNN_MAX_CPU_ISA": "SSE41"})
    assert done.stdout.splitlines() == ["cut off", *2 * ["pass pass mismatch mismatch"]], done.stderr


def test_the_exact_product() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator) for shape in ((20, 8), (8, 16)))
    with ExactProducts():
        product, written = torch._int_mm(x, y), torch.empty(0, dtype=torch.int32)
        torch._int_mm(x, y, out=written)
    assert product.dtype == torch.int32
    assert torch.equal(product, (x.double() @ y.double()).int())
    assert torch.equal(written, product)
