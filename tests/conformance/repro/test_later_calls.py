"""Scripts of failures that only a later call shows make the calls that lead to it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.execution.later_calls import MEMORY, OPTIMIZED, PROGRAM, STRIDES, VALUES
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.compiler_paths import PATHS
from torchstone.conformance.repro.script import render_script

from .stand_ins import compiled_for_dense_tensors


class Wrong:
    """A backend with a fault of its own in later calls."""

    def __init__(self, name: str, compiler: Callable[..., Any], optimizer: Callable[..., Any] | None = None) -> None:
        self.name, self.compile = name, compiler
        if optimizer is not None:
            self.compile_optimized = optimizer

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}


def _stored(fn: Any, args: tuple[Tensor, ...]) -> Any:
    result = fn(*args)
    return lambda *tensors: result.clone()


def _kept_by(key: Callable[[Tensor], int]) -> Callable[..., Any]:
    def compiler(fn: Any, args: tuple[Tensor, ...]) -> Any:
        known: dict[int, Any] = {}
        alive: list[Tensor] = []

        def run(x: Tensor) -> Any:
            alive.append(x)
            return known.setdefault(key(x), fn(x)).clone()

        return run

    return compiler


def _for_strides(fn: Any, args: tuple[Tensor, ...]) -> Any:
    stride = args[0].stride()
    return lambda x: fn(x.as_strided(x.shape, stride))


_code: list[Any] = []


def _one_at_a_time(fn: Any, args: tuple[Tensor, ...]) -> Any:
    _code[:] = [fn]
    return lambda x: _code[0](x)


def _itself(fn: Any, args: tuple[Tensor, ...]) -> Any:
    return fn


def _off_by_one(fn: Any, args: tuple[Tensor, ...]) -> Any:
    return lambda x: fn(x) + 1


BACKENDS = {
    VALUES: Wrong("stored", _stored),
    MEMORY: Wrong("by_id", _kept_by(id)),
    STRIDES: Wrong("for_strides", _for_strides),
    PROGRAM: Wrong("one_at_a_time", _one_at_a_time),
    OPTIMIZED: Wrong("optimizes_wrongly", _itself, _off_by_one),
}
stored, by_id, for_strides, one_at_a_time, optimizes_wrongly = BACKENDS.values()
right = Wrong("right", _itself, _itself)
by_address = Wrong("by_address", _kept_by(Tensor.data_ptr))


@pytest.mark.few(2)
@pytest.mark.parametrize("call", BACKENDS)
def test_a_script_makes_the_calls_up_to_the_one_that_fails(call: str, tmp_path: Path) -> None:
    program = Program(("x0",), (Call("torch.exp", (Ref("x0"),), {}, "r0"),), Ref("r0"))
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    verdicts = [
        (case, run_case(case, BACKENDS[call]))
        for case in (Case(program, {"x0": x}, "test", "exp", "float32", index=index) for index in (0, 1, 2))
    ]
    case, verdict = next((case, verdict) for case, verdict in verdicts if verdict.failed)
    assert verdict.evidence["calls"][-1] == call
    script = tmp_path / "script.py"
    text = render_script(case, f"{__name__}:{BACKENDS[call].name}", verdict)
    script.write_text(text)
    with pytest.raises(SystemExit, match="wrong later-call: output"):
        runpy.run_path(str(script))
    script.write_text(text.replace(f":{BACKENDS[call].name}", ":right"))
    runpy.run_path(str(script))


def test_a_script_of_our_compiler_compiles_optimized_code_alone() -> None:
    program = Program(("x0",), (Call("torch.exp", (Ref("x0"),), {}, "r0"),), Ref("r0"))
    case = Case(program, {"x0": torch.linspace(-1, 1, 3)}, "test", "exp", "float32", index=2)
    verdict = run_case(case, optimizes_wrongly)
    text = render_script(case, "linalg", verdict)
    assert text.count("compile(") == 1 and text.count("compiled(*given)") == 1
    assert 'compiled = torchstone.compile(program, inputs(), target="linalg", optimize=True)\n' in text


def test_a_script_calls_what_writes_before_it_asks_for_gradients_again(tmp_path: Path) -> None:
    calls = (
        Call("torch.Tensor.mul_", (Ref("x0"), 2), {}, "r0"),  # eager refuses it of a leaf that needs a gradient
        Call("torch.Tensor.requires_grad_", (Ref("r0"),), {}, "r1"),
        Call("torch.exp", (Ref("r1"),), {}, "r2"),
    )
    case = Case(Program(("x0",), calls, Ref("r2")), {"x0": torch.ones(3)}, "test", "exp", "float32", index=2)
    verdict = run_case(case, by_address)
    assert verdict.evidence["calls"] == [VALUES, MEMORY]
    (tmp_path / "script.py").write_text(render_script(case, f"{__name__}:by_address", verdict))
    with pytest.raises(SystemExit, match="wrong later-call: output"):
        runpy.run_path(str(tmp_path / "script.py"))


def test_a_script_through_a_compilers_own_path_makes_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In row-major memory, as a path wants it."""
    monkeypatch.setitem(PATHS, "tvm", compiled_for_dense_tensors)
    program = Program(("x0",), (Call("torch.exp", (Ref("x0"),), {}, "r0"),), Ref("r0"))
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for index in (0, 1):
        case = Case(program, {"x0": x}, "test", "exp", "float32", index=index)
        for backend in (stored, by_id, for_strides, one_at_a_time):
            verdict = run_case(case, backend)
            if not verdict.failed:
                continue
            text = render_script(case, "tvm", verdict)
            compile(text, "script.py", "exec")
            (tmp_path / "script.py").write_text(text)
            runpy.run_path(str(tmp_path / "script.py"))
            calls = [line for line in text.splitlines() if line.endswith("compiled(*given)")]
            assert len(calls) == 2 + len(verdict.evidence["calls"])
