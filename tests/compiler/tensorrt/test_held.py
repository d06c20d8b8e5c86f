"""No layer is added before its result is read: broadcasts, shuffles in a row, numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.ir import TensorType, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.lowering.tensorrt import TARGET
from torchstone.compiler.runtime.interpreter import evaluate_graph

from .graphs import graph_of, kernel, legal

N, M = symbol("n"), symbol("m")
F32 = dt.float32


def text(build: Any, *shapes: Any) -> str:
    """Return the layers of a graph on float32 arguments, after holding its values against the evaluator's."""
    graph = legal(graph_of(build, [TensorType(shape, F32) for shape in shapes]))
    generator = torch.Generator().manual_seed(0)
    run = kernel(graph)
    for sizes in ({"n": 3, "m": 2}, {"n": 1, "m": 4}):
        tensors = [torch.randn([evaluate(d, sizes) for d in shape], generator=generator) for shape in shapes]
        for got, want in zip(run(tensors), evaluate_graph(graph, tensors), strict=True):
            torch.testing.assert_close(got, want)
    lines = TARGET.lower(graph).texts["tensorrt"]().splitlines()
    return "\n".join(line.strip() for line in lines[2:-2])


def test_elementwise_layers_repeat_their_operands() -> None:
    """The sizes of 1 go on through elementwise layers that read nothing else."""
    got = text(lambda b, x, y: b.mul(x, b.neg(b.broadcast(b.add(y, y), (N, 4)))), (N, 4), (1, 4))
    assert got == (
        "%t0: FLOAT[1, 4] = ELEMENTWISE(%input1, %input1)  // flat.add SUM\n"
        "%t1: FLOAT[1, 4] = UNARY(%t0)  // flat.neg NEG\n"
        "%output0: FLOAT[-1, 4] = ELEMENTWISE(%input0, %t1)  // flat.mul PROD"
    )


def test_each_operand_may_be_repeated_along_its_own_dim() -> None:
    got = text(lambda b, x, y: b.add(b.broadcast(x, (3, 4)), b.broadcast(y, (3, 4))), (3, 1), (1, 4))
    assert got == "%output0: FLOAT[3, 4] = ELEMENTWISE(%input0, %input1)  // flat.add SUM"


def test_other_layers_and_outputs_get_all_sizes_once() -> None:
    def build(b: Any, x: Any) -> Any:
        wide = b.neg(b.broadcast(x, (3, 4)))
        return wide, b.reduce(wide, "sum", (0,)), b.reshape(wide, (12,))

    assert text(build, (1, 4)) == (
        "%t0: FLOAT[1, 4] = UNARY(%input0)  // flat.neg NEG\n"
        "%output0: FLOAT[3, 4] = SLICE(%t0)  // flat.neg start [0, 0] size [3, 4] stride [0, 1]\n"
        "%output1: FLOAT[4] = REDUCE(%output0)  // flat.reduce SUM over [0]\n"
        "%output2: FLOAT[12] = SHUFFLE(%output0)  // flat.reshape to [12]"
    )


def test_a_broadcast_is_made_before_a_reshape() -> None:
    got = text(lambda b, x: b.reshape(b.broadcast(x, (3, 4)), (12,)), (1, 4))
    assert [line.partition(" = ")[2].partition("(")[0] for line in got.splitlines()] == ["SLICE", "SHUFFLE"]


def test_a_size_of_1_that_tensorrt_has_not_seen_is_told() -> None:
    """What a reshape to sizes computed at run time gives."""
    got = text(lambda b, x, y: b.add(b.broadcast(b.reshape(x, (1, M, N)), (4, M, N)), y), (N, M), (4, M, N))
    first, second = [line.partition(": ")[2].partition("(")[0] for line in got.splitlines() if "SHUFFLE" in line]
    assert (first, second) == ("FLOAT[-1, -1, -1] = SHUFFLE", "FLOAT[1, -1, -1] = SHUFFLE")


@pytest.mark.parametrize(
    ("have", "want"),
    [((0, N), (N, 0)), ((N, 0, 3), (N, 3, 0)), ((N, M), (M, N)), ((N, M), (N, M, 1)), ((N, M, 2), (2 * N, M))],
)
def test_reshape_of_sizes_known_at_run_time(have: Any, want: Any) -> None:
    text(lambda b, x: b.reshape(x, want), have)


def test_sizes_are_copied_from_where_a_transpose_put_them() -> None:
    text(lambda b, x: b.reshape(b.transpose(x, (1, 0, 2)), (N, M, 4)), (N, M, 4))
    got = text(lambda b, x: b.reshape(b.transpose(x, (1, 0, 2)), (M, N, 2, 2)), (N, M, 4))
    assert len(got.splitlines()) == 1


def test_a_broadcast_to_no_elements() -> None:
    assert "ELEMENTWISE" in text(lambda b, x, y: b.add(b.broadcast(x, (0, 4)), y), (1, 4), (0, 4))
    assert "SLICE" in text(lambda b, x: b.broadcast(x, (0, 4)), (1, 4))


SHUFFLES: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "two reshapes": (lambda b, x: b.reshape(b.reshape(x, (6, 4)), (3, 8)), (2, 3, 4), "to [3, 8]"),
    "two transposes": (lambda b, x: b.transpose(b.transpose(x, (1, 2, 0)), (0, 2, 1)), (2, 3, 4), "[1, 0, 2]"),
    "transpose, reshape": (lambda b, x: b.reshape(b.transpose(x, (1, 0, 2)), (6, 4)), (2, 3, 4), "[1, 0, 2] to [6, 4]"),
    "reshape, transpose": (lambda b, x: b.transpose(b.reshape(x, (6, 4)), (1, 0)), (2, 3, 4), "to [6, 4] [1, 0]"),
    "all of it": (
        lambda b, x: b.transpose(b.reshape(b.reshape(b.transpose(x, (2, 0, 1)), (24,)), (4, 6)), (1, 0)),
        (2, 3, 4), "[2, 0, 1] to [4, 6] [1, 0]",
    ),
    "of sizes known at run time": (
        lambda b, x: b.reshape(b.transpose(x, (1, 0, 2)), (3, N, 2, 2)), (N, 3, 4), "[1, 0, 2] to [3, n, 2, 2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffles_in_a_row_are_one(name: str) -> None:
    build, shape, steps = SHUFFLES[name]
    (line,) = text(build, shape).splitlines()
    assert " = SHUFFLE(%input0)  // flat." in line and line.endswith(f" {steps}")


def test_a_third_step_is_a_shuffle_of_its_own() -> None:
    got = text(lambda b, x: b.reshape(b.transpose(b.reshape(x, (6, 4)), (1, 0)), (2, 12)), (2, 3, 4))
    assert [line.partition("// ")[2] for line in got.splitlines()] == [
        "flat.transpose to [6, 4] [1, 0]", "flat.reshape to [2, 12]",
    ]  # fmt: skip


def test_a_shuffle_that_others_read_too_is_made_for_them() -> None:
    def build(b: Any, x: Any) -> Any:
        turned = b.transpose(x, (1, 0))
        return b.neg(turned), b.reshape(turned, (6,))

    assert text(build, (2, 3)).count("SHUFFLE") == 2


def test_what_moves_nothing_is_no_layer() -> None:
    got = text(lambda b, x: b.neg(b.transpose(b.transpose(x, (1, 0)), (1, 0))), (2, 3))
    assert got == "%output0: FLOAT[2, 3] = UNARY(%input0)  // flat.neg NEG"


def test_a_number_is_one_constant() -> None:
    """In every shape of one rank; 0.0 and -0.0 are two."""

    def build(b: Any, x: Any, y: Any) -> Any:
        def number(value: float, shape: Any) -> Any:
            return b.constant(value=value, shape=shape, dtype=F32)

        one = b.broadcast(b.reshape(number(2.0, ()), (1, 1)), (2, 3))
        return (
            b.mul(x, one),
            b.mul(y, number(2.0, (4, 1))),
            b.add(x, number(0.0, (2, 3))),
            b.add(x, number(-0.0, (2, 3))),
        )

    got = text(build, (2, 3), (4, 1))
    assert [line.partition("CONSTANT() ")[2] for line in got.splitlines() if "CONSTANT" in line] == [
        " // flat.mul 2.0", " // flat.add 0.0", " // flat.add -0.0",
    ]  # fmt: skip
    assert got.count(" = ") == 7


PRODUCTS: dict[str, tuple[Any, Any, str]] = {
    "as it is": (lambda b, x, y: product(b, x, y), ((2, 3), (3, 4)), ""),
    "of a transpose": (lambda b, x, y: product(b, x, b.transpose(y, (1, 0))), ((2, 3), (4, 3)), " NONE TRANSPOSE"),
    "over the rows": (lambda b, x, y: product(b, x, y, a_sum=(0,)), ((3, 2), (3, 4)), " TRANSPOSE NONE"),
    "a transpose of a transpose": (
        lambda b, x, y: product(b, b.transpose(x, (1, 0)), y, a_sum=(0,), b_sum=(1,)), ((2, 3), (4, 3)),
        " NONE TRANSPOSE",
    ),
    "in batches": (
        lambda b, x, y: product(b, x, b.transpose(y, (0, 1, 3, 2)), (0, 1), (3,), (2,)), ((2, N, 5, 3), (2, N, 4, 3)),
        " NONE TRANSPOSE",
    ),
}  # fmt: skip


def product(b: Any, x: Any, y: Any, batch: Any = (), a_sum: Any = (1,), b_sum: Any = (0,)) -> Any:
    return b.contract(x, y, a_batch=batch, b_batch=batch, a_sum=a_sum, b_sum=b_sum)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_matrix_product_transposes(name: str) -> None:
    build, shapes, turns = PRODUCTS[name]
    (line,) = text(build, *shapes).splitlines()
    assert line.endswith(f" = MATRIX_MULTIPLY(%input0, %input1)  // flat.contract{turns}")


def test_a_product_of_other_dims_is_moved_first() -> None:
    """Batches that are not first, and a repeated operand."""
    got = text(lambda b, x, y: product(b, b.transpose(x, (1, 0, 2)), y, (0,), (2,), (1,)), (2, 3, 4), (3, 4, 5))
    assert got.count("SHUFFLE") == 1 and "MATRIX_MULTIPLY" in got
    got = text(lambda b, x, y: product(b, b.broadcast(x, (2, 3)), y), (1, 3), (3, 4))
    assert [line.partition(" = ")[2].partition("(")[0] for line in got.splitlines()] == ["SLICE", "MATRIX_MULTIPLY"]


def test_an_operand_that_is_more_than_a_transpose_is_made() -> None:
    got = text(lambda b, x, y: product(b, x, b.reshape(b.transpose(y, (1, 0)), (3, 8))), (2, 3), (4, 6))
    assert got.endswith("// flat.contract")
    got = text(lambda b, x, y: product(b, x, b.broadcast(b.transpose(y, (1, 0)), (3, 4))), (2, 3), (4, 1))
    assert got.endswith("// flat.contract") and "SLICE" in got


def test_a_frozen_parameter_is_written_in_the_sizes_it_is_read_in() -> None:
    norms = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.GroupNorm(1, 3)).eval()
    for parameter in norms.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 4)
    exe = compile(norms, (x,), "tensorrt", freeze=True)
    torch.testing.assert_close(exe(x), norms(x))
    layers = exe.ir["tensorrt"].splitlines()
    assert sum(" = SHUFFLE" in line for line in layers) == 2  # what is a group, and back
    sizes = [line.partition("FLOAT")[2].partition(" = ")[0] for line in layers if " = CONSTANT" in line]
    assert sizes == ["[1, 1, 4]"] * 2 + ["[1, 1, 12]"] * 2 + ["[1, 3, 1]"] * 2
