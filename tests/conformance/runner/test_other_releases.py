"""Workers with another release of PyTorch: what it lacks is told, and trips nothing up.

Environments with other releases are named in ``TORCHSTONE_PYTHONS``, separated by ``:``; each needs ``torch``,
``numpy``, ``safetensors`` and ``scipy``. ``tox -e releases`` runs these tests. A missing name is simulated anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchstone.conformance.execution.verdict import FAILURES, Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import worker_process
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import iterate, opinfo
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.fuzz.generator.generate import nth_program

HELPERS = Path(__file__).parents[1] / "helpers"
PYTHONS = [path for path in os.environ.get("TORCHSTONE_PYTHONS", "").split(os.pathsep) if path]
VARIED = [
    "add",
    "softmax",
    "nn.functional.conv2d",
    "sort",
    "linalg.svd",
    "gather",
    "fft.fft",
    "scatter_add",
    "nn.functional.dropout",
]
COMPILED = ["add", "exp", "sum", "softmax", "where", "nn.functional.layer_norm"]
OURS = ("AttributeError", "ImportError", "ModuleNotFoundError")
"""Names of exceptions that a missing name of PyTorch comes to where nobody expected it."""


def calls(target: str) -> Case:
    program = Program(("x",), (Call(target, (Ref("x"),), {}, "y"),), Ref("y"))
    return Case(program, {"x": torch.arange(4.0)}, "test", target.rpartition(".")[2], "float32")


def test_what_a_release_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    cases = [calls("torch.nn.functional.softsign"), calls("torch.abs")]
    for release, outcome in (("2.99.0", Outcome.UNTESTED), (worker_process.version("torch"), Outcome.HARNESS_ERROR)):
        monkeypatch.setattr(worker_process, "version", lambda package, release=release: release)
        with Pool("other_release:WithoutSoftsign", jobs=1) as pool:
            missing, there = sorted(pool.verdicts(cases), key=lambda verdict: cases[0].id != verdict.case_id)
        assert there.outcome is Outcome.PASS
        assert missing.outcome is outcome
        assert "target 'torch.nn.functional.softsign': PyTorch 2" in missing.message
        assert "has none of this name" in missing.message


def samples(ops: list[str] | None, variants: list[str]) -> Iterator[Case]:
    found = iterate({"opinfo": opinfo.select(ops)}, ["float32"], 1, variants)
    return (entry for entry in found if isinstance(entry, Case))


def programs(count: int) -> Iterator[Case]:
    return (nth_program(0, index) for index in range(count))


def tried(python: str, backend: str, cases: Iterator[Case]) -> list[Verdict]:
    with Pool(backend, python=Interpreter.at(python).path, jobs=os.cpu_count() or 1, timeout=300.0) as pool:
        verdicts = list(pool.verdicts(cases))
    for verdict in verdicts:
        assert verdict.outcome is not Outcome.HARNESS_ERROR, verdict
        assert not any(name in verdict.message for name in OURS), verdict
    assert len(verdicts) > 5
    return verdicts


@pytest.mark.skipif(not PYTHONS, reason="TORCHSTONE_PYTHONS names no environment with another release of PyTorch")
@pytest.mark.parametrize("python", PYTHONS)
class TestRelease:
    def test_eager_passes(self, python: str) -> None:
        for cases in (samples(None, ["default"]), samples(VARIED, list(VARIANTS)), programs(60)):
            failed = [verdict for verdict in tried(python, "eager", cases) if verdict.outcome in FAILURES]
            assert not failed, failed[0]

    def test_the_oracle_tells_wrong_results(self, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(HELPERS)
        verdicts = tried(python, "other_release:Off", samples(None, ["default"]))
        assert sum(verdict.outcome is Outcome.MISMATCH for verdict in verdicts) > 0.7 * len(verdicts)

    def test_inductor_compiles(self, python: str) -> None:
        verdicts = tried(python, "inductor", samples(COMPILED, ["default", "backward"]))
        assert sum("inductor" in verdict.evidence.get("ran", {}) for verdict in verdicts) >= 5
