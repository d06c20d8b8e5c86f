"""Where eager cuts off sums of int8 products, exact ones are right, what follows from them too, and nothing else.
Products beyond the range of the float8 that they are rounded to may be its largest number."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.sampling import covering
from tests.warm_python import WarmPython
from torchstone.conformance.oracle.ambiguity.saturation import ExactProducts
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

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


@pytest.mark.torture
def test_exact_sums_are_right_beside_cut_off_ones(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "script.py").write_text(JUDGE)
    done = warm_python.run(tmp_path / "script.py", cwd=tmp_path, environment={"ONEDNN_MAX_CPU_ISA": "SSE41"})
    eager, *outcomes = done.stdout.splitlines()
    assert outcomes == 2 * ["pass pass mismatch mismatch"], done.stderr
    if eager == "exact":
        pytest.skip("on this processor oneDNN cuts no sums off: nothing but exact ones was judged")
    assert eager == "cut off"


def test_the_exact_product() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator) for shape in ((20, 8), (8, 16)))
    with ExactProducts():
        product, written = torch._int_mm(x, y), torch.empty(0, dtype=torch.int32)
        torch._int_mm(x, y, out=written)
    assert product.dtype == torch.int32
    assert torch.equal(product, (x.double() @ y.double()).int())
    assert torch.equal(written, product)


@pytest.mark.torture
@pytest.mark.parametrize(
    ("dtype", "named"), covering([torch.float8_e4m3fn, torch.float8_e5m2], [True, False], strength=1)
)
def test_float8_products_beyond_the_range(dtype: torch.dtype, named: bool) -> None:
    largest = torch.finfo(dtype).max
    rows = torch.tensor([[448.0, 8.0], [-448.0, 8.0], [1.0, 1.0]]).to(dtype)
    column = torch.tensor([[448.0], [1.0]]).to(torch.float8_e4m3fn)
    scale = torch.tensor(1.0)
    call = Call("torch._scaled_mm", tuple(map(Ref, "abst")), {"out_dtype": dtype} if named else {}, "r")
    program, args = Program(tuple("abst"), (call,), Ref("r")), (rows, column, scale, scale)
    eager = program(*args)

    def ok(*values: float) -> bool:
        given = torch.tensor(values).reshape(3, 1).to(dtype)
        return judge(program, args, Observed(eager, args), Observed(given, args)).ok

    last, beyond = eager[2, 0].item(), torch.tensor(1e6).to(dtype).item()
    assert ok(largest, -largest, last)
    assert ok(beyond, -beyond, last)
    assert not ok(-largest, -largest, last)
    assert not ok(largest, -largest / 2, last)
    assert not ok(beyond, 7.0, last)
    assert not ok(largest, -largest, largest / 2)
