"""The registry finds, suggests and refuses; each adapter that can run here gives eager's results."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_structure

from torchstone.conformance import backends
from torchstone.conformance.backends import Backend, BackendError, BackendUnsupported
from torchstone.conformance.backends.protocol import BackendGuardError
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import to_module
from torchstone.conformance.program.program import Call, Program, Ref

SHIPPED = {
    "eager", "linalg", "tosa", "tensorrt", "inductor", "torch-mlir-linalg", "torch-mlir-tosa", "torch-mlir-stablehlo",
}  # fmt: skip


def test_every_shipped_backend_loads_and_keeps_its_name():
    assert set(backends.backend_names()) >= SHIPPED
    for name in SHIPPED:
        backend = backends.load(name)
        assert isinstance(backend, Backend) and backend.name == name
        state = backend.available()
        assert state.ok or (state.reason and state.install)
        assert not state.ok or "torch" in backend.versions()


def test_unknown_and_broken_backends(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1] / "helpers")
    with pytest.raises(UnknownName, match=r'unknown backend "linlag" \(did you mean "linalg"\?\)'):
        backends.load("linlag")
    with pytest.raises(InputError, match="No module named 'nowhere'"):
        backends.load("nowhere:thing")
    with pytest.raises(InputError, match="Missing"):
        backends.load("torture_backend:Missing")
    with pytest.raises(InputError, match="not a backend: it has no name, available, versions, compile"):
        backends.load("torture_backend:not_a_backend")
    assert backends.load("torture_backend:Torture").name == "torture"
    with pytest.raises(InputError, match=r'backend "torture_backend:Torture" has no option "fast"; it has none'):
        backends.load("torture_backend:Torture+fast")


def test_library_calls_are_told_and_can_be_turned_off():
    def inverse(x):
        return torch.linalg.inv(x)

    calls = ["aten.linalg_inv_ex.default", "aten._linalg_check_errors.default"]
    compiled = backends.load("linalg").compile(inverse, (torch.eye(2),))
    assert vars(compiled)["evidence"]["ran"]["eager"] == calls
    ran = vars(backends.load("linalg").compile(torch.exp, (torch.eye(2),)))["evidence"]["ran"]
    assert list(ran) == ["linalg"] and ran["linalg"]
    strict = backends.load("linalg+no-library-calls")
    assert strict.name == "linalg+no-library-calls"
    torch.testing.assert_close(strict.compile(torch.exp, (torch.eye(2),))(torch.eye(2)), torch.eye(2).exp())
    with pytest.raises(BackendUnsupported, match="library calls are off") as caught:
        strict.compile(inverse, (torch.eye(2),))
    assert caught.value.op == calls[0]


@pytest.mark.parametrize("target", ["linalg", "tosa", "tensorrt"])
def test_inputs_after_the_first_are_frozen_where_asked(target):
    backend = backends.load(f"{target}+frozen")
    x, weight, bias = torch.rand(2, 3), torch.rand(4, 3), torch.rand(4)
    compiled = backend.compile(torch.nn.functional.linear, (x, weight, bias))
    for other in (x, torch.rand(2, 3)):
        expected = torch.nn.functional.linear(other, weight, bias)
        torch.testing.assert_close(compiled(other, weight.clone(), bias.clone()), expected)
    with pytest.raises(BackendGuardError, match="input 1 was frozen"):
        compiled(x, weight + 1, bias)


def test_what_is_written_to_a_frozen_input_is_written():
    def scaled(x, total, factor):
        total += x
        return total * factor

    args = torch.ones(3), torch.zeros(3), torch.full((3,), 2.0)
    compiled = backends.load("linalg+frozen").compile(scaled, args)
    for _ in range(2):
        total = torch.zeros(3)
        assert compiled(args[0], total, args[2]).tolist() == [2, 2, 2] and total.tolist() == [1, 1, 1]


def program(*calls: Call, outputs, inputs=("x",)) -> Program:
    return Program(inputs, calls, outputs)


MIXED = program(
    Call("torch.nn.functional.softmax", (Ref("x"),), {"dim": -1}, "s"),
    Call("torch.split", (Ref("s"), 2), {"dim": 1}, "parts"),
    Call("torch.Tensor.add", (Ref("parts", (0,)), float("inf")), {"alpha": 0.0}, "sum"),
    Call("torch.Tensor.mT", (Ref("x"),), {}, "t"),
    Call("torch.Tensor.__getitem__", (Ref("x"), (slice(None, None, 2), Ellipsis, None)), {}, "part"),
    outputs={"parts": Ref("parts"), "rest": [Ref("t"), (Ref("part"), Ref("sum"))]},
)  # fmt: skip


@pytest.mark.parametrize("name", ["linalg", "linalg+frozen", "linalg+no-library-calls", "tosa", "stablehlo"])
def test_sizes_may_vary_of_a_function_whose_inputs_have_names(name):
    """A case takes them by place, and a script gives them names."""

    def program(x, y):
        return x * y.exp()

    x, y = torch.linspace(-1, 1, 6).reshape(3, 2), torch.tensor(0.5)
    compiled = backends.load(name).compile_dynamic(program, (x, y), ((0, 1), ()))
    for one in (x, torch.cat([x, x])):
        assert torch.allclose(compiled(one, y), program(one, y))


def test_graph_module_does_what_the_program_does():
    x = torch.rand(4, 4)
    ours, theirs = MIXED(x), to_module(MIXED)(x)
    assert tree_structure(ours) == tree_structure(theirs)
    assert all(
        torch.equal(a, b) or a.isnan().all() for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True)
    )


def test_in_place_calls_reach_the_input():
    add = program(Call("torch.Tensor.add_", (Ref("x"), 1), {}, "y"), outputs=Ref("y"))
    x = torch.zeros(3)
    assert to_module(add)(x) is x and x.tolist() == [1, 1, 1]


SIMPLE = program(
    Call("torch.mul", (Ref("x"), Ref("w")), {}, "m"), Call("torch.sum", (Ref("m"), 1), {}, "y"),
    outputs=(Ref("y"), Ref("x")), inputs=("x", "w"),
)  # fmt: skip


@pytest.mark.parametrize("name", ["eager", "torch-mlir-linalg", "torch-mlir-tosa", "torch-mlir-stablehlo"])
def test_adapters_compute_and_keep_structure(name):
    backend = backends.load(name)
    if not backend.available().ok:
        pytest.skip(backend.available().reason)
    args = torch.rand(3, 4), torch.rand(4)
    got = backend.compile(SIMPLE, args)(*args)
    assert isinstance(got, tuple)
    torch.testing.assert_close(got, SIMPLE(*args))


def torch_mlir(name: str = "torch-mlir-linalg") -> Backend:
    backend = backends.load(name)
    if not backend.available().ok:
        pytest.skip(backend.available().reason)
    return backend


def test_torch_mlir_gives_unsigned_integers_back():
    double = program(Call("torch.add", (Ref("x"), Ref("x")), {}, "y"), outputs=Ref("y"))
    x = torch.tensor([100, 3], dtype=torch.uint8)
    got = torch_mlir().compile(double, (x,))(x)
    assert got.dtype is torch.uint8 and got.tolist() == [200, 6]


def test_torch_mlir_takes_constants_of_bfloat16_and_gives_numbers():
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)

    def program(x):
        return x + torch.tensor([3.0, 4.0], dtype=torch.bfloat16), x[0].item()

    torch.testing.assert_close(backends.load("torch-mlir-linalg").compile(program, (x,))(x), program(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_torch_mlirs_expm1_keeps_its_digits_near_zero(dtype):
    x = torch.tensor([-1e-3, 1e-5, 3.0], dtype=dtype)
    compiled = backends.load("torch-mlir-linalg").compile(lambda x: (torch.expm1(x), torch.expm1(x * 2)), (x,))
    torch.testing.assert_close(
        compiled(x), (torch.expm1(x), torch.expm1(x * 2)), atol=0, rtol=2 * torch.finfo(dtype).eps
    )


def test_torch_mlir_writes_mutations_back():
    add = program(Call("torch.Tensor.add_", (Ref("x"), 1), {}, "y"), outputs=[Ref("y")])
    compiled = torch_mlir().compile(add, (torch.zeros(3),))
    x = torch.full((3,), 4.0)
    (y,) = compiled(x)
    assert x.tolist() == y.tolist() == [5, 5, 5]


def test_torch_mlir_names_the_op_it_declines():
    svd = program(Call("torch.linalg.svd", (Ref("x"),), {}, "y"), outputs=Ref("y"))
    with pytest.raises(BackendUnsupported, match="failed to legalize") as caught:
        torch_mlir().compile(svd, (torch.rand(2, 2),))
    assert (caught.value.op, caught.value.stage) == ("aten._linalg_svd", "lower")


def test_what_mlir_reports_of_torch_mlirs_module_is_the_message():
    """A negative padding is a slice outside the result, which MLIR's verifier tells."""
    cut = program(Call("torch.nn.functional.pad", (Ref("x"), [-1, -1]), {}, "y"), outputs=Ref("y"))
    with pytest.raises(BackendError) as caught:
        torch_mlir().compile(cut, (torch.rand(4),))
    assert (str(caught.value), caught.value.stage) == ("expected offsets to be non-negative, but got -1", "compile")


def test_what_the_runtime_has_no_code_for_is_no_fault_of_torch_mlirs():
    wide = program(Call("torch.Tensor.to", (Ref("x"), torch.float32), {}, "y"), outputs=Ref("y"))
    with pytest.raises(BackendUnsupported, match=r"no conversion of arith.extf of f8E5M2, f32 to LLVM's types"):
        torch_mlir().compile(wide, (torch.ones(3).to(torch.float8_e5m2),))


def test_what_torch_mlir_writes_of_a_failure_is_in_nobodys_way(tmp_path, monkeypatch):
    (tmp_path / "UnnammedModule.mlir").mkdir()  # what it calls its file: here nobody can write it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    test_torch_mlir_names_the_op_it_declines()


def inductor() -> Backend:
    backend = backends.load("inductor")
    if not backend.available().ok:
        pytest.skip(backend.available().reason)
    return backend


def negated(then=None):
    calls = [Call("torch.neg", (Ref("a"),), {}, "b")]
    calls += [Call(f"torch.Tensor.{then}", (Ref("b"),), {}, "c")] if then else []
    return Program(("a",), tuple(calls), (Ref(calls[-1].result),))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("call", "args", "told"),
    [
        (Call("torch.Tensor.resize_", (Ref("x"), (2,)), {}, "y"), (torch.rand(4),), "resize_"),
        (
            Call("torch.nn.functional.gaussian_nll_loss", (Ref("x"), Ref("x"), Ref("x")), {}, "y"),
            (torch.rand(3) + 1,),
            "data-dependent expression",
        ),
        (
            Call("torch.tensor_split", (Ref("x"), Ref("z")), {}, "y"),
            (torch.rand(4), torch.tensor(2)),
            "data-dependent expression",
        ),
        (
            Call("torch.cond", (Ref("z"), negated(), negated("contiguous"), (Ref("x"),)), {}, "y"),
            (torch.rand(3, 2).t(), torch.tensor(True)),
            "contiguousness of the two branches",
        ),
    ],
)
def test_inductor_declines_at_capture(call, args, told):
    with pytest.raises(BackendUnsupported, match=told) as caught:
        inductor().compile(program(call, outputs=Ref("y"), inputs=("x", "z")[: len(args)]), args)
    assert caught.value.stage == "capture"


@pytest.mark.torture
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_tells_its_kernels_from_those_of_eager():
    compiled = inductor().compile(lambda x: (x @ x).relu(), (torch.eye(3),))
    torch.testing.assert_close(compiled(torch.eye(3)), torch.eye(3))
    ran = compiled.evidence["ran"]
    assert ran["eager"] == ["aten::mm"] and len(ran["inductor"]) == 1 and "relu" in ran["inductor"][0]


def test_a_program_that_dynamo_runs_in_eager_is_no_pass_of_inductor(monkeypatch):
    backend = inductor()
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)  # what TORCH_COMPILE_DISABLE=1 makes of it
    case = Case(
        program(Call("torch.relu", (Ref("x"),), {}, "y"), outputs=Ref("y")),
        {"x": torch.eye(3)},
        "test",
        "relu",
        "float32",
    )
    verdict = run_case(case, backend)
    assert (verdict.outcome, verdict.message) == ("fallback", "eager ran aten::relu")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["torch-mlir-linalg", "torch-mlir-tosa", "torch-mlir-stablehlo"])
def test_torch_mlir_tells_what_it_computes_with(name):
    compiled = torch_mlir(name).compile(lambda x: (x.exp(), x.t()), (torch.rand(2, 2),))
    assert list(compiled.evidence["ran"]) == list(torch_mlir(name).executors) and "linalg.generic" in str(
        compiled.evidence
    )
    assert torch_mlir(name).compile(lambda x: x.view(4), (torch.rand(4),)).evidence["ran"] == {}
