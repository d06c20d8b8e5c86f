"""The paths of compilers that scripts carry: their text is what they do, whatever of it a case needs."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance import backends
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.compiler_paths import OUTPUT_TYPES, PATHS, compiled_by_torch_mlir
from torchstone.conformance.repro.path_text import Needs, path_text
from torchstone.conformance.repro.script import render_script

from .stand_ins import compiled_by_eager, compiled_wrongly
from .test_check import Bent

ALL = {**PATHS, **dict.fromkeys(OUTPUT_TYPES, compiled_by_torch_mlir)}
OF_SCRIPTS = {"inputs", "expected", "got", "given", "copies", "compiled", "Module", "e", "g", "exact", "told", "torch"}
DTYPES = [
    (),
    (torch.float32,),
    (torch.bool, torch.complex64),
    (torch.bfloat16,),
    (torch.bfloat16, torch.bool),
    (torch.uint8, torch.int64),
]


def every_need(backend: str) -> list[Needs]:
    """What cases of all kinds need of a backend's path."""
    output_type = OUTPUT_TYPES.get(backend, "")
    return [
        Needs.of(inputs, results, lowering_alone=alone, any_size=free, output_type=output_type, tool=tool)
        for inputs, results, alone in itertools.product(DTYPES, [None, *DTYPES], (False, True))
        for free in {False, "dynamic_shapes" in inspect.signature(ALL[backend]).parameters}
        for tool in {False, output_type == "linalg-on-tensors"}
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("backend", ALL)
def test_a_text_is_whole_whatever_a_case_needs(backend: str) -> None:
    """Every name in it is defined, every import is used, and no name is one of the script's."""
    for needs in every_need(backend):
        text = path_text(ALL[backend], needs)
        setup, call = text.once("Module()", "inputs")
        forms = [([*setup, *call], {"Module", "inputs", "torch"})]
        forms += [] if needs.lowering_alone else [(text.function(), {"torch"})]
        for lines, known in forms:
            tree = ast.parse("\n".join([*text.imports, *lines]))
            imported = {
                (a.asname or a.name).partition(".")[0] for n in ast.walk(tree) if hasattr(n, "names") for a in n.names
            }
            named = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
            stored = {node.id for node in named if isinstance(node.ctx, ast.Store)}
            stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            stored |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            read = {node.id for node in named if isinstance(node.ctx, ast.Load)}
            assert read <= stored | imported | known | set(dir(builtins)), needs
            assert imported <= read, needs
            if lines != text.function():
                assert not stored & (OF_SCRIPTS - {"got"}) and ("got" in stored) is bool(call)
                assert needs.lowering_alone or call, needs


def test_a_text_has_the_branches_that_are_taken() -> None:
    def path(program: Any, args: Any, needs: Needs) -> Any:
        from collections import Counter, deque

        made = deque([program])
        if needs.lowering_alone:
            return made
        made.append(needs.output_type)
        if needs.complex or needs.foreign:
            made.extend(
                args,  # all
            )
        elif made:
            made = Counter(made)

        def call(*args):
            if needs.one_result:
                return [made, args]
            return made

        return call

    text = path_text(path, Needs())
    assert text.imports == ["from collections import Counter, deque"]
    setup, call = text.once("Module()", "inputs")
    assert setup == ["made = deque([Module()])", 'made.append("")', "if made:", "    made = Counter(made)"]
    assert call == []
    text = path_text(path, Needs(complex=True, results=(torch.bool,), output_type="tosa"))
    assert text.imports == ["from collections import deque"]
    assert text.once("Module()", "inputs") == (
        ["made = deque([Module()])", 'made.append("tosa")', "made.extend(", "    inputs,  # all", ")"],
        ["got = [made, inputs]"],
    )
    assert text.function()[0] == "def path(program, args):" and text.function()[-1] == "    return call"
    assert path_text(path, Needs(lowering_alone=True)).once("p", "a") == (["made = deque([p])"], [])


X = torch.tensor([1.5, -2.0, 3.25])


class Compared(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        return y.logical_not(), x.float(), x.reshape(3, 1)


class Module(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x + x, x * x


TENSORS = [
    X, torch.tensor(1.5), X.double(), X.bfloat16(), X.bfloat16()[0], X.long(), X.to(torch.uint8), X + 1j * X, X > 2,
    torch.empty(0, 3),
]  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore")  # the compilers' own
@pytest.mark.parametrize("tensor", TENSORS, ids=lambda tensor: f"{tensor.dtype}-{list(tensor.shape)}")
@pytest.mark.parametrize("backend", ALL)
def test_a_path_gives_what_its_adapter_gives(backend: str, tensor: Tensor) -> None:
    """And declines what that declines. The same holds where the results' dtypes are not known before."""
    adapter = backends.load(backend)
    if not adapter.available().ok:
        pytest.skip(adapter.available().reason)
    needs = [
        Needs.of([tensor.dtype], dtypes, output_type=OUTPUT_TYPES.get(backend, ""))
        for dtypes in ([tensor.dtype] * 2, None)
    ]
    try:
        wanted = adapter.compile(Module(), (tensor.clone(),))(tensor.clone())
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, any: it is the compiler's own
            ALL[backend](Module(), (tensor.clone(),), needs[0])(tensor.clone())
        return
    for one in needs:
        results = ALL[backend](Module(), (tensor.clone(),), one)(tensor.clone())
        if one.results or not str(tensor.dtype).startswith("torch.uint"):
            torch.testing.assert_close(list(results), list(wanted), rtol=0, atol=0)


def _case(inputs: dict[str, Tensor], *calls: tuple[str, tuple[Any, ...], str], outputs: Any) -> Case:
    made = tuple(Call(target, args, {}, result) for target, args, result in calls)
    return Case(Program(tuple(inputs), made, outputs), inputs, "test", "op", "float32")


def _one(target: str, *args: Any, x: Tensor = X) -> Case:
    return _case({"x": x}, (target, (Ref("x"), *args), "v0"), outputs=Ref("v0"))


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore")  # the compilers' own
@pytest.mark.parametrize("backend", ALL)
def test_a_path_takes_tensors_of_several_dtypes(backend: str) -> None:
    if not backends.load(backend).available().ok:
        pytest.skip(backends.load(backend).available().reason)
    args = (X.bfloat16(), X > 2)
    wanted = list(Compared()(*args))
    for results in ([tensor.dtype for tensor in wanted], None):
        needs = Needs.of([arg.dtype for arg in args], results, output_type=OUTPUT_TYPES.get(backend, ""))
        torch.testing.assert_close(list(ALL[backend](Compared(), args, needs)(*args)), wanted, rtol=0, atol=0)


class Sorted(torch.nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x.sort().values, x.topk(2).values, x.cumsum(0)


class Masked(torch.nn.Module):
    """Its loop chooses between two bfloat16, which LLVM may need a library for."""

    def forward(self, x: Tensor, mask: Tensor, value: Tensor) -> tuple[Tensor]:
        return (x.clone().index_put_((mask,), value),)


MASKED = X[:3, None].bfloat16(), torch.tensor([True, False, True]), torch.tensor(-2.5, dtype=torch.bfloat16)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize(("program", "args"), [(Sorted(), (X,)), (Masked(), MASKED)])
def test_a_path_of_torch_mlir_lowers_its_own_ops(program: torch.nn.Module, args: tuple[Tensor, ...]) -> None:
    if not backends.load("torch-mlir-linalg").available().ok:
        pytest.skip(backends.load("torch-mlir-linalg").available().reason)
    wanted = program(*args)
    needs = Needs.of([x.dtype for x in args], [x.dtype for x in wanted], output_type="linalg-on-tensors", tool=True)
    results = compiled_by_torch_mlir(program, args, needs)(*args)
    torch.testing.assert_close(list(results), list(wanted), rtol=0, atol=0)


CASES = {
    "float32": _one("torch.exp"),
    "0-d": _one("torch.exp", x=torch.tensor(1.5)),
    "bool": _one("torch.gt", 0.5),
    "bfloat16": _one("torch.exp", x=X.bfloat16()),
    "complex": _one("torch.mul", Ref("x"), x=X + 1j),
    "two results": _one("torch.topk", 2),
    "a dict": _case(
        {"x": X}, ("torch.exp", (Ref("x"),), "v0"), ("torch.sin", (Ref("x"),), "v1"),
        outputs={"b": Ref("v0"), "a": [Ref("v1")]},
    ),
    "two inputs": _case({"x": X, "y": X + 1}, ("torch.sub", (Ref("x"), Ref("y")), "v0"), outputs=Ref("v0")),
    "strided": _one("torch.exp", x=torch.arange(12.0).reshape(4, 3).t()[:, ::2]),
    "many numbers": _one("torch.exp", x=torch.linspace(0, 1, 200)),
    "written": _one("torch.Tensor.add_", 1),
    "one of two written": _case(
        {"x": X, "y": X + 1}, ("torch.Tensor.mul_", (Ref("y"), 2), "v0"), ("torch.add", (Ref("v0"), Ref("x")), "v1"),
        outputs=(Ref("v1"), Ref("v0")),
    ),
    "written with results of one call": _case(
        {"x": X}, ("torch.Tensor.mul_", (Ref("x"), 2), "v0"), ("torch.topk", (Ref("x"), 2), "v1"),
        outputs=[Ref("v1"), Ref("v0")],
    ),
    "an intermediate written": _case(
        {"x": X}, ("torch.exp", (Ref("x"),), "v0"), ("torch.Tensor.add_", (Ref("v0"), 1), "v1"), outputs=Ref("v1"),
    ),
    "statistics": _case(
        {"x": X.reshape(3, 1), "y": torch.ones(1), "z": torch.ones(1)},
        ("torch.nn.functional.batch_norm", (Ref("x"), Ref("y"), Ref("z"), None, None, True, 0.0), "v0"),
        outputs=Ref("v0"),
    ),
    "an input returned": _case({"x": X}, ("torch.exp", (Ref("x"),), "v0"), outputs=(Ref("v0"), Ref("x"))),
    "names of the script's": _case(
        {"self": X, "leaf": X + 1}, ("torch.Tensor.mul_", (Ref("leaf"), 2), "arg"),
        ("torch.add", (Ref("arg"), Ref("self")), "any"),
        outputs={"got": Ref("any")},
    ),
}  # fmt: skip
SHORT = ["float32", "0-d", "bool", "two results", "two inputs", "written", "an intermediate written"]


def _put(result: Any, args: Any) -> Any:
    """Results with a wrong first number each, and the arguments as they should be."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Tensor, lambda leaf: ~leaf if leaf.dtype == torch.bool else leaf + 5, result)


@functools.cache
def mismatch(name: str) -> Verdict:
    """What a backend gets that gives other numbers. It is the same whatever backend a script is for."""
    return run_case(CASES[name], Bent(_put))


@pytest.mark.few(7)
@pytest.mark.parametrize("name", CASES)
def test_a_script_of_a_path_finds_right_what_is_right_and_wrong_what_is_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case, script = CASES[name], tmp_path / "script.py"
    verdict = mismatch(name)
    assert verdict.outcome is Outcome.MISMATCH and "index" in verdict.evidence
    for told in (verdict, None):
        monkeypatch.setitem(PATHS, "tvm", compiled_by_eager)
        script.write_text(render_script(case, "tvm", told))
        runpy.run_path(str(script))
        assert told is None or capsys.readouterr().out.startswith("right: output")
        monkeypatch.setitem(PATHS, "tvm", compiled_wrongly)
        script.write_text(render_script(case, "tvm", told))
        with pytest.raises(
            SystemExit if told else AssertionError, match="wrong value: output" if told else "not close"
        ):
            runpy.run_path(str(script))


@pytest.mark.few(9)
@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("backend", [*PATHS, "inductor"])
def test_a_script_is_short(backend: str, name: str) -> None:
    """It has the statements of a path that its dtypes need, and no function."""
    case = CASES[name]
    text = render_script(case, backend, mismatch(name))
    compile(text, "script.py", "exec")
    assert len(text.splitlines()) < {"xla": 35, "iree": 31}.get(backend, 30)
    assert "torchstone" not in text and "needs" not in text and "def compiled" not in text and "tree_leaves" not in text


@pytest.mark.few(1)
@pytest.mark.parametrize("backend", PATHS)
def test_what_a_case_needs_is_in_its_script(backend: str) -> None:
    def text(name: str) -> str:
        return render_script(CASES[name], backend, mismatch(name))

    assert ("view_as_real" in text("complex")) is (backend == "onnxruntime") and "view_as_real" not in text("float32")
    assert ("bf16" in text("bfloat16")) is (backend == "openvino") and "bf16" not in text("float32")
    assert "x = x.clone()" in text("written") and "clone()" not in text("an intermediate written").replace(
        "value.clone", ""
    )
    assert "y = y.clone()" in text("one of two written") and "x = x.clone()" not in text("one of two written")
    assert "y = y.clone()" in text("statistics") and "x = x.clone()" not in text("statistics")
    assert "contiguous_format" in text("strided") and "contiguous_format" in text("many numbers")
    assert "tree_leaves" in text("a dict") and "tree_leaves" not in text("two results")


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT])
@pytest.mark.parametrize("stage", [Stage.CAPTURE, Stage.LOWER, Stage.COMPILE, Stage.RUN])
@pytest.mark.parametrize("backend", PATHS)
def test_a_failure_before_the_run_takes_no_more_than_that(backend: str, stage: Stage, outcome: Outcome) -> None:
    case = CASES["float32"]
    failed = Verdict(case.id, backend, "test", "exp", "float32", "default", stage, outcome, message="refused")
    text = render_script(case, backend, failed)
    compile(text, "script.py", "exec")
    assert "expected" not in text and len(text.splitlines()) < 36
    assert ("got = " in text) is (stage is Stage.RUN)
    needs = Needs.of([torch.float32], [torch.float32], lowering_alone=stage in (Stage.CAPTURE, Stage.LOWER))
    assert "\n".join(path_text(PATHS[backend], needs).once("Module()", "inputs")[0]) in text


def test_a_path_is_a_function_of_its_own_source() -> None:
    for path in ALL.values():
        first, more = (names := list(inspect.signature(path).parameters))[:3], names[3:]
        assert first == ["program", "args", "needs"] and more in ([], ["dynamic_shapes"])
