"""An op of a user's own, asked alone: a bug that is planted in it is found, and a right backend is not accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone.cli import invoke
from torchstone.conformance.backends import load
from torchstone.conformance.custom import checks, registration, source
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.variants.apply import apply
from torchstone.fuzz.alone import OpReport, run_alone
from torchstone.fuzz.campaign import CampaignOptions
from torchstone.fuzz.generator.families.samples import rule_of_custom
from torchstone.fuzz.generator.generate import nth_program
from torchstone.fuzz.page import page
from torchstone.fuzz.session import ask_alone
from torchstone.fuzz.traits import traits

pytestmark = pytest.mark.usefixtures("fork_server")
MODULE = "tests.new_ops"
CHEAP = {name: checks.CHECKS[name] for name in ("repeatable", "schema", "fake kernel")}


@pytest.fixture(autouse=True)
def _cheap(new_ops, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", CHEAP)


def _plan(backend: str, out: Path, cases: int) -> CampaignOptions:
    return CampaignOptions(f"{MODULE}:{backend}", 300.0, 0, out, programs=cases)


def _report(backend: str, op: str, out: Path, cases: int) -> OpReport:
    return run_alone(_plan(backend, out, cases), registration.ask(f"newops::{op}").name)


@pytest.mark.torture
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


@pytest.mark.torture
def test_what_ends_the_process_is_told_and_the_campaign_goes_on(tmp_path):
    report = _report("right", "ends_the_process", tmp_path, 40)
    assert not len(report.tally.findings)
    assert {complaint.check for complaint in report.complaints} == {"survival"}
    assert all("killed by SIGSEGV" in complaint.message for complaint in report.complaints)
    assert any(complaint.case.endswith((":empty", ":operands")) for complaint in report.complaints)
    assert report.tally.outcomes["pass"] > 20


@pytest.mark.torture
def test_a_function_for_torch_compile_is_a_backend():
    case = source.case(registration.ask("newops::reduced").name, "float32", 0)
    verdict = run_case(case, load(f"{MODULE}:clips_negative"))
    assert bool((case.program(*case.args) < 0).any())
    assert verdict.outcome is Outcome.MISMATCH
    for variant in ("default", "dynamic", "backward"):
        right = run_case(apply(case, variant), load(f"{MODULE}:changes_nothing"))
        assert (right.variant, right.outcome) == (variant, Outcome.PASS), right.message


def test_a_wrong_backward_graph_of_a_backend_for_torch_compile_is_seen():
    case = apply(source.case(registration.ask("newops::reduced").name, "float32", 0), "backward")
    verdict = run_case(case, load(f"{MODULE}:doubles_gradients"))
    assert (verdict.outcome, verdict.kind) == (Outcome.MISMATCH, "value")
    assert "output[1]" in verdict.message


@pytest.mark.torture
def test_an_op_without_samples_is_learned_by_one_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(source, "FOLDER", tmp_path / "ops")
    backend = ["--backend", f"{MODULE}:misses_the_write", "--ops-from", MODULE]
    out = ["--out", str(tmp_path / "out"), "--programs", "6", "--jobs", "1"]
    assert invoke(["fuzz", "--op", "newops::accumulate", *backend, *out]) == 1
    text = capsys.readouterr().out
    assert (tmp_path / "out" / "page.md").read_text() in text
    assert "mismatch (mutation)" in text and "| float32 | 36 | 0 to 5 |" in text
    assert f"are kept in {tmp_path / 'ops' / 'newops.accumulate.toml'}" in text
    assert "programs that call it among others" in text
    told = ""
    for case in (tmp_path / "out").glob("*/case.safetensors"):
        assert invoke(["replay", str(case), *backend]) == 1
        told += capsys.readouterr().out
    assert "verdict  mismatch (mutation)" in told


def test_an_op_is_called_among_others(monkeypatch, tmp_path):
    monkeypatch.setattr(source, "FOLDER", tmp_path)
    rule = rule_of_custom(registration.ask("newops::shifted"))
    cases = [nth_program(0, index, must=(rule,)) for index in range(4)]
    assert all(any(call.target == rule.target for call in case.program.calls) for case in cases)
    assert any(len(case.program.calls) > 1 for case in cases)
    assert all(case.tags == registration.needed_tags() for case in cases)


@pytest.mark.torture
@pytest.mark.parametrize(("name", "where"), [("nn.functional.fold", "functions"), ("nn.Bilinear", "modules")])
def test_what_the_op_database_lacks_is_asked_alone_too(name, where, tmp_path):
    plan = CampaignOptions("eager", 60.0, 0, tmp_path, programs=2)
    (asked,) = ask_alone(plan, [name], lambda tally: None)
    assert (asked.report.source, asked.report.tally.tried) == (where, 2)
    unknown = "It was not asked among others: the generator of programs does not know it." in asked.page
    assert unknown == (where == "modules")
    assert not asked.report.failed


def test_a_misspelt_op_is_refused(tmp_path):
    with pytest.raises(UnknownName, match=r"did you mean .nn\.Linear.\?"):
        list(ask_alone(CampaignOptions("eager", 1.0, 0, tmp_path), ["nn.Lineer"], lambda tally: None))
