"""Frozen parameters: computed with once, guarded, and left to the program where it writes to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile
from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.transforms.freeze import freeze

TARGETS = ("linalg", "tosa", "stablehlo", "tensorrt", "evaluator")
targets = pytest.mark.parametrize("target", TARGETS)


def block() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    model = nn.Sequential(*layers).eval()
    model[1].running_mean.copy_(torch.randn(4))
    model[1].running_var.copy_(torch.rand(4) + 0.5)
    return model


@targets
def test_results_are_those_of_the_program(target: str) -> None:
    model, x = block(), torch.randn(2, 3, 8, 8)
    exe = compile(model, (x,), target, freeze=True)
    for _ in range(2):
        x = torch.randn(2, 3, 8, 8)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)


@targets
def test_what_changes_is_noticed(target: str) -> None:
    def written(model: nn.Module) -> None:
        with torch.no_grad():
            model[4].weight.add_(1)

    def replaced(model: nn.Module) -> None:
        model[4].weight = nn.Parameter(torch.zeros(5, 144))

    def given_other_memory(model: nn.Module) -> None:
        model[1].running_mean.data = torch.zeros(4)

    x = torch.randn(1, 3, 8, 8)
    for change in (written, replaced, given_other_memory):
        model = block()
        exe = compile(model, (x,), target, freeze=True)
        exe(x)
        change(model)
        with pytest.raises(GuardError, match="frozen when the program was compiled, and has changed"):
            exe(x)


def test_what_the_program_writes_to_is_not_frozen() -> None:
    model, eager = block().train(), block().train()
    x = torch.randn(4, 3, 8, 8)
    exe = compile(model, (x,), freeze=True)
    for _ in range(3):
        torch.testing.assert_close(exe(x), eager(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model[1].running_mean, eager[1].running_mean)


@targets
def test_a_parameter_that_is_a_result(target: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

        def forward(self, x: torch.Tensor) -> Any:
            return x @ self.weight.t(), self.weight * 2, self.weight

    model, x = Tied(), torch.randn(4, 3)
    exe = compile(model, (x,), target, freeze=True)
    with torch.no_grad():
        for got in exe(x)[:2]:
            got.fill_(7)  # what the program gave is the caller's
    for got, want in zip(exe(x), model(x), strict=True):
        torch.testing.assert_close(got, want)


def test_weights_are_constants_of_the_network() -> None:
    model, x = block()[1:], torch.randn(1, 4, 6, 6)
    network = compile(model, (x,), "tensorrt", freeze=True).ir["tensorrt"]
    assert "network(%input0: FLOAT[1, 4, 6, 6])" in network
    assert network.count("= SCALE(") == 1 and "SHUFFLE(%t" in network
    with torch.no_grad():
        model[0].weight.fill_(float("inf"))  # the layer has x * inf - inf for it
    exe = compile(model, (x,), "tensorrt", freeze=True)
    assert "= SCALE(" not in exe.ir["tensorrt"]
    torch.testing.assert_close(exe(x), model(x), equal_nan=True)


def test_fewer_operators_of_tosa() -> None:
    model, x = block(), torch.randn(1, 3, 8, 8)
    frozen, live = (compile(model, (x,), "tosa", freeze=freeze).ir["tosa"] for freeze in (True, False))
    assert "tosa.rsqrt" in live and "tosa.rsqrt" not in frozen
    assert frozen.count("tosa.transpose") < live.count("tosa.transpose")


GRAPH = """\
graph @f(%x: f32[2, 3], %w: f32[3], %v: f32[4, 3]) {
  %0: f32[] = flat.constant() {value=2.0, shape=[], dtype=f32}
  %1: f32[3] = flat.broadcast(%0) {shape=[3], dims=[]}
  %2: f32[3] = flat.mul(%w, %1)
  %3: f32[2, 3] = flat.broadcast(%2) {shape=[2, 3], dims=[1]}
  %4: f32[2, 3] = flat.add(%x, %3)
  %5: f32[3, 4] = flat.transpose(%v) {permutation=[1, 0]}
  %6: f32[2, 4] = flat.contract(%4, %5) {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}
  %7: f32[3] = flat.exp(%1)
  return %6, %7, %2
}
"""


def test_text() -> None:
    split = freeze(parse_graph(GRAPH), {1, 2})
    assert split.kept == [0]
    assert (
        str(split.prologue)
        == """\
graph @f_ahead(%w: f32[3], %v: f32[4, 3]) {
  %0: f32[] = flat.constant() {value=2.0, shape=[], dtype=f32}
  %1: f32[3] = flat.broadcast(%0) {shape=[3], dims=[]}
  %2: f32[3] = flat.mul(%w, %1)
  %3: f32[1, 3] = flat.reshape(%2) {shape=[1, 3]}
  %4: f32[3, 4] = flat.transpose(%v) {permutation=[1, 0]}
  return %3, %4, %2
}
"""
    )
    assert (
        str(split.graph)
        == """\
graph @f(%x: f32[2, 3], %w0: f32[1, 3], %w1: f32[3, 4], %w2: f32[3]) {
  %0: f32[] = flat.constant() {value=2.0, shape=[], dtype=f32}
  %1: f32[3] = flat.broadcast(%0) {shape=[3], dims=[]}
  %2: f32[2, 3] = flat.broadcast(%w0) {shape=[2, 3], dims=[0, 1]}
  %3: f32[2, 3] = flat.add(%x, %2)
  %4: f32[2, 4] = flat.contract(%3, %w1) {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}
  %5: f32[3] = flat.exp(%1)
  return %4, %5, %w2
}
"""
    )


class Solving(nn.Module):
    """Calls of a library, of transposes and of what has no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4) + torch.arange(16.0).reshape(4, 4) / 40)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inverse = torch.linalg.inv((x @ self.weight).mT)
        values, _ = torch.linalg.eigh(self.weight[:0, :0] + x[:0, :0])
        return inverse @ self.weight.mT, values


@targets
def test_calls_of_a_library_stay(target: str) -> None:
    model, x = Solving(), torch.eye(4) * 3
    with torch.no_grad():
        exe = compile(model, (x,), target, freeze=True)
        for scale in (1.0, 2.0):
            torch.testing.assert_close(exe(x * scale), model(x * scale), rtol=1e-4, atol=1e-5)
