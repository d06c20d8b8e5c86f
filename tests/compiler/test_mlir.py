"""The choice of the bindings, the pipelines' errors, LLVM's options."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.driver import compile
from torchstone.compiler.ir.dtypes import float32
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.runtime.cpu import jit, level
from torchstone.compiler.runtime.cpu.cache import VARIABLE
from torchstone.compiler.runtime.cpu.kernel import CpuKernel


def python(source: str, **environment: str) -> str:
    command = [sys.executable, "-W", "error", "-c", source]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_runtime_loads_neither_mlir_nor_torch() -> None:
    source = (
        "import sys; from torchstone.compiler import mlir; from torchstone.compiler.lowering.mlir_passes import cpu;"
        "from torchstone.compiler.runtime.cpu import jit;"
        "print([m for m in ('mlir', 'torch_mlir', 'torch') if m in sys.modules])"
    )
    assert python(source) == "[]"


def test_lowering_to_text_needs_no_torch() -> None:
    source = (
        "import sys; from torchstone.compiler.ir.parser import parse_graph;"
        "from torchstone.compiler.lowering.linalg import TARGET;"
        "g = parse_graph('graph @f(%x: f32[2]) {\\n  %0: f32[2] = flat.neg(%x)\\n  return %0\\n}\\n');"
        "print('arith.negf' in TARGET.lower(g).texts['linalg'](), 'torch' in sys.modules)"
    )
    assert python(source) == "True False"


def test_absent_bindings_say_how_to_install_them() -> None:
    with pytest.raises(TorchstoneError, match=r"no MLIR Python bindings .*pip install torch-mlir") as caught:
        mlir.bindings("torchstone_no_such_provider")
    assert caught.value.stage == "compile"


def test_one_context_a_process() -> None:
    assert mlir.bindings().shared_context is mlir.bindings().shared_context
    assert mlir.available() in mlir.PROVIDERS


def test_unknown_pipeline_has_a_suggestion() -> None:
    with pytest.raises(TorchstoneError, match=r"unknown pipeline 'bufers' \(did you mean \"buffers\"\?\)"):
        pipelines.run("bufers", None)


def test_a_failing_pass_reports_what_mlir_said_and_where() -> None:
    t = "tensor<2xf32>"
    module = pipelines.parse(f"func.func @main(%a: {t}) -> {t} {{\n%r = tosa.abs %a : ({t}) -> {t}\nreturn %r : {t} }}")
    with pytest.raises(TorchstoneError) as caught:
        pipelines.run("buffers", module)
    first, second = caught.value.message.splitlines()[:2]
    assert first == "pass pipeline buffers failed"
    assert ":2:" in second and "op was not bufferized" in second
    assert caught.value.stage == "compile"


def test_quick_code_generation_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    t = "tensor<9x9xf32>"
    text = (
        f"func.func @main(%a: {t}, %o: {t}) -> {t} {{ %r = linalg.matmul ins(%a, %a : {t}, {t}) outs(%o : {t}) -> {t} "
        f"%e = linalg.exp ins(%r : {t}) outs(%o : {t}) -> {t} return %e : {t} }}"
    )
    spec = TensorType((9, 9), float32)
    x, zeros = torch.randn(9, 9), torch.zeros(9, 9)
    (quick,) = CpuKernel(text, inputs=[spec, spec], results=[spec])([x, zeros])
    assert jit._set == [jit._QUICK]
    monkeypatch.setattr(jit, "_QUICK", jit._THOROUGH)
    (thorough,) = CpuKernel(text, inputs=[spec, spec], results=[spec])([x, zeros])
    assert jit._set == [jit._THOROUGH]
    assert torch.equal(quick, thorough)
    torch.testing.assert_close(quick, (x @ x).exp())


def test_a_processor_that_rounds_to_bfloat16_itself_is_not_asked_to() -> None:
    assert jit.features({"avx2", "fma"}) == ""
    for flag in ("avx512_bf16", "avx_ne_convert"):
        named = jit.features({flag, "avx2", "abm", "avx512_vnni"}).split(",")
        assert {"-avx512bf16", "-avxneconvert", "+avx2", "+lzcnt", "+avx512vnni", "-avx512f"} <= set(named)
        assert {name for name in named if name[0] == "+"} == {"+avx2", "+lzcnt", "+avx512vnni"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="features of an x86-64")
@pytest.mark.parametrize(("name", "known"), [("", True), (",-no-such", False)])
def test_llvm_knows_each_feature_by_its_name(
    name: str, known: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """LLVM ignores a name that it does not know, and says so on stderr alone."""
    names = jit.features({"avx512_bf16", "avx", "avx2", "f16c", "fma"}) + name
    monkeypatch.setattr(jit, "_features", lambda: names)
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setenv(level.VARIABLE, "")
    x = torch.tensor([1e-39, 3.0], dtype=torch.bfloat16)
    assert torch.equal(compile(lambda x: x + x, (x,))(x), x + x)
    assert ("not a recognized feature" not in capfd.readouterr().err) is known
