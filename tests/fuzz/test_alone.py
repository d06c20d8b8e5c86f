"""An op of a user's own, asked alone: a bug that is planted in it is found, and a right backend is not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.conformance.backends import load
from torchstone.conformance.custom import checks, registration, source
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.fuzz.alone import OpReport, run_alone
from torchstone.fuzz.campaign import CampaignOptions
from torchstone.fuzz.causes import traits
from torchstone.fuzz.page import page

pytestmark = pytest.mark.usefixtures("fork_server")
MODULE = "tests.new_ops"
CHEAP = {name: checks.CHECKS[name] for name in ("repeatable", "schema", "fake kernel")}


@pytest.fixture(autouse=True)
def _loaded(_in_the_root, monkeypatch):
    registration.load_modules([MODULE])
    monkeypatch.setattr(checks, "CHECKS", CHEAP)


def _plan(backend: str, out: Path, cases: int) -> CampaignOptions:
    return CampaignOptions(f"{MODULE}:{backend}", 300.0, 0, out, programs=cases, reduce_seconds=5.0)


def _report(backend: str, op: str, out: Path, cases: int) -> OpReport:
    return run_alone(_plan(backend, out, cases), registration.ask(f"newops::{op}").name)


def test_a_bug_is_found_and_the_page_tells_what_the_op_takes(tmp_path):
    report = _report("drops_nan", "reduced", tmp_path, 40)
    (finding,) = report.tally.findings.ranked()
    assert (finding.signature.outcome, finding.signature.kind) == ("mismatch", "value")
    assert "NaN or infinity" in traits(finding.best)
    assert report.complaints == []
    text = page(report, _plan("drops_nan", tmp_path, 40))
    assert "newops::reduced(Tensor x, str how, int dim=-1) -> Tensor" in text
    assert "| float32 | 2 | 2 | float32 |" in text
    assert f"--backend {MODULE}:drops_nan --ops-from {MODULE}" in text
    assert f"import {MODULE}" in (finding.folder / "reproducer.py").read_text()


def test_what_ends_the_process_is_told_and_the_campaign_goes_on(tmp_path):
    report = _report("right", "ends_the_process", tmp_path, 40)
    assert not len(report.tally.findings)
    assert {complaint.check for complaint in report.complaints} == {"survival"}
    assert all("killed by SIGSEGV" in complaint.message for complaint in report.complaints)
    assert any(complaint.case.endswith(":empty") for complaint in report.complaints)
    assert report.tally.outcomes["pass"] > 20


def test_a_function_for_torch_compile_is_a_backend():
    case = source.case("newops.reduced", "float32", 0)
    verdict = run_case(case, load(f"{MODULE}:clips_negative"))
    assert bool((case.program(*case.args) < 0).any())
    assert verdict.outcome is Outcome.MISMATCH
    right = run_case(case, load(f"{MODULE}:changes_nothing"))
    assert right.outcome is Outcome.PASS, right.message


def test_an_op_without_samples_is_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FOLDER", tmp_path / "ops")
    report = _report("misses_the_write", "accumulate", tmp_path, 2)
    (finding,) = report.tally.findings.ranked()
    assert finding.signature.kind == "mutation"
    assert report.dtypes["float32"]["ranks"] == [0, 1, 2, 3, 4, 5]
    text = page(report, _plan("misses_the_write", tmp_path, 2))
    assert f"are kept in {tmp_path / 'ops' / 'newops.accumulate.toml'}" in text
