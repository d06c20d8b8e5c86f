"""Printed scripts stand alone: run by a bare Python, they build the same bits and judge as the harness does."""

from __future__ import annotations

import dataclasses
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.script import render_script
from torchstone.conformance.repro.source import python_source
from torchstone.conformance.sources import find_case


def one_call(target: str, *args: Any, inputs: dict[str, Tensor], **kwargs: Any) -> Case:
    return Case(
        Program(tuple(inputs), (Call(target, args, kwargs, "r0"),), Ref("r0")), inputs, "test", target, "float32"
    )


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(warm_python: Any, tmp_path: Path) -> Run:
    def run(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "reproducer.py"
        path.write_text(text)
        return warm_python.run(path, cwd=tmp_path, environment=environment)

    return run


def built(case: Case, tmp_path: Path) -> tuple[Tensor, ...]:
    """The inputs that the script of a case builds."""
    path = tmp_path / "inputs.py"
    text = render_script(case)
    path.write_text(text[: text.index("\n\n\ntorch.manual_seed")])
    return runpy.run_path(str(path))["inputs"]()


SHARED = torch.arange(8.0)
INPUTS = {
    "small": [torch.tensor([[0.1, -0.0], [1e-45, 3.4e38]])],
    "0-d": [torch.tensor(2.5, dtype=torch.bfloat16)],
    "not finite": [torch.tensor([float("nan"), float("inf"), float("-inf")])],
    "nan payload": [torch.tensor([0x7FC12345, 5], dtype=torch.int32).view(torch.float32)],
    "complex": [torch.tensor([1 + 2j, complex(float("nan"), -0.0)])],
    "conjugated": [torch.tensor([1 + 2j]).conj()],
    "bool": [torch.tensor([True, False])],
    "uint64": [torch.tensor([2**63], dtype=torch.uint64)],
    "float8": [torch.tensor([0.5, 2.0]).to(torch.float8_e5m2)],
    "empty": [torch.empty(0, 3, dtype=torch.int8)],
    "constant": [torch.full((40, 40), 0.1)],
    "large": [torch.randn(20, 20, dtype=torch.float64)],
    "strided": [torch.randn(30, 9)[::3, 1::2]],
    "expanded": [torch.tensor([[1.0], [2.0]]).expand(2, 3)],
    "shared": [SHARED[:4], SHARED[2:6], SHARED.view(torch.int32)[1:3]],
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_scripts_inputs_are_the_cases_bit_for_bit(name: str, tmp_path: Path) -> None:
    inputs = {f"x{index}": tensor for index, tensor in enumerate(INPUTS[name])}
    case = Case(Program(tuple(inputs), (), Ref("x0")), inputs, "test", "identity", "float32")
    tensors = built(case, tmp_path)
    for again, tensor in zip(tensors, case.args, strict=True):
        assert (again.dtype, again.shape, again.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        assert again.storage_offset() == tensor.storage_offset()
        assert again.is_conj() == tensor.is_conj()
        left, right = (t.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for t in (again, tensor))
        assert torch.equal(left, right)
    if name == "shared":
        tensors[0][2] = 99
        assert tensors[1][0] == 99


def test_a_script_without_a_backend_prints_the_result(run: Run) -> None:
    case = one_call(
        "torch.sum", Ref("x0"), dim=[0], dtype=torch.float64, inputs={"x0": torch.tensor([[1.5, 2.0], [3.0, 4.0]])}
    )
    text = render_script(case)
    assert "torchstone" not in text
    done = run(text)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "eager: tensor([4.5000, 6.0000], dtype=torch.float64)\n"


WRONG = """
class Wrong:
    name = "wrong"
    def compile(self, fn, args):
        return lambda x, y: fn(y, x)
    def available(self): ...
    def versions(self): ...
"""


@pytest.mark.torture
def test_a_script_with_a_backend_asserts(tmp_path: Path, run: Run) -> None:
    (tmp_path / "wrong_backend.py").write_text(WRONG)
    inputs = {"x0": torch.randn(2, 3), "x1": torch.randn(2, 3)}
    case = one_call("torch.sub", Ref("x0"), Ref("x1"), inputs=inputs)
    done = run(render_script(case, "wrong_backend:Wrong"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "Tensor-likes are not close" in done.stderr
    assert "eager: tensor" in done.stdout
    assert "wrong_backend:Wrong: tensor" in done.stdout
    right = run(render_script(case, "eager"))
    assert right.returncode == 0, right.stderr


def test_backends_are_reached_the_way_their_users_do() -> None:
    case = one_call("torch.abs", Ref("x0"), inputs={"x0": torch.ones(1)})
    assert "torch.compile(program, fullgraph=True)" in render_script(case, "inductor")
    assert 'torchstone.compile(program, inputs(), target="tosa")' in render_script(case, "tosa")
    text = render_script(case, "torch-mlir-tosa")
    assert "exported = torch.export.export(Module(), inputs, strict=False)\n" in text
    assert 'module = fx.export_and_import(exported, output_type="tosa")\n' in text


def test_a_failure_to_lower_takes_no_more_of_torch_mlir_than_that() -> None:
    case = one_call("torch.argmax", Ref("x0"), inputs={"x0": torch.tensor(0)})
    failed = Verdict(
        case.id, "torch-mlir-tosa", "test", "argmax", "int64", "default", Stage.LOWER, Outcome.ERROR, message="refused"
    )
    text = render_script(case, "torch-mlir-tosa", failed)
    assert text.endswith('module = fx.export_and_import(exported, output_type="tosa")\nprint("no error")\n')
    assert "expected" not in text and len(text.splitlines()) < 20
    later = dataclasses.replace(failed, stage=Stage.COMPILE)
    assert "PassManager.parse(" in render_script(case, "torch-mlir-tosa", later)


def test_literals_print_as_python() -> None:
    values = {
        'float("-inf")': float("-inf"),
        'complex(1.0, float("nan"))': complex(1, float("nan")),
        "(r0[1],)": (Ref("r0", (1,)),),
        "[slice(None, 3, None), ...]": [slice(None, 3), ...],
        'torch.device("cpu")': torch.device("cpu"),
        '{"mode": torch.bfloat16}': {"mode": torch.bfloat16},
    }
    for text, value in values.items():
        assert python_source(value) == text


def test_methods_print_as_methods() -> None:
    calls = (
        Call("torch.Tensor.mT", (Ref("x0"),), {}, "r0"),
        Call("torch.Tensor.__getitem__", (Ref("r0"), (0, Ellipsis)), {}, "r1"),
        Call("torch.Tensor.add_", (Ref("r1"), 1), {"alpha": 2}, "r2"),
    )
    case = Case(Program(("x0",), calls, Ref("r1")), {"x0": torch.ones(2, 2)}, "test", "several", "float32")
    body = "    r0 = x0.mT\n    r1 = r0[(0, ...)]\n    r1.add_(1, alpha=2)\n    return r1\n"
    assert body in render_script(case)


@pytest.mark.torture
def test_a_script_for_torch_compile_compiles_what_goes_forward(run):
    text = render_script(find_case("opinfo:tanh:float32:0:backward"), "inductor")
    assert "functools.partial(program, forward=torch.compile(forward, fullgraph=True))" in text
    eager = text.replace("torch.compile(forward, fullgraph=True)", "forward")
    assert run(eager).returncode == 0
    wrong = "lambda *args: [result * 1.5 for result in forward(*args)]"
    assert run(eager.replace("partial(program, forward=forward)", f"partial(program, forward={wrong})")).returncode == 1


ON_CUDA = {
    "plain": one_call("torch.exp", Ref("x"), inputs={"x": torch.rand(3)}),
    "lazy": one_call(
        "torch.add",
        Ref("x"),
        Ref("y"),
        inputs={"x": torch.tensor([1 + 2j]).conj(), "y": torch._neg_view(torch.ones(1))},
    ),
    "shared and written to": one_call(
        "torch.Tensor.mul_", Ref("x"), Ref("y"), inputs={"x": SHARED.clone()[1::2], "y": torch.tensor(3.0)}
    ),
    "strided": one_call("torch.sum", Ref("x"), dim=1, inputs={"x": torch.rand(4, 5).t()}),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ON_CUDA)
def test_a_script_for_a_gpu_needs_pytorch_alone(name: str, run: Run) -> None:
    text = render_script(ON_CUDA[name], "eager+cuda")
    assert "torchstone" not in text and "on_cuda(torch.compile(program, fullgraph=True))" in render_script(
        ON_CUDA[name], "inductor+cuda"
    )
    done = run(text.replace(".cuda()", ".cpu()").replace('"cuda"', '"cpu"'))
    assert done.returncode == 0, done.stderr
