"""IR is read, verified, expanded and lowered on a machine without PyTorch, and importing torchstone needs neither."""

import subprocess
import sys

import pytest

LOWER = """
import sys
sys.modules["torch"] = None  # importing it raises
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.verify import verify
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.lowering.registry import find_target
target = find_target("TARGET")
graph = parse_graph('''graph @f(%x: f32[2, 3]) {
  %0: f32[2, 3] = aten.exp.default(%x)
  %1: f32[2] = aten.sum.dim_IntList(%0, [1], false, none)
  return %1
}''')
flat = expand(graph, target.takes)
verify(flat, target.takes)
print(target.lower(flat).texts["TARGET"]())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("target", "sign"), [("linalg", "linalg.generic"), ("tosa", "tosa.exp")])
def test_aten_text_is_lowered(target: str, sign: str) -> None:
    assert sign in run(LOWER.replace("TARGET", target))


def test_importing_torchstone_imports_neither_torch_nor_mlir() -> None:
    loaded = "import sys, torchstone; print([m for m in ('torch', 'torch_mlir', 'mlir', 'pandas') if m in sys.modules])"
    assert run(loaded).strip() == "[]"
