"""What a script looks at: the place that the verdict names, as the verdict did. One line and exit code 1, or 0."""

from __future__ import annotations

import mmap
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.backends.registry import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.compiler_paths import PATHS
from torchstone.conformance.repro.script import render_script

from .stand_ins import compiled_by_eager, compiled_wrongly

NAN = float("nan")


class Bent:
    """Eager, with something done to what it gives and to what it was given."""

    def __init__(self, bend: Callable[..., Any]) -> None:
        self.name, self.bend = "bent", bend

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def compile(self, fn: Any, args: Any) -> Any:
        return lambda *tensors: self.bend(fn(*tensors), tensors)


bent = Bent(lambda result, args: result)
"""The backend that scripts load: a test gives it what it does."""


def _one(target: str, x: Tensor, *args: Any) -> Case:
    call = Call(target, (Ref("x0"), *args), {}, "v0")
    return Case(Program(("x0",), (call,), Ref("v0")), {"x0": x}, "test", target, "float32")


def _put(index: Any, value: Any) -> Callable[..., Any]:
    def bend(result: Any, args: Any) -> Any:
        result = result.clone()
        result[index] = value
        return result

    return bend


def _topk(result: Any, args: Any) -> Any:
    return result[0], torch.zeros_like(result[1])


def _write(result: Any, args: Any) -> Any:
    args[0][1] = 9.0
    return result


SMALL = torch.tensor([1.5, -2.0, 3.25])
SHOWN = {
    "number": (_one("torch.exp", SMALL), _put(2, 7.0), "value: output[2]: expected 25.7903", "ULPs off"),
    "nan": (_one("torch.exp", SMALL), _put(0, NAN), "value: output[0]: expected 4.48", "got nan, float64 4.48"),
    "lost nan": (
        _one("torch.exp", torch.tensor([NAN, 1.0])),
        _put(0, 1.0),
        "value: output[0]: expected nan, got 1.0, float64 nan",
        "",
    ),
    "sign of zero": (
        _one("torch.neg", torch.tensor([0.0, 1.0])),
        _put(0, 0.0),
        "value: output[0]: expected -0.0, got 0.0, float64 -0.0",
        "",
    ),
    "integer": (
        _one("torch.neg", torch.tensor([2**60 + 1, 5])),
        _put(0, -(2**60)),
        f"value: output[0]: expected {-(2**60) - 1}, got {-(2**60)}",
        "",
    ),
    "a result of several": (
        _one("torch.topk", SMALL, 2),
        _topk,
        "value: output[1][0]: expected 2, got 0",
        "",
    ),
    "dtype": (
        _one("torch.exp", SMALL),
        lambda result, args: result.double(),
        "dtype: output: expected torch.float32, got torch.float64",
        "",
    ),
    "shape": (
        _one("torch.exp", SMALL),
        lambda result, args: result[:2],
        "shape: output: expected (3,), got (2,)",
        "",
    ),
    "structure": (_one("torch.exp", SMALL), lambda result, args: (result, result), "structure: output: ", ""),
    "stray write": (_one("torch.exp", SMALL), _write, "mutation: input[0][1]: expected -2.0, got 9.0", ""),
    "lost write": (
        _one("torch.Tensor.add_", SMALL, 1),
        lambda result, args: (args[0].sub_(1), result)[1] + 1,
        "mutation: input[0]",
        "",
    ),
    "aliasing": (
        _one("torch.Tensor.clone", SMALL),
        lambda result, args: args[0],
        "aliasing: output shares memory with input[0]",
        "",
    ),
}


@pytest.mark.few(9)
@pytest.mark.parametrize("name", SHOWN)
def test_a_script_shows_what_the_verdict_names_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case, bend, head, more = SHOWN[name]
    monkeypatch.setattr(bent, "bend", bend)
    verdict = run_case(case, bent)
    assert verdict.outcome is Outcome.MISMATCH and head.startswith(f"{verdict.kind}: "), verdict.message
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", verdict))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(script))
    assert str(caught.value.code).startswith(f"wrong {head}") and more in str(caught.value.code)
    monkeypatch.setattr(bent, "bend", lambda result, args: result)
    runpy.run_path(str(script))
    assert capsys.readouterr().out.startswith("right: ")


def test_a_script_holds_the_number_to_the_verdicts_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a few ULPs is right, as in a verdict; and another element is another finding."""
    case = _one("torch.exp", SMALL)
    monkeypatch.setattr(bent, "bend", _put(2, 7.0))
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", run_case(case, bent)))
    for bend in (_put(2, SMALL[2].exp() * (1 + 2**-22)), _put(1, 7.0)):
        monkeypatch.setattr(bent, "bend", bend)
        runpy.run_path(str(script))
    monkeypatch.setattr(bent, "bend", _put(2, SMALL[2].exp() * (1 + 2**-18)))
    with pytest.raises(SystemExit, match=r"wrong value: output\[2\]: .* 52 ULPs off"):
        runpy.run_path(str(script))


def test_what_eager_refuses_and_a_backend_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _one("torch.mm", SMALL, Ref("x0")).replace(tags=("refused",))

    class Takes(Bent):
        def compile(self, fn: Any, args: Any) -> Any:
            return lambda *tensors: tensors[0]

    verdict = run_case(case, Takes(bent.bend))
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", verdict))
    runpy.run_path(str(script))
    monkeypatch.setattr(bent, "compile", Takes(bent.bend).compile, raising=False)
    with pytest.raises(SystemExit, match="wrong accepted: gives tensor"):
        runpy.run_path(str(script))


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_a_script_for_torch_compile_is_short(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _one("torch.exp", SMALL)
    monkeypatch.setattr(bent, "bend", _put(2, 7.0))
    text = render_script(case, backend, run_case(case, bent))
    assert len(text.splitlines()) < 30 and "torchstone" not in text and text.count("import ") == 1


def test_a_script_counts_what_calls_leave_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, kept = _one("torch.exp", SMALL), []
    monkeypatch.setattr(bent, "bend", _put(0, 7.0))
    verdict = replace(run_case(case, bent), kind=Kind.LEAK)
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", verdict))
    monkeypatch.setattr(bent, "bend", lambda result, args: result)
    runpy.run_path(str(script))

    def keep(result: Any, args: Any) -> Any:
        """Memory of its own from the system: what the tests before have freed would be taken first."""
        kept.append(mmap.mmap(-1, 2**21))
        kept[-1].write(b"1" * 2**21)
        return result

    monkeypatch.setattr(bent, "bend", keep)
    with pytest.raises(SystemExit, match=r"wrong leak: 2\.\d MB more with each call"):
        runpy.run_path(str(script))


DRAWN: dict[str, tuple[Case, Callable[[], Tensor], str]] = {
    "another mean": (
        _one("torch.bernoulli", torch.full((16,), 0.5)),
        lambda: torch.bernoulli(torch.full((16,), 0.7)),
        r"mean of all numbers, in the mean of all runs: expected 0\.[45]\d*, got 0\.[67]",
    ),
    "with replacement": (  # each number as often as without
        _one("torch.multinomial", torch.ones(4), 4),
        lambda: torch.randint(0, 4, (4,)),
        r"number, in the mean of all runs: expected 0, got 0\.",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DRAWN)
def test_a_script_compares_distributions_of_random_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, wrong, says = DRAWN[name]
    monkeypatch.setattr(bent, "bend", lambda result, args: wrong())
    verdict = run_case(case, bent)
    assert verdict.kind == Kind.DISTRIBUTION
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", verdict))
    with pytest.raises(SystemExit, match=f"wrong distribution: .*{says}"):
        runpy.run_path(str(script))
    monkeypatch.setattr(bent, "bend", lambda result, args: result.flip(0))
    runpy.run_path(str(script))


def test_a_script_says_of_numbers_that_no_seed_changes_that_they_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _one("torch.bernoulli", torch.full((16,), 0.5))
    monkeypatch.setattr(bent, "bend", lambda result, args: torch.zeros(16))
    script = tmp_path / "script.py"
    script.write_text(render_script(case, f"{__name__}:bent", run_case(case, bent)))
    with pytest.raises(SystemExit, match="wrong distribution: gives the same numbers whatever the seed"):
        runpy.run_path(str(script))
    monkeypatch.setattr(bent, "bend", lambda result, args: result.flip(0))
    runpy.run_path(str(script))


def graph_compiler(graph: torch.fx.GraphModule, example: Any) -> Callable[..., Any]:
    """A backend of ``torch.compile``, which gives one more."""
    return lambda *args: [result + 1 for result in graph(*args)]


def test_a_script_for_a_users_backend_of_torch_compile_imports_that_alone(tmp_path: Path) -> None:
    name, case = f"{__name__}:graph_compiler", _one("torch.exp", SMALL)
    text = render_script(case, name, run_case(case, load(name)))
    assert (
        f"torch.compile(program, fullgraph=True, backend={__name__}.graph_compiler)" in text
        and "import torchstone" not in text
    )
    assert len(text.splitlines()) < 30 and "from torchstone" not in text
    (tmp_path / "script.py").write_text(text)
    with pytest.raises(SystemExit, match="wrong value: output"):
        runpy.run_path(str(tmp_path / "script.py"))
    assert "backend=" not in render_script(case, name), "what has not run is not imported"


@pytest.mark.few(1)
@pytest.mark.parametrize(("side", "at"), [("output", 0), ("output", 1), ("input", 0)])
def test_a_script_for_an_exported_program_finds_the_place_in_a_flat_list(
    side: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program writes to is among its results there, once, though eager returns it too."""
    calls = (
        Call("torch.Tensor.add_", (Ref("x0"), 1), {}, "v0"),
        Call("torch.sum", (Ref("x0"),), {}, "v1"),
    )
    program = Program(("x0",), calls, (Ref("v0"), Ref("v1")))
    case = Case(program, {"x0": SMALL}, "test", "add_", "float32")

    def bend(result: Any, args: Any) -> Any:
        wrong = [*result, *args]
        wrong[at if side == "output" else 2].add_(1)
        return result

    verdict = run_case(case, Bent(bend))
    for path, right in ((compiled_by_eager, True), (compiled_wrongly, False)):
        monkeypatch.setitem(PATHS, "tvm", path)
        (tmp_path / "script.py").write_text(render_script(case, "tvm", verdict))
        if right:
            runpy.run_path(str(tmp_path / "script.py"))
        else:
            with pytest.raises(SystemExit, match=f"wrong {verdict.kind}: "):
                runpy.run_path(str(tmp_path / "script.py"))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export's own
@pytest.mark.parametrize(
    "backend",
    [
        "torch-mlir-tosa",
        pytest.param("torch-mlir-linalg", marks=pytest.mark.torture),
        pytest.param("torch-mlir-stablehlo", marks=pytest.mark.torture),
    ],
)
def test_torch_mlirs_scripts_run_what_it_lowers_to_by_itself(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch_mlir")
    calls = (
        Call("torch.Tensor.mul_", (Ref("x0"), 2), {}, "v0"),
        Call("torch.expm1", (Ref("x0"),), {}, "v1"),
        Call("torch.gt", (Ref("v1"), 0.5), {}, "v2"),
        Call("torch.sum", (Ref("x1"), (0,)), {}, "v3"),
    )
    inputs = {"x0": torch.tensor([[1e-7, 2.0]]).t(), "x1": torch.arange(6).reshape(2, 3)}
    program = Program(("x0", "x1"), calls, (Ref("v1"), Ref("v2"), Ref("v3")))
    case = Case(program, inputs, "test", "expm1", "float32")

    def bend(result: Any, args: Any) -> Any:
        result[2][1] += 1
        return result

    text = render_script(case, backend, run_case(case, Bent(bend)))
    assert "torchstone" not in text
    (tmp_path / "script.py").write_text(text)
    runpy.run_path(str(tmp_path / "script.py"))
    out = capfd.readouterr().out
    assert "func.func @main" in out and out.rstrip().endswith("right: output[2][1]: expected 5, got 5, float64 5")
