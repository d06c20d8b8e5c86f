"""``make gpu``: what is not there is told, not passed; what runs is read as it was; time that is up ends a step."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from .rules import ROOT

FOLDER = ROOT / "tests" / "gpu"
MODULES = ("steps", "results", "running", "site_folder")


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    """The modules of the command, by their names."""
    sys.path.insert(0, str(FOLDER))
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield {name: importlib.import_module(name) for name in MODULES}
    sys.path.remove(str(FOLDER))
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_every_step_is_skipped_and_says_why(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER), "--out", str(tmp_path)], capture_output=True, text=True, check=True
    )
    told = json.loads((tmp_path / "results.json").read_text())
    assert {step["state"] for step in told["steps"]} == {"skipped"} and len(told["steps"]) == 6
    assert all("CUDA" in step["reason"] or "tensorrt" in step["reason"] for step in told["steps"])
    assert told["machine"]["gpus"] == [] and told["machine"]["torch"] == torch.__version__
    assert "0 steps ran, 6 did not" in done.stdout


def run(gpu: Any, tmp_path: Path, name: str, arguments: tuple[str, ...], options: str, seconds: float = 120.0) -> Any:
    """A step on the CPU in place of its own."""
    step = next(step for step in gpu["steps"].STEPS if step.name == name)
    step = replace(step, lacking=str, arguments=arguments, environment={})
    return gpu["running"].run(step, tmp_path, gpu["running"].Budget(seconds, step.share), "1", options.split())


@pytest.mark.torture
def test_a_run_is_read_as_it_was(gpu: Any, tmp_path: Path) -> None:
    result = run(gpu, tmp_path, "eager", ("run", "--backend", "eager"), "--op neg --limit 1")
    assert (result.state, result.counts, result.failures) == ("passed", {"pass": 1}, [])
    assert result.well and (tmp_path / "eager.log").read_text()


@pytest.mark.torture
def test_a_failure_is_named(gpu: Any, tmp_path: Path) -> None:
    backend = tmp_path / "off.py"
    backend.write_text(
        "from torchstone.conformance.backends.protocol import Availability\n"
        "class Off:\n"
        "    name, executors = 'off', ()\n"
        "    def available(self): return Availability(True)\n"
        "    def versions(self): return {}\n"
        "    def compile(self, fn, args): return lambda *args: fn(*args) + 1\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        result = run(gpu, tmp_path, "inductor", ("run", "--backend", "off:Off"), "--op neg --limit 1")
    assert result.state == "failures" and result.counts == {"mismatch": 1} and not result.well
    assert [(f["case"], f["outcome"]) for f in result.failures] == [("opinfo:neg:float32:0", "mismatch")]


def test_what_never_ran_has_died(gpu: Any, tmp_path: Path) -> None:
    result = run(gpu, tmp_path, "eager", ("run", "--backend", "none-of-this-name"), "--op neg")
    assert result.state == "died" and not result.well and "eager.log" in result.reason


@pytest.mark.torture
def test_time_that_is_up_ends_a_step(gpu: Any, tmp_path: Path) -> None:
    result = run(gpu, tmp_path, "eager", ("run", "--backend", "eager"), "--limit 5", seconds=4.0)
    assert result.state == "part" and result.reason == "cut after its 4 s" and result.seconds < 30


def test_steps_share_the_time_that_is_left(gpu: Any) -> None:
    budget = gpu["running"].Budget(100.0, 4)
    assert budget.take(1) == pytest.approx(25, abs=1)
    assert budget.take(3) == pytest.approx(100, abs=1)  # nothing has used the first part


def test_what_a_python_lacks_is_installed_but_for_pytorch_and_mlir(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu["site_folder"], "_met", lambda wish: wish.name == "numpy")
    names = {one.split(">")[0].split("=")[0] for one in gpu["site_folder"].lacking()}
    assert {"setuptools", "expecttest", "safetensors"} <= names and not names & {"torch", "torch-mlir", "numpy"}
