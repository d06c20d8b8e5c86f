"""Whole programs in StableHLO: text, its portable form, sizes known at run time, and modules that come as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim
from torch.nn import functional

from tests.sampling import covering
from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.driver import compile
from torchstone.compiler.from_text import from_text
from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.stablehlo import TARGET
from torchstone.compiler.lowering.stablehlo.dialect import VERSION, portable, register

Tensor = torch.Tensor
FLAT = """\
graph @f(%x: f32[2, 3], %y: u8[3]) {
  %0: f32[2] = flat.reduce(%x) {kind="max", dims=[1]}
  %1: f32[2, 3] = flat.broadcast(%0) {shape=[2, 3], dims=[0]}
  %2: f32[2, 3] = flat.sub(%x, %1)
  %3: f32[3] = flat.cast(%y) {dtype=f32}
  %4: f32[2] = flat.contract(%2, %3) {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}
  return %4
}
"""


def test_text() -> None:
    text = TARGET.lower(parse_graph(FLAT)).texts["stablehlo"]()
    assert (
        text
        == """\
module {
  func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3xui8>) -> tensor<2xf32> {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<2x3xf32>, \
tensor<f32>) -> tensor<2xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.subtract %arg0, %1 : tensor<2x3xf32>
    %3 = stablehlo.convert %arg1 : (tensor<3xui8>) -> tensor<3xf32>
    %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>
    return %4 : tensor<2xf32>
  }
}
"""
    )


def block(x: Tensor) -> Tensor:
    return functional.gelu(functional.layer_norm(x, x.shape[1:])).sort(1)[0].cumsum(1)


def test_portable_form_is_the_same_program() -> None:
    x = torch.randn(4, 6)
    text = compile(block, (x,), "stablehlo").ir["stablehlo"]
    artifact = portable(pipelines.parse(text))
    with mlir.context(), mlir.ir.Location.unknown():
        back = register().deserialize_portable_artifact(mlir.ir.Context.current, artifact)
    assert str(back).count("stablehlo.") == text.count("stablehlo.")
    with pytest.raises(TorchstoneError, match=r"StableHLO 0\.1\.0 cannot say"):
        portable(pipelines.parse(text), "0.1.0")
    assert tuple(map(int, VERSION.split("."))) <= tuple(map(int, register().get_current_version().split(".")))


@pytest.mark.parametrize("target", ["stablehlo", "stablehlo-interpreter"])
def test_from_text(target: str) -> None:
    x = torch.randn(4, 6)
    exe = compile(block, (x,), target)
    torch.testing.assert_close(exe(x), block(x))
    stages = from_text(exe.ir["stablehlo"], "stablehlo", find_target("stablehlo"))
    assert list(stages) == ["stablehlo", "linalg", "llvm"]


SORT = """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %i = stablehlo.iota dim = 0 : tensor<4xi64>
  %s:2 = "stablehlo.sort"(%x, %i) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i64>, %d: tensor<i64>):
      %p = stablehlo.compare GT, %c, %d : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
  }) : (tensor<4xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xi64>)
  return %s#0 : tensor<4xf32>
}
"""


def test_another_order_is_refused() -> None:
    """Only the comparators of PyTorch's sorts are read: to take another one for them would be silently wrong."""
    with pytest.raises(TorchstoneError, match=r"leaves stablehlo\.sort"):
        from_text(SORT, "stablehlo", find_target("stablehlo"))


DYNAMIC: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: functional.gelu(x) + 1,
    "softmax": lambda x: x.softmax(-1),
    "product": lambda x: x @ x.t(),
    "flattened": lambda x: x.reshape(-1),
    "joined": lambda x: torch.cat([x, x * 2], 0),
    "stacked": lambda x: torch.stack([x, x.exp()]),
    "layer norm": lambda x: functional.layer_norm(x, (6,)),
    "repeated": lambda x: x[None].expand(3, -1, -1) + 1,
    "counted": lambda x: torch.arange(x.shape[0]) + x.sum(1),
    "largest": lambda x: x.argmax(1),
    "sorted": lambda x: x.sort(1, descending=True)[0],
    "summed": lambda x: x.cumsum(1),
    "padded": lambda x: functional.pad(x, (1, 2)),
    "windows": lambda x: functional.conv1d(x[:, None], torch.ones(2, 1, 3)),
    "pooled": lambda x: functional.max_pool1d(x[:, None], 2),
    "reversed": lambda x: x.flip(0),
    "looked up": lambda x: functional.embedding((x > 0).long().sum(1), torch.arange(27.0).reshape(9, 3)),
    "triangle": lambda x: x.tril(),
    "variance": lambda x: x.var(0),
    "expm1": lambda x: functional.elu(x) + torch.sinh(x),
    "complex": lambda x: torch.fft.fft(x).abs(),
    "to integers": lambda x: (x * 3).to(torch.int32),
    "none of them": lambda x: x[:, :0].exp(),
}  # fmt: skip


@pytest.mark.few(9)
@pytest.mark.parametrize(("name", "target"), covering(DYNAMIC, ["stablehlo", "stablehlo-interpreter"], strength=1))
def test_sizes_known_at_run_time(name: str, target: str) -> None:
    program = DYNAMIC[name]
    exe = compile(program, (torch.randn(5, 6),), target, ({0: Dim("n", min=2, max=100)},))
    for size in (5, 2, 9):
        x = torch.randn(size, 6)
        torch.testing.assert_close(exe(x), program(x))
