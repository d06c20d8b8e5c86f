"""Scripts of programs that are compiled with sizes free: they call them at the sizes that the verdict names."""

from __future__ import annotations

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.conformance.backends import load
from torchstone.conformance.execution.later_calls import CALLS, PROGRAM, PROGRAM_TURN, TURNS, VALUES, turn_of
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.bundle import bundle
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.script import render_script
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.variants.dynamic import BATCH, DYNAMIC, PART, SIZES, asked
from torchstone.conformance.variants.support import together

BACKENDS = Path(__file__).with_name("sized.py")


@pytest.fixture
def backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(BACKENDS, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sized", raising=False)
    return tmp_path


def add(variant: str = DYNAMIC, **more: Any) -> Case:
    x = torch.linspace(-1, 1, 6).reshape(3, 2)
    program = Program(("x", "y"), (Call("torch.add", (Ref("x"), Ref("y")), {}, "z"),), Ref("z"))
    return Case(program, {"x": x, "y": x.exp()}, "test", "add", "float32", variant=variant, **more)


def sin(variant: str = DYNAMIC) -> Case:
    program = Program(("x",), (Call("torch.sin", (Ref("x"),), {}, "y"),), Ref("y"))
    return Case(program, {"x": torch.linspace(1, 2, 4)}, "test", "sin", "float32", variant=variant)


def verdict_of(case: Case, name: str) -> Verdict:
    """Why the backend fails the case: as it reads in a store."""
    verdict = Verdict.from_json(run_case(case, load(f"sized:{name}")).to_json())
    assert verdict.failed, verdict
    return verdict


SHOWN = {
    "NoMoreRows": "wrong value: output[3",
    "FewestRows": "wrong accepted: ",
    "OffByOne": "wrong value: output[",
    "OneSize": "ValueError: no other number of rows",
    "FirstAnswer": "wrong later-call: output[",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("variant", [DYNAMIC, BATCH])
@pytest.mark.parametrize("name", SHOWN)
def test_a_script_shows_what_a_backend_gets_wrong_at_some_size_alone(
    name: str, variant: str, backends: Path, warm_python: Any
) -> None:
    case = add(variant)
    text = render_script(case, f"sized:{name}", verdict_of(case, name))
    for backend, code, said in ((name, 1, SHOWN[name]), ("Right", 0, "")):
        script = backends / "script.py"
        script.write_text(text.replace(f"sized:{name}", f"sized:{backend}"))
        done = warm_python.run(script, cwd=backends, environment={"PYTHONPATH": str(backends)})
        assert done.returncode == code and said in done.stderr, done.stderr


@pytest.mark.torture
@pytest.mark.parametrize(
    ("name", "case", "told"),
    [
        ("DiesAtOtherRows", together([sin(), add()], ["first", "second"]), {PART: 0, SIZES: [[5]]}),
        ("DiesAtTheThirdCall", add("default"), {CALLS: [VALUES]}),
    ],
)
def test_a_script_makes_the_call_that_a_backend_dies_of(
    name: str, case: Case, told: dict[str, Any], backends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No finding is left to tell of it: the worker tells as it goes."""
    monkeypatch.chdir(backends)
    with Pool(f"sized:{name}") as pool:
        verdict = Verdict.from_json(pool.verdict(case).to_json())
    assert verdict.message == "killed by SIGSEGV" and verdict.evidence | told == verdict.evidence
    script = backends / "script.py"
    script.write_text(render_script(case, f"sized:{name}", verdict))
    environment = {**os.environ, "PYTHONPATH": str(backends)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "killed by signal 11" in done.stderr


def test_a_failure_at_the_examples_own_sizes_is_shown_there(backends: Path) -> None:
    text = render_script(add(), "sized:OffByOne", verdict_of(add(), "OffByOne"))
    assert ".compile_dynamic(program, inputs, ((0, 1), (0, 1)))" in text and "example" not in text
    assert ".compile_dynamic(program, inputs, ((0,), (0,)))" in render_script(
        add(BATCH), "sized:OffByOne", verdict_of(add(BATCH), "OffByOne")
    )


@pytest.mark.usefixtures("backends")
def test_a_script_is_of_the_part_that_fails() -> None:
    """Each part is compiled by itself, and the verdict speaks of its results alone."""
    whole = together([sin(), add()], ["first", "second"])
    verdict = verdict_of(whole, "FewestRows")
    assert verdict.evidence[PART] == 1 and verdict.evidence[SIZES] == [[4, 2], [3, 2]]
    text = render_script(whole, "sized:FewestRows", verdict)
    assert "torch.add" in text and "torch.sin" not in text


@pytest.mark.usefixtures("backends")
def test_a_bundle_is_called_as_it_was() -> None:
    whole = bundle([add(), sin()])
    verdict = verdict_of(whole, "OneSize")
    found = asked(whole, verdict.evidence)
    assert found.example.args[0].shape == (3, 2) and found.dims == ((0, 1), (0, 1), (0,))
    assert [[*tensor.shape] for tensor in found.called.args] == verdict.evidence[SIZES] == [[4, 3], [4, 3], [5]]


@pytest.mark.parametrize("sizes", [None, [[4, 3]], [[4, 3], [4, 4]], {"0": 4}, "[4, 3]", [["os.abort()"] * 2] * 2])
def test_sizes_that_the_case_is_not_called_with_are_not_read_from_the_evidence(sizes: Any) -> None:
    case = add()
    assert asked(case, {SIZES: sizes, PART: 7}).called is case
    assert asked(case.replace(variant="default"), {SIZES: [[4, 3], [4, 3]]}).dims is None


SHAPES = "({{0: torch.export.Dim.{0}, 1: torch.export.Dim.{0}}}, {{0: torch.export.Dim.{0}, 1: torch.export.Dim.{0}}})"
COMPILED = {
    "eager": "compiled = program\n",
    "inductor": "compiled = torch.compile(program, fullgraph=True, dynamic=True)\n",
    "linalg": f'torchstone.compile(program, example(), target="linalg", dynamic_shapes={SHAPES.format("AUTO")})\n',
    "iree": f"compiled = compiled_by_iree(Module(), example(), {SHAPES.format('DYNAMIC')})\n",
    f"{__name__}:a_graph_compiler": "torch.compile(program, fullgraph=True, "
    f"backend={__name__}.a_graph_compiler, dynamic=True)\n",
}


def a_graph_compiler(graph: torch.fx.GraphModule, args: Any) -> Any:
    return graph.forward


@pytest.mark.few(1)
@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize("backend", COMPILED)
def test_a_compiler_is_reached_in_its_own_way(backend: str) -> None:
    verdict = verdict_of(add(), "NoMoreRows")
    text = render_script(add(), backend, verdict)
    ast.parse(text)
    assert f"{COMPILED[backend]}compiled(*example())\ngot = compiled(*inputs())\n" in text
    at_first = dataclasses.replace(verdict, evidence={k: v for k, v in verdict.evidence.items() if k != SIZES})
    text = render_script(add(), backend, at_first)
    ast.parse(text)
    assert "example" not in text and ("torch.export.Dim" in text or "dynamic=True" in text or backend == "eager")


@pytest.mark.usefixtures("backends")
def test_another_program_that_is_compiled_in_between_has_sizes_of_its_own() -> None:
    verdict = verdict_of(add(), "OneSize")
    verdict = dataclasses.replace(verdict, evidence=verdict.evidence | {CALLS: [PROGRAM]})
    (case,) = (case for case in (add(index=index) for index in range(TURNS)) if turn_of(case) == PROGRAM_TURN)
    text = render_script(case, "iree", verdict)
    ast.parse(text)
    assert "compiled_by_iree(AnotherModule(), another_program_inputs())(" in text


@pytest.mark.torture
@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize("backend", ["inductor", "linalg"])
@pytest.mark.parametrize("name", ["NoMoreRows", "FewestRows"])
def test_a_compiler_that_is_right_is_shown_to_be(name: str, backend: str, tmp_path: Path, warm_compiler: Any) -> None:
    if backend == "inductor" and not load("inductor").available().ok:
        pytest.skip(load("inductor").available().reason)
    (tmp_path / "script.py").write_text(render_script(add(), backend, verdict_of(add(), name)))
    done = warm_compiler.run(tmp_path / "script.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("right: "), done.stderr
