"""Reductions of modules, end to end: the failure stays, and little else does."""

import json
from pathlib import Path

import pytest

from torchstone.cli import invoke
from torchstone.reducers.mlir import questions, values
from torchstone.reducers.mlir.pipeline import parse, text
from torchstone.reducers.mlir.shrink import Subject, shrink

MODULE = (
    """
// a comment with """
    + '"quotes" and ::error::'
    + """
func.func @helper(%a: tensor<4x8xf32>) -> tensor<4x8xf32> { return %a : tensor<4x8xf32> }
func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %i: index) -> (tensor<4x8xf32>, tensor<?x8xf32>) {
  %0 = arith.subf %a, %b : tensor<4x8xf32>
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = arith.mulf %0, %b : tensor<4x8xf32>
  %e = tensor.empty(%i) : tensor<?x8xf32>
  %z = tensor.extract %c[%i] : tensor<2xf32>
  %2 = linalg.fill ins(%z: f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %1, %2 : tensor<4x8xf32>, tensor<?x8xf32>
}
"""
)
PASSES = "func.func(canonicalize,cse),one-shot-bufferize{bufferize-function-boundaries=false},convert-scf-to-cf"


def test_an_error_of_a_pass_keeps_its_message_and_loses_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, out = tmp_path / "module.mlir", tmp_path / "out"
    source.write_text(MODULE)
    assert invoke(["reduce", "--mlir", str(source), "--pipeline", PASSES, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "passes    4 -> 1" in told and "ops       11 -> 3" in told
    assert "nothing more to take away, confirmed in a fresh process" in told
    summary = json.loads((out / "summary.json").read_text())
    assert summary["pipeline"] == "builtin.module(one-shot-bufferize)" and summary["confirmed"]
    reduced = (out / "reduced.mlir").read_text()
    assert "tensor<1x1xf32>" in reduced and "@helper" not in reduced
    assert "--pass-pipeline=builtin.module(one-shot-bufferize)" in reduced
    assert (out / "original.mlir").read_text() == MODULE


def test_the_module_moves_through_passes_that_only_prepare() -> None:
    """What is left to see is made by two passes, so that neither can go; what the first makes can take its place."""
    module = "func.func @main(%a: memref<4xf32>, %c: f32) { linalg.fill ins(%c: f32) outs(%a: memref<4xf32>) return }"

    def ends_in_blocks(subject: Subject) -> questions.Outcome:
        found = questions.try_pipeline(subject.module, subject.pipeline, 20, text=True)
        runs = len(subject.pipeline) > 0  # else the blocks alone would do
        return questions.Outcome("wrong" if runs and "cf.cond_br" in found.module else "ok")

    passes = parse("convert-linalg-to-loops,convert-scf-to-cf")
    reduced = shrink(Subject(module, passes), ends_in_blocks, 20)
    assert text(reduced.value.pipeline) == "builtin.module(convert-scf-to-cf)"
    assert "linalg" not in reduced.value.module


VALUES = """
func.func @main(%x: tensor<5xi32>, %y: tensor<5xi32>) -> (tensor<5xi32>, tensor<5xi32>) {
  %c = arith.constant dense<3> : tensor<5xi32>
  %e = tensor.empty() : tensor<5xi32>
  %0 = linalg.add ins(%x, %c : tensor<5xi32>, tensor<5xi32>) outs(%e : tensor<5xi32>) -> tensor<5xi32>
  %1 = linalg.mul ins(%x, %y : tensor<5xi32>, tensor<5xi32>) outs(%e : tensor<5xi32>) -> tensor<5xi32>
  %2 = linalg.max ins(%1, %0 : tensor<5xi32>, tensor<5xi32>) outs(%e : tensor<5xi32>) -> tensor<5xi32>
  return %0, %2 : tensor<5xi32>, tensor<5xi32>
}
"""


@pytest.mark.torture
def test_values_that_a_pipeline_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass under suspicion is one that takes a product for a sum."""
    right = questions.try_pipeline

    def miscompiling(module: str, *rest: object, **options: object) -> questions.Outcome:
        return right(module.replace("linalg.mul", "linalg.add"), *rest, **options)

    ask = values.computing("main", 20, 1e-4)
    assert ask(Subject(VALUES, parse("canonicalize"))).kind == "ok"
    monkeypatch.setattr(values, "try_pipeline", miscompiling)
    reduced = shrink(Subject(VALUES, parse("canonicalize")), ask, 20).value
    assert "linalg.mul" in reduced.module and "linalg.max" not in reduced.module
    assert "linalg.add" not in reduced.module and ask(reduced).kind == "wrong"


def test_a_command_of_the_users_says_what_fails(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = tmp_path / "module.mlir"
    source.write_text(MODULE)
    words = ["reduce", "--mlir", str(source), "--out", str(tmp_path / "out"), "--pipeline", PASSES]
    assert invoke([*words, "--test", 'grep -q arith.subf "$MODULE" && echo "$PIPELINE" | grep -q cse']) == 0
    told = capsys.readouterr().out
    assert "pipeline  builtin.module(func.func(cse))" in told and "arith.mulf" not in told
    assert "subf" in told


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--pipeline", "canonicalize"], "ends well"),
        (["--pipeline", "canonicalise"], "does not refer to a registered pass"),
        (["--pipeline", "cse("], "parenthesis is not closed"),
        (["--pipeline", "cse", "--values"], "cannot be run without the pipeline"),
        (["--pipeline", "cse", "--values", "--entry", "other"], "has no function @other, but helper, main"),
        (["--test", "exit 3"], "exit code 3"),
        ([], "give the --pipeline"),
        (["--pipeline", "cse", "--backend", "linalg"], "--mlir is for a module"),
    ],
)
def test_what_is_no_failure_is_said(words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = tmp_path / "module.mlir"
    source.write_text(MODULE)
    assert invoke(["reduce", "--mlir", str(source), "--out", str(tmp_path / "out"), *words]) == 2
    assert why in capsys.readouterr().err


def test_options_of_a_module_need_one(capsys: pytest.CaptureFixture) -> None:
    assert invoke(["reduce", "opinfo:add:float32:0", "--backend", "linalg", "--pipeline", "cse"]) == 2
    assert "--mlir FILE" in capsys.readouterr().err
