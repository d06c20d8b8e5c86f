"""Every stage that is printed is taken back: parsed, and taken through the stages after it to the same text."""

import re

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.from_text import GRAPHS, MODULES, from_text
from torchstone.compiler.lowering.registry import find_target

N = torch.export.Dim.AUTO
X = torch.arange(24.0).view(6, 4) - 11
# Added to a matrix that is positive semidefinite, one that is regular whatever rounding does to it.
REGULAR = 100 * torch.eye(4)
PROGRAMS = {
    "matmul": (lambda x, w: (x @ w).relu().softmax(-1), (X, torch.ones(4, 3)), ({0: N}, None)),
    "library call": (lambda x: torch.linalg.inv(x.t() @ x + REGULAR).sum() * x, (X,), ({0: N},)),
    "random": (lambda x: (x + torch.rand_like(x)).exp(), (X,), ({0: N},)),
    "sized by values": (lambda x: x[x > 0] * 2, (X,), ({0: N},)),
    "branch": (lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)), (X,), ({0: N},)),
    "numbers": (lambda x, f: x * f + x.sum().item(), (X, 2.5), ({0: N}, None)),
    "an int": (lambda x, k: x * k, (X, 3), ({0: N}, N)),
    "a place": (lambda x, i: x[i], (X, torch.tensor(2)), ({0: N}, None)),
    "special values": (lambda x: (x * float("inf"), x - float("nan"), x * 1e-45), (X,), ({0: N},)),
    "complex": (lambda x: torch.fft.rfft(x) * (1 + 2j), (X,), ({0: N},)),
    "specialized": (lambda x: x * 2 if x.sum() > -1e9 else x, (X,), None),
    "small integers": (lambda x: (x * 10).to(torch.int8) // 3, (X,), ({0: N},)),
}


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "target"), [*((name, "linalg") for name in PROGRAMS), ("special values", "tosa")])
def test_the_text_of_a_stage_goes_on_as_the_program_did(name: str, target: str) -> None:
    fn, args, sizes = PROGRAMS[name]
    for dynamic in (None, sizes):
        if dynamic is not None and target == "tosa":
            continue
        ir = compile(fn, args, target, dynamic).ir
        stages = list(ir)
        for stage in stages:
            if stage not in (*GRAPHS, *MODULES):
                continue
            again = from_text(ir[stage], stage, find_target(target))
            later = stages[stages.index(stage) :]
            compared = [s for s in later if s in again and s != "llvm" and stage in GRAPHS]
            assert stage in again and (stage in MODULES or compared)
            for other in compared:
                assert _unplaced(again[other]) == _unplaced(ir[other]), f"{other} from {stage}"


def _unplaced(text: str) -> str:
    """A text without the lines of the program, which the messages of checks quote and graphs do not print."""
    return re.sub(r'\\0A[^\n]*?"$', '"', text.strip(), flags=re.MULTILINE)
