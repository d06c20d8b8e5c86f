"""Which lines ran: each is told once, of the folder that is watched alone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.execution.line_tracer import CALLS, LineTracer
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import progress_mark
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
    assert tracer.next_case() == [], "nothing runs but what is imported"
    return module, tracer


def test_a_line_is_told_with_the_case_that_ran_it_first(traced):
    module, tracer = traced
    tracer.run(module.sign, 3)
    assert tracer.next_case() == ["watched/signs.py:3", "watched/signs.py:5", "watched/signs.py:7"]
    tracer.run(module.sign, 4)
    assert tracer.next_case() == []
    tracer.run(module.sign, 0)
    assert tracer.next_case() == ["watched/signs.py:6"], "what raises ran, too"
    assert tracer.lines() == {"watched/signs.py": {3, 5, 6, 7}}


def test_a_function_is_looked_at_again_in_each_case(traced):
    module, tracer = traced
    for _ in range(CALLS + 1):
        tracer.run(module.sign, 3)
    tracer.run(module.sign, -3)
    assert "watched/signs.py:4" not in tracer.next_case(), "enough calls of one case"
    tracer.run(module.sign, -3)
    assert tracer.next_case() == ["watched/signs.py:4"]


def test_other_folders_are_not_watched_and_a_trace_that_was_there_stays(traced, tmp_path):
    module, _ = traced
    other = LineTracer(str(tmp_path), ["elsewhere"])
    before = sys.gettrace()
    other.run(module.sign, 3)
    assert other.next_case() == [] and sys.gettrace() is before


def program(target: str) -> tuple[Program, tuple[torch.Tensor, ...]]:
    return Program(("x",), (Call(target, (Ref("x"),), {}, "v"),), Ref("v")), (torch.ones(3),)


def test_each_of_many_programs_has_its_own_lines_and_so_has_one_that_is_refused():
    sandbox = Sandbox(load("linalg"), progress_mark.create_mark(), watch=True)
    first, again, _, refused = sandbox.compile_many(
        [program("torch.sin"), program("torch.sin"), program("torch.cumsum"), program("torch.nonzero_static")]
    )
    assert len(first.new_lines) > 500 and len(again.new_lines) < 50
    assert isinstance(refused, Exception) and isinstance(refused.new_lines, list)
    sandbox.begin(first)
    assert sandbox.new_lines == first.new_lines
    sandbox.begin()
    sandbox.compile(*program("torch.erfinv"))
    assert set(sandbox.new_lines) - set(first.new_lines)


def test_without_being_asked_nothing_is_watched():
    sandbox = Sandbox(load("linalg"), progress_mark.create_mark())
    (one,) = sandbox.compile_many([program("torch.sin")])
    assert one.new_lines == [] == sandbox.new_lines
