"""What the lowering makes of whole graphs: outputs, checks, run-time sizes, and errors that quote TensorRT."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.ir import Graph, TensorType, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.tensorrt import TARGET, lower_graph, takes
from torchstone.compiler.lowering.tensorrt.layer_table import LayerRow, LayerRows
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.runtime.tensorrt import SWITCH, api, simulator
from torchstone.compiler.runtime.tensorrt.engine import Log
from torchstone.compiler.transforms.expand import expand

from .graphs import graph_of, kernel, legal, static

N, M = symbol("n"), symbol("m")


def test_arguments_and_literals_among_the_outputs() -> None:
    graph = static(lambda b, x, y: (x, b.neg(y), 3, None, x), torch.ones(2), torch.ones(3))
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])
    first, second, *literals, last = kernel(graph)([x, y])
    assert literals == [3, None]
    assert first.tolist() == last.tolist() == [1.0, 2.0]
    assert second.tolist() == [-1.0, -2.0, -3.0]
    first.zero_()
    assert x.tolist() == [1.0, 2.0], "an output must not be the argument's memory"
    assert last.tolist() == [1.0, 2.0], "nor that of another output"


def test_an_argument_nobody_reads_is_no_input() -> None:
    graph = static(lambda b, x, y: b.neg(y), torch.ones(2, dtype=torch.float64), torch.ones(3))
    program = lower_graph(graph)
    assert program.inputs == ["", "input1"]
    assert kernel(graph)([torch.ones(2, dtype=torch.float64), torch.ones(3)])[0].tolist() == [-1.0] * 3


def test_a_graph_of_literals_builds_no_engine() -> None:
    graph = Graph("main", [], [], (1, "two"))
    run = kernel(graph)
    assert run([]) == (1, "two")
    assert run.builds == 0


def test_an_input_type_tensorrt_lacks_is_unsupported() -> None:
    graph = static(lambda b, x: x, torch.ones(2, dtype=torch.complex64))
    with pytest.raises(Unsupported, match="TensorRT has no complex64 tensors"):
        lower_graph(graph)


def test_non_contiguous_and_zero_size_arguments() -> None:
    graph = static(lambda b, x: b.transpose(x, (1, 0)), torch.ones(2, 3))
    x = torch.arange(6.0).reshape(3, 2).t()
    assert kernel(graph)([x])[0].tolist() == x.t().tolist()
    empty = static(lambda b, x: b.reduce(x, "sum", (0,)), torch.ones(0, 2))
    assert kernel(empty)([torch.ones(0, 2)])[0].tolist() == [0.0, 0.0]


DYNAMIC: list[tuple[Any, tuple[tuple[Any, ...], ...]]] = [
    (lambda b, x: b.neg(x), ((N, M),)),
    (lambda b, x, y: b.add(x, b.broadcast(y, (N, M))), ((N, M), (M,))),
    (lambda b, x, y: b.add(x, y), ((N, 2), (N, 2))),
    (lambda b, x: b.reshape(x, (N * M,)), ((N, M),)),
    (lambda b, x: b.reshape(x, (M, N, 1)), ((N, M),)),
    (lambda b, x: b.broadcast(x, (N, 3), (1,)), ((3,), (N,))),
    (lambda b, x: b.reverse(x, dims=(0, 1)), ((N, M),)),
    (lambda b, x: b.slice(x, 0, 1, N), ((N, 2),)),
    (lambda b, x: b.slice(x, 0, 0, N, 2), ((N, 2),)),
    (lambda b, x: b.slice(x, 0, N // 2, N), ((N, 2),)),
    (lambda b, x, y: b.concat(x, y, dim=0), ((N, 2), (M, 2))),
    (lambda b, x, v: b.pad(x, v, low=(1, N), high=(0, 2)), ((N, M), ())),
    (lambda b, x: b.iota(size=2 * N - 1, dtype=dt.float32), ((N,),)),
    (lambda b, x: b.iota(size=N % 3, dtype=dt.int64), ((N,),)),
    (lambda b, x: b.reduce(x, "max", (1,)), ((N, M),)),
    (lambda b, x, y: b.contract(x, y, a_batch=(), b_batch=(), a_sum=(1,), b_sum=(0,)), ((N, M), (M, 2))),
]


@pytest.mark.parametrize(("build", "shapes"), DYNAMIC)
def test_sizes_known_at_run_time(build: Any, shapes: tuple[tuple[Any, ...], ...]) -> None:
    """One network, an engine for a range of sizes, a wider one when a call is outside."""
    from torchstone.compiler.ir.dims import evaluate

    types = [TensorType(shape, dt.float32) for shape in shapes]
    graph = graph_of(lambda b, *args: build(b, *args[: build.__code__.co_argcount - 1]), types)
    run = kernel(graph)
    assert run.builds == 0
    torch.manual_seed(0)
    for sizes in ({"n": 3, "m": 4}, {"n": 5, "m": 2}, {"n": 1, "m": 1}, {"n": 20, "m": 9}):
        tensors = [torch.randn(tuple(evaluate(d, sizes) for d in shape)) for shape in shapes]
        for got, want in zip(run(tensors), evaluate_graph(legal(graph), tensors), strict=True):
            torch.testing.assert_close(got, want)
    assert run.builds <= 4


def test_profiles_grow_and_are_kept() -> None:
    graph = graph_of(lambda b, x: b.neg(x), [TensorType((N, 2), dt.float32)])
    run = kernel(graph)
    for size, builds in ((4, 1), (8, 1), (5, 1), (9, 2), (18, 2), (4, 2), (1, 3), (18, 3)):
        assert run([torch.ones(size, 2)])[0].shape == (size, 2)
        assert run.builds == builds, f"at size {size}"


def test_sizes_of_one_symbol_must_agree() -> None:
    types = [TensorType((N,), dt.float32)] * 2
    run = kernel(graph_of(lambda b, x, y: (b.neg(x), b.neg(y)), types))
    with pytest.raises(TorchstoneError, match="dimension n is 2 and, in input1, 3"):
        run([torch.ones(2), torch.ones(3)])


def test_a_size_that_is_no_input_size_is_unsupported() -> None:
    graph = graph_of(lambda b, x: b.broadcast(x, (N, 2), (1,)), [TensorType((2,), dt.float32)])
    with pytest.raises(Unsupported, match="size n is not the size of an input") as caught:
        lower_graph(expand(graph, takes))
    assert caught.value.op == "flat.reshape" or caught.value.op == "flat.broadcast"


def test_what_tensorrt_refuses_is_quoted() -> None:
    log = Log(simulator)
    definition = simulator.Builder(log.logger).create_network(0)
    n = Network(simulator, definition, log)
    n.where = "flat.add"
    a = definition.add_input("a", simulator.DataType.FLOAT, (2,))
    b = definition.add_input("b", simulator.DataType.FLOAT, (2, 2))
    with pytest.raises(TorchstoneError, match=r"flat\.add: TensorRT refuses the layer: .*same number of dimensions"):
        n.binary("SUM", a, b)
    with pytest.raises(TorchstoneError, match=r"flat\.add: TensorRT refuses: .*out of bounds in dim 0"):
        n.slice(a, (1,), (2,), (1,))
    assert log.take() == "no message"


def test_a_wrong_lowering_is_caught_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchstone.compiler.lowering import tensorrt

    rows = LayerRows()
    rows.add("neg", LayerRow("wrong", frozenset({"FLOAT"}), lambda n, op, x: n.cast(x, "HALF")))
    monkeypatch.setattr(tensorrt, "lowers", rows)
    graph = static(lambda b, x: b.neg(x), torch.ones(2))
    with pytest.raises(TorchstoneError, match=r"flat\.neg: TensorRT infers HALF\[2\], want f32\[2\]") as caught:
        lower_graph(graph)
    assert caught.value.op == "flat.neg"


def test_two_rows_for_an_op_and_a_row_for_none_are_errors() -> None:
    rows = LayerRows()
    row = LayerRow("", frozenset(), lambda n, op: None)
    rows.add("neg", row)
    with pytest.raises(ValueError, match="two rows"):
        rows.add("neg", row)
    with pytest.raises(TorchstoneError, match="did you mean"):
        rows.add("negg", row)


def test_the_text_says_which_api_it_is_and_shows_the_layers() -> None:
    graph = legal(static(lambda b, x: b.reduce(b.add(x, x), "sum", (0,)), torch.ones(2, 3)))
    lowered = TARGET.lower(graph)
    lines = lowered.texts["tensorrt"]().splitlines()
    assert lines[0].startswith("// TensorRT simulator")
    assert lines[1:] == [
        "network(%input0: FLOAT[2, 3]) {",
        "  %t0: FLOAT[2, 3] = ELEMENTWISE(%input0, %input0)  // flat.add SUM",
        "  %output0: FLOAT[3] = REDUCE(%t0)  // flat.reduce SUM over [0]",
        "  return %output0",
        "}",
    ]
    assert getattr(lowered.load(), "runtime", "").startswith("TensorRT simulator")


@pytest.fixture
def fresh_api() -> Any:
    api.cache_clear()
    yield
    api.cache_clear()


def test_the_switch_chooses_the_api(monkeypatch: pytest.MonkeyPatch, fresh_api: Any) -> None:
    monkeypatch.setenv(SWITCH, "simulator")
    assert not api().real
    api.cache_clear()
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(TorchstoneError, match="must be real or simulator, got 'yes'"):
        api()
    monkeypatch.setenv(SWITCH, "real")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(TorchstoneError, match="no TensorRT: the tensorrt package is not installed; unset"):
        api()


def test_lowering_needs_no_torch() -> None:
    """A network is built, and printed, without torch being imported."""
    import subprocess

    code = """
import sys
sys.modules["torch"] = None
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.ir import Graph, TensorType, Value, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.tensorrt import TARGET
x = Value(TensorType((symbol("n"), 4), dt.float32), "x")
graph = Graph("main", [x])
b = Builder(graph.ops)
one = b.constant(value=1.5, shape=(1, 1), dtype=dt.float32)
graph.outputs = (b.add(b.transpose(x, (1, 0)), b.broadcast(one, (4, symbol("n")))),)
assert [TARGET.takes(op) for op in graph.ops] == [None] * 4
assert "ELEMENTWISE" in TARGET.lower(graph).texts["tensorrt"]()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
