"""``torchstone reduce --all``: each bug of a run once, with a script that was seen to show it, and no more twice."""

from __future__ import annotations

import dataclasses
import json
import runpy
import traceback
from pathlib import Path

import pytest
import torch

from tests.conformance.repro.stand_ins import compiled_by_eager, compiled_with_memory, compiled_wrongly
from torchstone.cli import invoke
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.compiler_paths import PATHS
from torchstone.conformance.repro.compilers import find_compiler
from torchstone.conformance.repro.script import render_script
from torchstone.reducers.batch import Failure, _done, distinct_failures
from torchstone.reducers.failure import reduce_case
from torchstone.reducers.script_run import run_script, shows_failure
from torchstone.reducers.write import SCRIPT, SUMMARY

pytestmark = pytest.mark.usefixtures("fork_server")
BACKEND = "tests.mutants:swapped_sub"


def run_here(script: Path) -> tuple[int, str]:
    """Run a script in this process: exit code and stderr. What it says is on trial, not that Python starts."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception:
        return 1, traceback.format_exc()
    return 0, ""


def row(op: str, dtype: str, outcome: str, message: str, backend: str = "b") -> tuple[object, ...]:
    stage, kind = ("compare", "value") if outcome == "mismatch" else ("compile", "")
    case_id = f"opinfo:{op}:{dtype}:0"
    return (case_id, backend, "opinfo", op, dtype, "default", stage, outcome, kind, message, "{}", 0.1)


def test_an_error_is_known_by_its_message_a_wrong_number_and_a_crash_by_op_and_dtype():
    rows = [
        row("argmax", "float32", "error", "ValueError: cannot reduce 0 dims"),
        row("argmin", "int64", "error", "ValueError: cannot reduce 1 dims"),
        row("log10", "float32", "error", "LinkError: no symbol log10f"),
        row("tan", "float32", "mismatch", "output[0]: expected 1.0, got 2.0"),
        ("opinfo:tan:float32:1", *row("tan", "float32", "mismatch", "output[7]: expected 3.0, got 4.0")[1:]),
        row("tan", "bfloat16", "mismatch", "output[0]: expected 1.0, got 2.0"),
        row("mul", "uint8", "crash", "killed by signal 11"),
        row("add", "uint8", "crash", "killed by signal 11"),
        row("add", "float32", "pass", ""),
        row("sin", "float32", "unsupported", "no sin"),
        row("sub", "float32", "mismatch", "output[0]: expected 1.0, got 2.0", backend="other"),
    ]
    found = {failure.name.rpartition("-")[0]: failure for failure in distinct_failures(rows, "b")}
    assert set(found) == {
        "error-argmax-float32", "error-log10-float32", "mismatch-tan-float32", "mismatch-tan-bfloat16",
        "crash-mul-uint8", "crash-add-uint8",
    }  # fmt: skip
    assert found["error-argmax-float32"].cases == ("opinfo:argmax:float32:0", "opinfo:argmin:int64:0")
    assert found["mismatch-tan-float32"].cases == ("opinfo:tan:float32:0", "opinfo:tan:float32:1")


@pytest.mark.torture
def test_the_failures_of_a_run_become_scripts_that_show_them_and_are_not_made_twice(tmp_path, capsys):
    store, out = str(tmp_path / "store.sqlite"), tmp_path / "out"
    assert invoke(["run", "-b", BACKEND, "--op", "sub", "--limit", "3", "--jobs", "1", "--store", store]) == 1
    command = ["reduce", "--all", "-b", BACKEND, "--store", store, "--out", str(out), "--format", "json"]
    capsys.readouterr()
    assert invoke([*command, "--time", "20s"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["state"] == "shown" and told["failure"].startswith("mismatch-sub-float32-")
    (folder,) = out.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["reduced"]["largest_input"] == 1 and summary["script"]["code"] == 1
    written = (folder / SCRIPT).stat().st_mtime_ns
    assert invoke(command) == 0
    assert "(done before)" in capsys.readouterr().err
    assert (folder / SCRIPT).stat().st_mtime_ns == written
    assert invoke([*command, "--outcome", "crash", "--outcome", "timeout"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert invoke([*command, "--outcome", "mismatch"]) == 0
    assert [row["failure"] for row in json.loads(capsys.readouterr().out)] == [told["failure"]]
    assert invoke([*command, "--outcome", "pass"]) == 2
    assert "what can be reduced" in capsys.readouterr().err


TOLD = {
    "cases": [],
    "confirmed": True,
    "message": "",
    "reduced": {"program": [], "dtypes": []},
    "script": {"shows": True},
    "signature": dict.fromkeys(("stage", "outcome", "kind", "error", "message"), ""),
    "trials": 1,
    "seconds": 0.5,
}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((json.dumps(TOLD | {key: "x" if key != "message" else 1}), key) for key in TOLD),
        (json.dumps(TOLD | {"script": {"shows": "yes"}}), "script.shows"),
        (json.dumps(TOLD | {"signature": {"stage": [1]}}), "signature.stage"),
        (json.dumps(TOLD | {"reduced": {"program": [], "dtypes": None}}), "reduced.dtypes"),
        ("[1]", "cases"),
        ("[" * 100_000, "cases"),
    ],
)
def test_a_summary_of_somebody_elses_is_no_summary(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / SUMMARY).write_text(json.dumps(TOLD))
    assert _done(tmp_path) == TOLD
    (tmp_path / SUMMARY).write_text(text)
    with pytest.raises(InputError, match=f"summary of a reduction: {place}") as caught:
        _done(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", '{"cases": [', "\0", json.dumps({"not_reduced": "no case is stored"})])
def test_what_was_not_finished_is_done_again(tmp_path: Path, text: str) -> None:
    assert _done(tmp_path) is None
    (tmp_path / SUMMARY).write_text(text)
    assert _done(tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all"], "give the --backend"),
        (["-b", "eager"], "give a case, or --all"),
        (["x", "--all", "-b", "eager"], "give a case, or --all"),
        (["--all", "-b", "eager", "--keep", "kept"], "--keep is for one case"),
        (["x", "-b", "eager", "--outcome", "crash"], "--outcome is for --all"),
    ],
)
def test_what_does_not_go_together_is_said(arguments, message, capsys):
    assert invoke(["reduce", *arguments]) == 2
    assert message in capsys.readouterr().err


def fails(outcome: Outcome, message: str) -> Verdict:
    return Verdict("c", "b", "opinfo", "add", "float32", "default", Stage.RUN, outcome, message=message)


def test_a_script_that_fails_otherwise_does_not_show_the_failure():
    missing = "ModuleNotFoundError: No module named 'tvm'"
    differs = "AssertionError: Tensor-likes are not close!"
    error = fails(Outcome.ERROR, "ValueError: Cannot reduce a scalar")
    assert shows_failure(fails(Outcome.MISMATCH, "output: …"), differs)
    assert not shows_failure(fails(Outcome.MISMATCH, "output: …"), missing)
    assert shows_failure(error, "Traceback …\nValueError: Cannot reduce a scalar")
    assert not shows_failure(error, missing) and not shows_failure(error, differs)
    asserts = fails(Outcome.ERROR, "AssertionError: Cannot detect fake_mode.")  # the compiler's own
    assert shows_failure(asserts, "Traceback …\nAssertionError: Cannot detect fake_mode.")
    assert not shows_failure(asserts, differs)
    assert shows_failure(fails(Outcome.CRASH, "killed by SIGSEGV"), "killed by signal 11")
    assert not shows_failure(fails(Outcome.CRASH, "killed by SIGSEGV"), missing)
    assert shows_failure(fails(Outcome.OOM, "resident memory …"), "python exception: std::bad_alloc")
    assert not shows_failure(fails(Outcome.TIMEOUT, "after 60 s"), "python exception: std::bad_alloc")


def test_a_script_that_finds_another_kind_of_wrong_number_does_not_either():
    evidence = {"expected": 1.5, "actual": "nan"}
    lost = dataclasses.replace(fails(Outcome.MISMATCH, "output: …"), kind=Kind.VALUE, evidence=evidence)
    assert shows_failure(lost, "wrong value: output[3]: expected 2.5, got nan, float64 2.5")
    assert not shows_failure(lost, "wrong value: output[3]: expected 2.5, got 2.75, float64 2.5, 7 ULPs off")
    assert not shows_failure(lost, "wrong dtype: output: expected torch.float32, got torch.float64")


def test_a_distribution_is_of_no_one_number():
    evidence = {"expected": [-3.0, 0.0, 3.0], "actual": [1e300, 1e300, 1e300]}
    drawn = dataclasses.replace(fails(Outcome.MISMATCH, "the same"), kind=Kind.DISTRIBUTION, evidence=evidence)
    assert shows_failure(drawn, "wrong distribution: mean of all numbers: expected 0.02, got inf")
    assert not shows_failure(drawn, "wrong value: output[3]: expected 0.02, got inf")


@pytest.mark.torture
def test_the_script_of_a_compiler_that_dies_survives_it(tmp_path: Path):
    call = Call("torch.abs", (Ref("x0"),), {}, "v0")
    case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.ones(2)}, "test", "abs", "float32")
    verdict = fails(Outcome.CRASH, "killed by SIGSEGV")
    script = tmp_path / SCRIPT
    dies = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
    script.write_text(render_script(case, "eager", verdict).replace("got = program(*inputs)", dies))
    assert run_script(script, verdict).shows


@pytest.mark.torture
def test_a_script_leaves_nothing_in_inductors_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "the user's"))  # PyTorch itself sets it
    script = tmp_path / SCRIPT
    tell = "from torch._inductor.runtime.cache_dir_utils import cache_dir\nraise SystemExit(cache_dir())"
    script.write_text(tell)
    ran = run_script(script, fails(Outcome.ERROR, "wrong"))
    assert "torchstone-script-" in ran.tail and "the user's" not in ran.tail


def test_scripts_of_third_parties_use_nothing_of_torchstones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    call = Call("torch.Tensor.add_", (Ref("x0"), 1), {}, "v0")
    case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.ones(2)}, "test", "add_", "float32")
    for backend in ("tvm", "xla", "openvino", "onnxruntime", "executorch", "iree"):
        text = render_script(case, backend, fails(Outcome.MISMATCH, "output: …"))
        assert "torchstone" not in text and "x0 = x0.clone()" in text
        compile(text, "reproducer.py", "exec")
    # The path itself is eager's here: what is left of the script finds nothing wrong, and then something.
    for path, code in ((compiled_by_eager, 0), (compiled_wrongly, 1)):
        monkeypatch.setitem(PATHS, "tvm", path)
        (tmp_path / SCRIPT).write_text(render_script(case, "tvm"))
        found, told = run_here(tmp_path / SCRIPT)
        assert found == code, told


def test_a_script_calls_again_where_a_later_call_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Results that add up from call to call, in memory that is cleared once."""
    call = Call("torch.abs", (Ref("x0"),), {}, "v0")
    case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.ones(2)}, "test", "abs", "float32")
    once = fails(Outcome.MISMATCH, "output: …")
    again = dataclasses.replace(once, kind=Kind.NONDETERMINISTIC)
    adds_up = "(lambda kept: lambda *args: kept.append(args[0].abs()) or sum(kept))([])"
    monkeypatch.setitem(PATHS, "iree", compiled_with_memory)
    for backend in ("iree", "linalg"):
        for verdict, code in ((once, 0), (again, 1)):
            text = render_script(case, backend, verdict)
            compiled = find_compiler(backend, case)
            made = [compiled.compile(args) for args in ("inputs", "inputs()")]
            assert backend == "iree" or sum(map(text.count, made)) == 1
            for expression in made:
                text = text.replace(expression, adds_up)
            (tmp_path / SCRIPT).write_text(text)
            found, told = run_here(tmp_path / SCRIPT)
            assert found == code, (backend, told)
            assert shows_failure(verdict, told) is bool(code)


def test_a_failure_that_is_seen_once_is_said_to_be_unstable():
    call = Call("torch.abs", (Ref("x0"),), {}, "v0")
    case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.ones(2)}, "test", "abs", "float32")
    told = iter([fails(Outcome.MISMATCH, "output: …"), fails(Outcome.PASS, "")])
    with pytest.raises(InputError, match="does not fail on b in a stable way: mismatch"):
        reduce_case(case, "b", judge=lambda _: next(told))


def test_what_does_not_fail_any_more_is_not_reduced():
    call = Call("torch.abs", (Ref("x0"),), {}, "v0")
    case = Case(Program(("x0",), (call,), Ref("v0")), {"x0": torch.ones(2)}, "test", "abs", "float32")
    for outcome, message in ((Outcome.PASS, "passes on b"), (Outcome.UNSUPPORTED, "unsupported on b, .*: no kernel")):
        with pytest.raises(InputError, match=message):
            reduce_case(case, "b", judge=lambda _, outcome=outcome: fails(outcome, "no kernel"))


def test_a_failure_has_a_name_that_is_a_folders():
    verdict = fails(Outcome.ERROR, "a/b: c")
    (failure,) = distinct_failures([row("linalg/../x", "float32", "error", verdict.message)], "b")
    assert isinstance(failure, Failure) and "/" not in failure.name
