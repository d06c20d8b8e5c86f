"""``torchstone compile``: every stage it prints it takes back, and what it cannot take it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone import cli

MODEL = """
import torch

def f(x, w):
    return torch.softmax(x @ w, -1)
"""
CALL = ["model.py:f", "--arg", "f32[2, 3]", "--arg", "f32[3, 4]"]
MM = "graph @f(%x: f32[?, 3], %w: f32[?, 4]) {{\n  %0: {} = aten.mm.default(%x, %w)\n  return %0\n}}"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.invoke(["compile", *args]) == 0
    return capsys.readouterr().out


@pytest.mark.few(7)
@pytest.mark.parametrize("stage", ["aten", "contract", "flat"])
@pytest.mark.parametrize("target", ["linalg", "tosa", "tensorrt"])
def test_a_stage_that_was_printed_is_taken_back(stage: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = printed(capsys, *CALL, "--target", target)
    Path("stage.txt").write_text(printed(capsys, *CALL, "--target", target, "--emit", stage))
    assert printed(capsys, "stage.txt", "--from", stage, "--target", target).splitlines() == expected.splitlines()


@pytest.mark.parametrize("stage", ["linalg", "tosa"])
def test_a_module_is_taken_to_llvm(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("stage.txt").write_text(printed(capsys, *CALL, "--target", stage))
    assert "llvm.func" in printed(capsys, "stage.txt", "--from", stage, "--emit", "llvm")


def test_unknown_sizes_are_worked_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mm.txt").write_text(MM.format("f32[?, ?]"))
    assert "%0: f32[d0, 4] = flat.contract" in printed(capsys, "mm.txt", "--from", "aten", "--emit", "flat")


@pytest.mark.parametrize(
    "text, message",
    [
        ("graph @f(%x: f33[2]) { return %x }", "unknown type 'f33' (did you mean \"f32\"?)"),
        ("", "line 1, column 1: expected graph"),
        (MM.format("f32[?]"), "aten.mm.default gives f32[d0, 4], the graph says f32[?]"),
        ("graph @f(%x: f32[2]) {\n %0: f32[2] = aten.exq.default(%x)\n return %0 }", "aten.exq.default is no op"),
    ],
)
def test_text_that_is_no_program_is_refused(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.txt").write_text(text)
    assert cli.invoke(["compile", "bad.txt", "--from", "aten"]) != 0
    assert message in capsys.readouterr().err


def test_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["model.py:f", "--arg", "f32[n, 3]", "--arg", "f32[3, 4]", "--target", "tensorrt"]
    out = printed(capsys, *call, "--profile", "n=1:1:1", "--profile", "n=2:8:64")
    assert out.splitlines()[1:3] == [
        "// profile 0: %input0 [1, 3] [1, 3] [1, 3]",
        "// profile 1: %input0 [2, 3] [8, 3] [64, 3]",
    ]
    assert "[9, 3] [10, 3] [12, 3]" in printed(capsys, *call, "--profile", "n=9:10:12"), "the example has the optimum"
    for profile, message in (("n=1:8", "expected a range min:opt:max for each size"), ("k=1:2:3", "there is n")):
        assert cli.invoke(["compile", *call, "--profile", profile]) != 0
        assert message in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_an_engine_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """And a file that is refused is told in one line."""
    call = [*CALL, "--target", "tensorrt", "--engine-cache", "engines"]
    out = printed(capsys, *call)
    (file,) = Path("engines").iterdir()
    assert printed(capsys, *call) == out
    file.write_text("torchstone engine 0\x1b[2J\n")
    assert cli.invoke(["compile", *call]) == 0
    refused = "is not used, and is built again: it has another format than 1: b'0\\x1b[2J'"
    assert capsys.readouterr().err == f"warning: engine_cache: {file} {refused}\n"
    assert cli.invoke(["compile", *CALL, "--engine-cache", "engines"]) != 0
    assert 'target linalg: no option "engine_cache"; it has none of its own' in capsys.readouterr().err
    assert cli.invoke(["compile", "x.txt", "--from", "aten", "--engine-cache", "engines"]) == 2


def test_unknown_names_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["compile", "x.txt", "--from", "lina"]) == 2
    assert 'did you mean "linalg"?' in capsys.readouterr().err
    assert cli.invoke(["compile", "x.txt", "--from", "aten"]) == 2
    assert "x.txt: No such file" in capsys.readouterr().err
    assert cli.invoke(["compile", "x.txt", "--from", "aten", "--arg", "1"]) == 2


def test_the_story_of_each_op(capsys: pytest.CaptureFixture[str]) -> None:
    story = printed(capsys, *CALL, "--explain")
    line, mm, contract, softmax, _ = story.splitlines()
    assert line.endswith("model.py:5 in f    return torch.softmax(x @ w, -1)")
    assert mm.strip() == "aten.mm.default: f32[2, 3], f32[3, 4] -> f32[2, 4]" and contract.strip() == "flat.contract"
    assert softmax.strip() == "aten._softmax.default: f32[2, 4] -> f32[2, 4]"


HOST = """
import torch

def g(x):
    inverse = torch.linalg.inv(x @ x.mT + torch.eye(3))
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)) + inverse, x[x > 0].exp()
"""


@pytest.mark.parametrize("stage", ["aten", "contract", "flat"])
def test_a_schedule_is_printed_and_taken_back(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.py").write_text(HOST)
    call = ["model.py:g", "--arg", "f32[3, 3]"]
    expected = printed(capsys, *call, "--emit", "schedule")
    assert expected.count("kernel ") >= 2 and "aten.linalg_inv_ex" in expected and "flat.cond" in expected
    Path("stage.txt").write_text(printed(capsys, *call, "--emit", stage))
    assert printed(capsys, "stage.txt", "--from", stage, "--emit", "schedule") == expected


def test_without_library_calls_the_op_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.py").write_text(HOST)
    assert cli.invoke(["compile", "model.py:g", "--arg", "f32[3, 3]", "--no-library-calls"]) != 0
    assert "aten.linalg_inv_ex.default is a call into LibTorch" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["linalg", "tosa", "tensorrt", "evaluator"])
def test_the_passes_of_a_target_are_printed(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--passes", "--target", target).splitlines()
    assert lines[0] == "contract:" and "  cse                          nothing is computed twice" in lines
    assert ("cpu:" in lines) is (target in ("linalg", "tosa"))
    assert ("tosa-to-linalg:" in lines) is (target == "tosa")


@pytest.mark.parametrize("options", [CALL, ["stage.txt", "--from", "aten"]])
def test_the_time_of_each_pass_is_printed_beside_the_stages(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("stage.txt").write_text(MM.format("f32[?, ?]"))
    assert cli.invoke(["compile", *options, "--emit", "flat", "--time-passes"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("graph @f")
    passes = [line.split()[:3] for line in err.splitlines()]
    assert ["flat", "expand", "1"] in passes and ["contract", "decompose", "1"] in passes


def test_a_program_or_its_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["compile"]) == 2
    assert "say what to compile: FILE:FN" in capsys.readouterr().err
