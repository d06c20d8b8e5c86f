"""``torchstone reduce``, end to end: from a case to a script that fails when it is run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchstone.cli import invoke
from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import opinfo
from torchstone.conformance.sources.corpus import Corpus
from torchstone.reducers import progress
from torchstone.reducers.failure import reduce_case
from torchstone.reducers.script_run import ScriptRun

pytestmark = pytest.mark.usefixtures("fork_server")
BACKEND = "tests.mutants:swapped_sub"


@pytest.mark.torture
def test_a_case_id_becomes_a_script_that_fails_by_itself(tmp_path, capsys, warm_python):
    assert invoke(["reduce", "opinfo:sub:float32:3", "--backend", BACKEND, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "calls     1 -> 1" in out and "elements  51 -> 2" in out
    assert "nothing more to take away, confirmed in a fresh worker" in out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["reduced"]["largest_input"] == 1
    assert summary["original"]["id"] == "opinfo:sub:float32:3"
    assert summary["confirmed"] and summary["complete"]
    done = warm_python.run(tmp_path / "reproducer.py", cwd=Path.cwd())
    assert done.returncode == 1
    assert done.stderr.startswith("wrong value: output: expected -1.0, got 1.0, float64 -1.0")


@pytest.mark.torture
def test_a_saved_case_under_a_small_budget(tmp_path, capsys):
    start = opinfo.case("sub", "float32", 3)
    start.save(tmp_path / "start.safetensors")
    arguments = [
        "--backend",
        BACKEND,
        "--trials",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--keep",
        str(tmp_path / "kept"),
    ]
    assert invoke(["reduce", str(tmp_path / "start.safetensors"), *arguments]) == 0
    out = capsys.readouterr().out
    (kept,) = Corpus(tmp_path / "kept").iterate()
    assert "stopped by its budget" in out and f"kept      {tmp_path / 'kept'}" in out
    assert isinstance(kept, Case) and kept.program == Case.load(tmp_path / "out" / "case.safetensors").program
    assert Case.load(tmp_path / "out" / "original.safetensors").to_bytes() == start.to_bytes()


def test_a_case_that_passes_is_nothing_to_reduce(tmp_path, capsys):
    assert invoke(["reduce", "opinfo:add:float32:0", "--backend", BACKEND, "--out", str(tmp_path)]) == 2
    assert "opinfo:add:float32:0 passes on tests.mutants:swapped_sub" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["opinfo:sofmax:float32:0", "--backend", "eager"], 'did you mean "softmax"'),
        (["opinfo:sub:float32:0", "--backend", "egaer"], 'did you mean "eager"'),
        (["opinfo:sub:float32:0", "--backend", "eager", "--time", "soon"], 'bad time "soon"'),
        (["no-such-file", "--backend", "eager"], '"no-such-file" is neither a file nor a case id'),
        (["opinfo:sub:float32:0", "--backend", "eager", "--out", "/dev/null/x"], "cannot write to /dev/null/x"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys, tmp_path):
    assert invoke(["reduce", *arguments]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_hostile_case_file_is_refused(tmp_path, capsys):
    (tmp_path / "bad").write_bytes(b"\xff" * 100)
    assert invoke(["reduce", str(tmp_path / "bad"), "--backend", "eager"]) == 2
    assert "truncated or not a case file" in capsys.readouterr().err


@pytest.mark.torture
def test_a_reduction_that_was_cut_off_goes_on_and_ends_where_it_would_have(tmp_path, capsys, monkeypatch):
    start = opinfo.case("sub", "float32", 3)
    start.save(tmp_path / "start.safetensors")
    command = ["reduce", str(tmp_path / "start.safetensors"), "--backend", BACKEND, "--out", str(tmp_path / "out")]
    write = progress.Progress.write

    def cut_off(self, case):
        write(self, case)
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.Progress, "write", cut_off)
    assert invoke(command) == 130
    so_far = Case.load(tmp_path / "out" / progress.FILE)
    assert sum(tensor.numel() for tensor in so_far.args) < sum(tensor.numel() for tensor in start.args)
    monkeypatch.setattr(progress.Progress, "write", write)
    monkeypatch.setattr("torchstone.reducers.write.confirm_script", lambda *_: ScriptRun(1, True, ""))
    capsys.readouterr()
    assert invoke([*command, "--jobs", "2"]) == 0
    streams = capsys.readouterr()
    assert f"going on from the case in {tmp_path / 'out' / progress.FILE}" in streams.err
    assert "elements  51 -> 2" in streams.out and "nothing more to take away, confirmed" in streams.out
    assert not (tmp_path / "out" / progress.FILE).exists()
    assert Case.load(tmp_path / "out" / "original.safetensors").to_bytes() == start.to_bytes()


def test_another_reduction_is_not_gone_on_with(tmp_path):
    start, other = opinfo.case("sub", "float32", 3), opinfo.case("sub", "float32", 4)
    progress.Progress(tmp_path, start, BACKEND).write(other)
    assert progress.Progress(tmp_path, start, BACKEND).read().to_bytes() == other.to_bytes()
    assert progress.Progress(tmp_path, start, "eager").read() is None
    assert progress.Progress(tmp_path, other, BACKEND).read() is None
    (tmp_path / progress.FILE).write_bytes(b"no case")
    assert progress.Progress(tmp_path, start, BACKEND).read() is None


@pytest.mark.torture
def test_a_case_of_before_that_does_not_fail_is_left():
    start = opinfo.case("sub", "float32", 3)
    passing = opinfo.case("add", "float32", 3)
    backend = load(BACKEND)
    found = reduce_case(start, BACKEND, judge=lambda case: run_case(case, backend), so_far=passing)
    assert [call.operator for call in found.case.program.calls] == ["sub"] and found.complete
