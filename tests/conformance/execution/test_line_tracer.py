"""Which lines ran: each is told once, of the folder that is watched alone."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.execution.line_tracer import CALLS, LineTracer, Ran, fingerprint, functions_of_files
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import progress_mark
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import Trial
from torchstone.conformance.runner.sandbox import Sandbox

SOURCE = """
def sign(x):
    if x < 0:
        return -1
    if x == 0:
        raise ValueError("zero")
    return 1
"""


@pytest.fixture
def traced(tmp_path: Path) -> tuple[ModuleType, LineTracer]:
    path = tmp_path / "watched" / "signs.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("signs", path)
    module = importlib.util.module_from_spec(spec)
    tracer = LineTracer(str(tmp_path), ["watched"])
    tracer.run(spec.loader.exec_module, module)
    assert tracer.next_case().lines == [], "nothing runs but what is imported"
    return module, tracer


def test_a_line_is_told_with_the_case_that_ran_it_first(traced):
    module, tracer = traced
    tracer.run(module.sign, 3)
    assert tracer.next_case().lines == ["watched/signs.py:3", "watched/signs.py:5", "watched/signs.py:7"]
    tracer.run(module.sign, 4)
    assert tracer.next_case().lines == []
    tracer.run(module.sign, 0)
    assert tracer.next_case().lines == ["watched/signs.py:6"], "what raises ran, too"
    assert tracer.lines() == {"watched/signs.py": {3, 5, 6, 7}}


def test_a_function_is_looked_at_again_in_each_case(traced):
    module, tracer = traced
    for _ in range(CALLS + 1):
        tracer.run(module.sign, 3)
    tracer.run(module.sign, -3)
    assert "watched/signs.py:4" not in tracer.next_case().lines, "enough calls of one case"
    tracer.run(module.sign, -3)
    assert tracer.next_case().lines == ["watched/signs.py:4"]


def test_other_folders_are_not_watched_and_a_trace_that_was_there_stays(traced, tmp_path):
    module, _ = traced
    other = LineTracer(str(tmp_path), ["elsewhere"])
    before = sys.gettrace()
    other.run(module.sign, 3)
    assert other.next_case().lines == [] and sys.gettrace() is before


def program(target: str) -> tuple[Program, tuple[torch.Tensor, ...]]:
    return Program(("x",), (Call(target, (Ref("x"),), {}, "v"),), Ref("v")), (torch.ones(3),)


def test_each_of_many_programs_has_its_own_lines_and_so_has_one_that_is_refused():
    sandbox = Sandbox(load("linalg"), progress_mark.create_mark(), watch={})
    first, again, _, refused = sandbox.compile_many(
        [program("torch.sin"), program("torch.sin"), program("torch.cumsum"), program("torch.nonzero_static")]
    )
    assert len(first.ran.lines) > 500 and len(again.ran.lines) < 50
    assert len(first.ran.functions) > len(first.ran.called) > 100, (
        "those that are there besides are told with the first"
    )
    assert isinstance(refused, Exception) and isinstance(refused.ran.lines, list)
    sandbox.begin(first)
    assert sandbox.ran.lines == first.ran.lines
    sandbox.begin()
    sandbox.compile(*program("torch.erfinv"))
    assert set(sandbox.ran.lines) - set(first.ran.lines)


def test_without_being_asked_nothing_is_watched():
    sandbox = Sandbox(load("linalg"), progress_mark.create_mark())
    (one,) = sandbox.compile_many([program("torch.sin")])
    assert one.ran.lines == [] == sandbox.ran.lines


def test_a_function_is_the_same_wherever_it_stands_and_whatever_process_asks():
    def compiled(text: str) -> dict[str, str]:
        spaces: dict[str, Any] = {}
        exec(compile(text, "f.py", "exec"), spaces)  # noqa: S102
        return {name: fingerprint(spaces[name].__code__) for name in "fg" if name in spaces}

    text = "def f(x):\n    return [y for y in x if y in {'a', 'b'}]\n"
    first = compiled(text)["f"]
    assert compiled("\n\n" + text)["f"] == compiled(text + "def g(): pass\n")["f"] == first
    assert compiled("# new\n" + text.replace("return", "\n    # what is in both\n    return"))["f"] == first
    for old, new in (("'b'", "'c'"), (" in x", " in x[:-1]"), ("if y", "if not y")):
        assert compiled(text.replace(old, new))["f"] != first
    script = "from torchstone.conformance.execution.line_tracer import fingerprint\n"
    script += f"exec({text!r})\nprint(fingerprint(f.__code__))"
    runs = [
        subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": str(seed)}, text=True,
                       capture_output=True, check=True).stdout.strip()
        for seed in (1, 2)
    ]  # fmt: skip
    assert runs[0] == runs[1]


def test_a_case_that_calls_what_has_changed_is_told(traced, tmp_path):
    module, tracer = traced
    tracer.run(module.sign, 3)
    functions = tracer.next_case().functions
    assert list(functions) == ["watched/signs.py:sign"]
    for known, changed in (
        (functions, []),
        ({}, []),
        ({"watched/signs.py:sign": ["other"]}, ["watched/signs.py:sign"]),
        ({"watched/signs.py:other": ["other"]}, ["watched/signs.py:sign"]),
    ):
        later = LineTracer(str(tmp_path), ["watched"], known)
        for _ in range(2):
            later.run(module.sign, 3)
            assert later.next_case().changed == changed
        assert later.next_case().changed == [], "which calls nothing"


def test_functions_that_are_there_are_met_before_anything_calls_them(traced, tmp_path):
    _, tracer = traced
    path = tmp_path / "watched" / "more.py"
    path.write_text("def outer():\n    def inner():\n        return 1\n    return inner\nTABLE = [lambda: 2]\n")
    spec = importlib.util.spec_from_file_location("more", path)
    more = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(more)
    tracer.meet_living()
    ran = tracer.next_case()
    names = ["more.py:<lambda>", "more.py:outer", "more.py:outer.<locals>.inner", "signs.py:sign"]
    assert sorted(ran.functions) == [f"watched/{name}" for name in names]
    assert not (ran.lines or ran.changed or ran.called), "nothing has run"
    tracer.run(more.outer())
    ran = tracer.next_case()
    assert ran.called == ["watched/more.py:outer.<locals>.inner"] and ran.functions == {}, "which was met"
    assert "called" in ran.to_json()
    tracer.run(more.outer())
    again = tracer.next_case()
    assert again.called and "called" not in again.to_json(), "nothing new ran"

    later = LineTracer(str(tmp_path), ["watched"], ran.functions | {"watched/more.py:outer": ["other"]})
    later.meet_living()
    assert set(later.next_case().functions) == {f"watched/{name}" for name in names}


def test_functions_of_files_are_those_that_live_there_and_nothing_of_the_files_runs(traced, tmp_path):
    _, tracer = traced
    tracer.meet_living()
    living = tracer.next_case().functions
    folder = tmp_path / "watched"
    (folder / "runs.py").write_text("raise SystemExit\nclass C:\n    def f(self):\n        return [lambda: 1]\n")
    (folder / "broken.py").write_text("def (")
    (folder / "no_text.py").write_bytes(b"\xff\xfe\x00")
    found = functions_of_files(str(tmp_path))
    assert set(found) - set(living) == {"watched/runs.py:C.f", "watched/runs.py:C.f.<locals>.<lambda>"}
    assert {name: found[name] for name in living} == living, "by the same hash"


def test_what_a_worker_says_is_read_whatever_it_is():
    ran = Ran(["a.py:1"], {"a.py:f": ["1"]}, ["a.py:f"])
    assert Ran.from_json(json.loads(json.dumps(ran.to_json()))) == ran
    for data in (None, [], {"lines": 3, "functions": [1], "changed": {}}):
        assert Ran.from_json(data) == Ran()
    ran.add(Ran(["a.py:2"], {"a.py:f": ["2"]}, ["a.py:f", "a.py:g"]))
    assert ran == Ran(["a.py:1", "a.py:2"], {"a.py:f": ["1", "2"]}, ["a.py:f", "a.py:g"])


@pytest.mark.torture
@pytest.mark.usefixtures("fork_server")
def test_what_is_not_to_be_traced_tells_no_lines() -> None:
    """The functions that are there are told all the same."""
    cases = [
        Case(program(target)[0], {"x": torch.ones(3)}, "test", target, "float32")
        for target in ("torch.sin", "torch.cos")
    ]
    told: dict[str, Ran] = {}
    with Pool("linalg", watch=lambda case, ran: told.update({case.op: ran})) as pool:
        for case, traced in zip(cases, (False, True), strict=True):
            (result,) = pool.results([Trial(case, traced=traced)])
            assert result.verdict.outcome is Outcome.PASS
    assert not told["torch.sin"].lines and told["torch.sin"].functions
    assert len(told["torch.cos"].lines) > 500
