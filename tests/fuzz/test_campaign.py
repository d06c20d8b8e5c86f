"""Campaigns in real workers: they find mutants, bring them down to the op, and blame nobody for nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchstone.cli import invoke
from torchstone.cli.commands.fuzz import Progress
from torchstone.conformance.escape import shell_command
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import opinfo
from torchstone.fuzz import triage
from torchstone.fuzz.campaign import CampaignOptions, Tally, not_done, run_campaign
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.saved import resume
from torchstone.reducers.script_run import ScriptRun

pytestmark = pytest.mark.usefixtures("fork_server")


class Ended:
    """A script that has shown its failure."""

    def poll(self) -> ScriptRun:
        return ScriptRun(1, True, "")


@pytest.fixture
def scripts_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take it that each script shows its failure; one test here, and those of the reducers, run theirs."""
    monkeypatch.setattr(triage, "start_script", lambda *_: Ended())


def _campaign(name: str, op: str, out: Path, programs: int = 8, **options) -> Tally:
    plan = CampaignOptions(
        f"tests.mutants:{name}", 300.0, 0, out, must=select_rules((op,)), programs=programs, **options
    )
    return run_campaign(plan)


@pytest.mark.torture
def test_eager_has_no_failures(tmp_path):
    tally = run_campaign(CampaignOptions("eager", 300.0, 0, tmp_path, programs=60))
    assert tally.tried == 60
    assert not len(tally.findings), [finding.to_json() for finding in tally.findings.ranked()]
    assert set(tally.outcomes) <= {"pass", "ill-conditioned"}
    assert len(tally.reached.ops) > 60
    assert json.loads((tmp_path / "campaign.json").read_text())["programs"] == 60


def test_swapped_sub_is_found_and_comes_down_to_one_op_and_one_element(tmp_path):
    tally = _campaign("swapped_sub", "sub", tmp_path, programs=36, max_ops=2)
    worst = next(f for f in tally.findings.ranked() if f.ops == {"sub"})
    assert worst.reduction is not None and worst.folder is not None
    assert [call.target for call in worst.best.program.calls] == ["torch.sub"]
    assert max(tensor.numel() for tensor in worst.best.args) == 1
    assert worst.reduction.confirmed and worst.reduction.complete
    assert len(worst.seen) > 3
    saved = Case.load(worst.folder / "case.safetensors")
    assert saved.to_bytes() == worst.best.to_bytes()
    assert {path.name for path in worst.folder.iterdir()} == {
        "case.safetensors",
        "issue.md",
        "original.safetensors",
        "reproducer.py",
        "summary.json",
        "test_reproducer.py",
    }
    compile((worst.folder / "reproducer.py").read_text(), "reproducer.py", "exec")
    assert json.loads((worst.folder / "summary.json").read_text())["reduced"]["elements"] == 2


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
@pytest.mark.parametrize(
    ("name", "op", "outcome"),
    [
        ("sum_wrong_axis", "sum", "mismatch"),
        ("round_half_up", "round", "mismatch"),
        ("failing_softmax", "softmax", "error"),
    ],
)
def test_mutants_are_found_and_brought_down_to_their_op(name, op, outcome, tmp_path):
    tally = _campaign(name, op, tmp_path, max_ops=3)
    found = [f for f in tally.findings.ranked() if f.ops == {op} and f.signature.outcome == outcome]
    assert found
    assert all(len(finding.best.program.calls) == 1 for finding in found)
    assert all(finding.reduction and finding.reduction.confirmed for finding in found)


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_a_swapped_sub_in_the_linalg_lowering_comes_down_to_one_op_and_one_element(tmp_path):
    tally = _campaign("linalg_swapped_sub", "sub", tmp_path, programs=5)
    found = next(f for f in tally.findings.ranked() if f.ops == {"sub"})
    assert [call.target for call in found.best.program.calls] == ["torch.sub"]
    assert max(tensor.numel() for tensor in found.best.args) == 1
    assert found.reduction and found.reduction.confirmed and found.reduction.complete


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_a_max_that_loses_nan_is_found_among_special_values(tmp_path):
    tally = _campaign("max_without_nan", "maximum", tmp_path, programs=15, max_ops=2, specials=True)
    found = [f for f in tally.findings.ranked() if f.ops == {"maximum"}]
    assert found
    assert any(bool(tensor.isnan().any()) for tensor in found[0].best.args)
    assert max(tensor.numel() for tensor in found[0].best.args) == 1


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_a_crash_is_found_kept_and_survived(tmp_path):
    tally = _campaign("crashing_cumsum", "cumsum", tmp_path, programs=1, max_ops=1, reduce_seconds=0.0)
    assert tally.outcomes == {"crash": 1}
    (finding,) = tally.findings.ranked()
    assert "SIGSEGV" in finding.signature.message
    assert finding.reduction is not None
    assert finding.reduction.confirmed and not finding.reduction.complete


def _swapped_sub(out: Path, seconds: float = 300.0, programs: int = 30, **options) -> CampaignOptions:
    rules = select_rules(("sub",))
    return CampaignOptions("tests.mutants:swapped_sub", seconds, 0, out, must=rules, programs=programs, **options)


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_a_reduction_that_the_end_of_the_time_cuts_off_goes_on_with_reduce(tmp_path, monkeypatch, capsys):
    tally, simpler = Tally(), triage.Triage._simpler

    def time_is_up_at_the_second_step(self, case):
        before, self.steps = getattr(self, "steps", 0), getattr(self, "steps", 0) + 1
        simpler(self, case)
        tally.earlier += 1e6 * (before == 1)

    monkeypatch.setattr(triage.Triage, "_simpler", time_is_up_at_the_second_step)
    plan = _swapped_sub(tmp_path, programs=12, max_ops=2)
    run_campaign(plan, tally=tally)
    (finding,) = (f for f in tally.findings.ranked() if f.reduction is None)
    assert finding.folder is not None
    case = finding.folder / "case.safetensors"
    assert Case.load(case).to_bytes() == finding.case.to_bytes()
    words = ["reduce", str(case), "--backend", "tests.mutants:swapped_sub", "--out", str(finding.folder)]
    assert shell_command(["torchstone", *words]) in "\n".join(not_done(plan, tally))
    invoke(words)
    assert f"going on from the case in {finding.folder / 'so-far.safetensors'}" in capsys.readouterr().err
    assert json.loads((finding.folder / "summary.json").read_text())["complete"]


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_failures_that_the_end_of_the_time_leaves_are_sorted_by_a_campaign_that_goes_on(tmp_path):
    tally = Tally()

    def time_is_up_once_failures_wait(its: Tally) -> None:
        if its.outcomes["mismatch"] >= 3:
            its.earlier += 1e6

    run_campaign(_swapped_sub(tmp_path), time_is_up_once_failures_wait, tally)
    left = {case.id for case in tally.unsorted}
    told = json.loads((tmp_path / "campaign.json").read_text())
    assert left and set(told["unsorted"]) == left and not told["finished"]
    assert len(list((tmp_path / "unsorted").iterdir())) == len(left)

    again, longer = Tally(), _swapped_sub(tmp_path, 3e6)
    assert resume(longer, again) and {case.id for case in again.unsorted} == left
    run_campaign(longer, tally=again)
    assert not again.unsorted and not list((tmp_path / "unsorted").iterdir())
    assert left <= {name for finding in again.findings.ranked() for name in finding.seen}
    assert json.loads((tmp_path / "campaign.json").read_text())["finished"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("linalg_swapped_sub", "sub"),
        ("linalg_swapped_int_sub", "sub"),
        ("swapped_sub", "sub"),
        ("sum_wrong_axis", "sum"),
        ("slice_off_by_one", "narrow"),
        ("failing_softmax", "softmax"),
    ],
)
def test_mutants_are_caught_by_the_suite(name, op):
    samples = [case for case in opinfo.iterate([op], ["float32", "int32"]) if isinstance(case, Case)]
    with Pool(f"tests.mutants:{name}") as pool:
        assert any(verdict.failed for verdict in pool.verdicts(samples))


BAD = [
    (["--backend", "egaer"], 'unknown backend "egaer" (did you mean "eager"?)'),
    (["--backend", "eager", "--time", "10x"], 'bad time "10x": give a number and a unit, like 60s, 10m or 1h30m'),
    (["--backend", "eager", "--op", "sofmax"], 'unknown op "sofmax" (did you mean "softmax"?)'),
    (["--backend", "eager", "--out", "/dev/null/x"], "cannot write to /dev/null/x"),
    (["--backend", "eager", "--max-ops", "0"], "max-ops"),
    (["--backend", "no.such:thing"], 'backend "no.such:thing" cannot be loaded'),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert invoke(["fuzz", "--time", "1s", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len([line for line in errors.splitlines() if line.startswith("error: ")]) == 1


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_exit_codes_and_the_ranked_list(tmp_path, capsys):
    common = ["fuzz", "--seed", "1", "--jobs", "1", "--max-ops", "2", "--op", "sub"]
    clean = [*common, "--backend", "tests.mutants:correct", "--programs", "5", "--out", str(tmp_path / "a")]
    assert invoke(clean) == 0
    assert "no failures" in capsys.readouterr().out
    wrong = [*common, "--backend", "tests.mutants:swapped_sub", "--programs", "12", "--out", str(tmp_path / "b")]
    assert invoke(wrong) == 1
    out = capsys.readouterr().out
    assert "12 programs in " in out and "seed 1: " in out
    assert any(line.split()[:5] == ["1", "mismatch", "sub", "1", "1"] for line in out.splitlines())


@pytest.mark.torture
def test_a_campaign_goes_on_after_a_sudden_end(tmp_path, capsys):
    words = ["fuzz", "--backend", "eager", "--seed", "3", "--jobs", "1", "--time", "5m", "--out", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "torchstone", *words], stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "campaign.json").exists():
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    done = json.loads((tmp_path / "campaign.json").read_text())
    assert not done["finished"]
    last = done["drawn"] + 5
    assert invoke([*words, "--programs", str(last)]) == 0
    streams = capsys.readouterr()
    assert f"going on with the campaign in {tmp_path}: {done['programs']} programs and 0 findings" in streams.err
    again = json.loads((tmp_path / "campaign.json").read_text())
    assert again["finished"] and again["drawn"] == last and not again["pending"]
    assert again["programs"] == last


@pytest.mark.torture
@pytest.mark.usefixtures("scripts_not_run")
def test_ctrl_c_keeps_the_findings(tmp_path, capsys, monkeypatch):
    show = Progress.show

    def interrupt(self, tally):
        if len(tally.findings):
            signal.raise_signal(signal.SIGINT)
        show(self, tally)

    monkeypatch.setattr(Progress, "show", interrupt)
    args = ["--backend", "tests.mutants:swapped_sub", "--op", "sub", "--seed", "1", "--time", "10m"]
    assert invoke(["fuzz", *args, "--out", str(tmp_path)]) == 130
    done = capsys.readouterr()
    assert "the findings so far are kept" in done.err
    assert "1 findings" in done.out or "2 findings" in done.out
    summary = json.loads((tmp_path / "campaign.json").read_text())
    assert summary["interrupted"] and summary["findings"]
