"""``torchstone replay --script``."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import torch

from torchstone.cli import invoke
from torchstone.conformance.backends import backend_names
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref


def test_a_script_is_written_where_the_backend_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "y"),), Ref("y"))
    file = tmp_path / "case.safetensors"
    Case(program, {"x": torch.ones(2)}, "test", "exp", "float32").save(file)
    before = set(sys.modules)
    for name in backend_names():
        assert invoke(["replay", str(file), "--backend", name, "--script"]) == 0
        ast.parse(capsys.readouterr().out)
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {"onnxruntime", "openvino", "tvm", "iree", "executorch", "jax", "torch_mlir"}


def test_a_misspelt_backend_has_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["replay", "opinfo:exp:float32:0", "--backend", "onnxruntim", "--script"]) == 2
    assert 'did you mean "onnxruntime"' in capsys.readouterr().err
