"""``torchstone replay --script``."""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.cli import invoke
from torchstone.conformance.backends import backend_names
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.store import Store

EXP = Case(
    Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "y"),), Ref("y")),
    {"x": torch.ones(2)},
    "test",
    "exp",
    "float32",
)
FIRST_ANSWER = """
from torchstone.conformance.backends.protocol import Availability


class FirstAnswer:
    name = "first_answer:FirstAnswer"

    def available(self):
        return Availability(True)

    def versions(self):
        return {}

    def compile(self, fn, args):
        kept = fn(*args).clone()
        return lambda *given: kept.clone()
"""
"""A backend that gives what it gave for the example, whatever it is called with."""


def test_a_script_is_written_where_the_backend_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "case.safetensors"
    EXP.save(file)
    before = set(sys.modules)
    for name in backend_names():
        assert invoke(["replay", str(file), "--backend", name, "--script"]) == 0
        ast.parse(capsys.readouterr().out)
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {"onnxruntime", "openvino", "tvm", "iree", "executorch", "jax", "torch_mlir"}


def test_a_misspelt_backend_has_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["replay", "opinfo:exp:float32:0", "--backend", "onnxruntim", "--script"]) == 2
    assert 'did you mean "onnxruntime"' in capsys.readouterr().err


@pytest.mark.torture
def test_a_script_of_a_stored_failure_makes_the_calls_that_its_verdict_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first_answer.py").write_text(FIRST_ANSWER)
    monkeypatch.chdir(tmp_path)
    backend, store = "first_answer:FirstAnswer", str(tmp_path / "results.sqlite")
    assert invoke(["run", "-b", backend, "--op", "exp", "--limit", "1", "--variant", "default", "--store", store]) == 1
    with Store(store, readonly=True) as db:
        (case,) = {row[0] for row in db.iter_verdicts() if row[8] == "later-call"}
    capsys.readouterr()
    for more in ([], ["--run", "r1"]):
        assert invoke(["replay", case, "-b", backend, "--store", store, "--script", *more]) == 0
        (tmp_path / "script.py").write_text(capsys.readouterr().out)
        paths = os.pathsep.join([str(tmp_path), *sys.path])
        ran = subprocess.run(
            [sys.executable, "script.py"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert ran.returncode == 1 and "later-call" in ran.stderr, ran.stderr


def test_a_script_is_of_the_run_that_is_named_else_of_the_newest_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = _stored(tmp_path, EXP, _failed(message="output[0]: the first"), _failed(message="output[0]: the second"))
    command = ["replay", EXP.id, "-b", "inductor", "--store", store, "--script"]
    assert invoke(command) == 0
    assert "the second" in capsys.readouterr().out
    assert invoke([*command, "--run", "r1"]) == 0
    assert "the first" in capsys.readouterr().out
    assert invoke([command[0], EXP.id, "-b", "eager", "--store", store, "--script"]) == 0
    assert "the second" not in capsys.readouterr().out, "another backend's verdict"


@pytest.mark.few(15)
@pytest.mark.parametrize(
    "evidence",
    [
        {"index": ["__import__('os').abort()"], "where": "output"},
        {"where": "output[__import__('os').abort()]", "index": [0]},
        {"index": [0], "where": "output", "dtype": "__import__", "expected": "()", "float64": "x", "ulps": 2},
        {"sizes": [["__import__('os').abort()"]], "part": "os"},
        {"sizes": [[3]], "part": -1, "calls": ["os"]},
        {"sizes": {"os": 1}, "part": 10**30},
        {"calls": 3},
        {"calls": {"-1": "x"}},
    ],
)
@pytest.mark.parametrize("variant", ["default", "dynamic"])
def test_evidence_that_somebody_else_wrote_never_becomes_code(
    variant: str, evidence: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "output: expected '''\n\"\"\"\nimport os; os.abort()\n"
    case = EXP.replace(variant=variant)
    failed = _failed(kind="value", message=words, evidence=evidence)
    store = _stored(tmp_path, case, dataclasses.replace(failed, case_id=case.id, variant=variant))
    assert invoke(["replay", case.id, "-b", "inductor", "--store", store, "--script"]) == 0
    tree = ast.parse(capsys.readouterr().out)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"os", "__import__"}


def _failed(**more: Any) -> Verdict:
    return Verdict(
        EXP.id, "inductor", EXP.source, EXP.op, EXP.dtype, EXP.variant, Stage.COMPARE, Outcome.MISMATCH, **more
    )


def _stored(folder: Path, case: Case, *verdicts: Verdict) -> str:
    """A store with a run for each verdict."""
    with Store(folder / "results.sqlite") as store:
        for verdict in verdicts:
            run = store.new_run("torchstone run", {}, {})
            store.record(run, verdict, case.to_bytes())
            store.finish(run)
    return str(folder / "results.sqlite")
