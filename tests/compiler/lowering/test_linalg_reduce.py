"""reduce, arg_reduce and contract: every dtype, special values, accuracy of long sums, checks."""

from __future__ import annotations

import math

import pytest
import torch

from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.ops.reduction import REDUCE_KINDS
from torchstone.compiler.runtime.cpu.bridge import torch_dtype
from torchstone.compiler.transforms.builder import Builder

from .harness import evaluate, of, primitive, run, special, ulps

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

DTYPES = [d for d in dt.DTYPES if not (d.is_float and d.bits == 8)]


LOWEST = torch.iinfo(torch.int64).min


def random(dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + dtype.bits)
    if dtype.is_bool:
        return torch.rand(shape, generator=generator) > 0.3
    if dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex64, generator=generator).to(torch_dtype(dtype))
    if dtype.is_float:
        return torch.randn(shape, generator=generator).to(torch_dtype(dtype))
    # Of all bits: sums and products wrap, and the sign bit decides the order.
    return torch.randint(LOWEST, -LOWEST - 1, shape, generator=generator).to(torch_dtype(dtype))


def factors(dtype: DType, shape: tuple[int, ...]) -> torch.Tensor:
    """Return operands whose product, however long, neither overflows nor vanishes: odd, or of magnitude about one."""
    x = random(dtype, shape)
    if dtype.is_int:
        return (x.to(torch.int64) | 1).to(x.dtype)
    generator = torch.Generator().manual_seed(1 + sum(shape))
    if not dtype.is_complex:
        return (torch.rand(shape, generator=generator) / 4 - 0.125).exp2().to(x.dtype).copysign(x)
    angle = torch.rand(shape, generator=generator) * math.tau
    return torch.polar((torch.rand(shape, generator=generator) / 4 - 0.125).exp2(), angle).to(x.dtype)


def reference(graph: Graph, tensors: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Evaluate in the widest dtype of the class, where eager has every kernel; integers wrap to ``dtype``.

    uint64 has the bits of int64 in sums and products; for a comparison its highest bit is flipped, there and back.
    """
    first = tensors[0]
    if first.is_complex() or first.dtype.is_floating_point:
        return evaluate(graph, [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in tensors])[0]
    if first.dtype is torch.bool:
        return evaluate(graph, tensors)[0]
    op = graph.ops[-1]
    flip = LOWEST if first.dtype is torch.uint64 and op.attributes.get("kind") not in (None, "sum", "prod") else 0
    (want,) = evaluate(graph, [t.to(torch.int64) ^ flip for t in tensors])
    return (want ^ flip if op.name == "flat.reduce" else want).to(dtype)


def bound(dtype: DType, roundings: int) -> float:
    """The error that the accumulator's width allows, in epsilons of the result (of a sum: of its magnitudes').

    Results of less than 64 bits are accumulated in more digits and rounded once, each part of a complex one by itself.
    float64 rounds ``roundings`` times half an epsilon, in the kernel and in the reference; a complex product of two
    rounds by sqrt(5) halves (Brent, Percival and Zimmermann, 2007).
    """
    if dtype.real.bits == 64:
        return max(1, roundings) * (math.sqrt(5) if dtype.is_complex else 1)
    return 0.75 if dtype.is_complex else 0.51


def compare(graph: Graph, tensors: list[torch.Tensor], most: float) -> None:
    """Compare with the reference: exactly, or for floats within ``most`` epsilons of the sum of magnitudes."""
    (got,) = run(graph, tensors)
    want = reference(graph, tensors, got.dtype)
    assert got.shape == want.shape
    if not (got.dtype.is_floating_point or got.is_complex()):
        assert torch.equal(got, want)
        return
    size = reference(graph, [t.to(want.dtype).abs().to(want.dtype) for t in tensors], want.dtype)
    eps = torch.finfo(got.dtype).eps
    error = (got.to(want.dtype) - want).abs() / (size.abs() + torch.finfo(got.dtype).tiny) / eps
    same = (got == want) | (got.isnan() & want.isnan())
    assert torch.where(same, torch.zeros_like(error), error).amax().item() <= most if error.numel() else True


# A dim, the outer two, all, two of no elements, none twice, and one that is long.
REDUCTIONS = [
    ((3, 4, 5), (1,)),
    ((3, 4, 5), (0, 2)),
    ((3, 4, 5), (0, 1, 2)),
    ((0, 3), (0,)),
    ((3, 0), (0,)),
    ((7,), ()),
    ((), ()),
    ((900,), (0,)),
]


def takes(kind: str, dtype: DType) -> bool:
    if kind in ("and", "or"):
        return dtype.is_bool
    return not dtype.is_bool and (kind in ("sum", "prod") or not dtype.is_complex)


@pytest.mark.few(10)
@pytest.mark.parametrize(("kind", "dtype"), [(k, d) for k in REDUCE_KINDS for d in DTYPES if takes(k, d)], ids=str)
def test_reduce(kind: str, dtype: DType) -> None:
    for shape, dims in REDUCTIONS:
        count = math.prod(shape[d] for d in dims)
        if count == 0 and kind in ("max", "min"):
            continue
        graph = primitive("reduce", TensorType(shape, dtype), kind=kind, dims=dims)
        tensors = [(factors if kind == "prod" else random)(dtype, shape)]
        # A float64 sum carries its rounding errors along, and eager's adds in blocks: four epsilons are both.
        compare(graph, tensors, bound(dtype, count if kind == "prod" else 4))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", REDUCE_KINDS)
def test_what_a_dtype_has_no_reduction_for(kind: str, dtype: DType) -> None:
    if takes(kind, dtype):
        primitive("reduce", TensorType((2,), dtype), kind=kind, dims=(0,))
        return
    with pytest.raises(VerifyError, match="takes"):
        primitive("reduce", TensorType((2,), dtype), kind=kind, dims=(0,))


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float32, dt.float64], ids=str)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_reduce_special_values(kind: str, dtype: DType) -> None:
    inf = torch.tensor([float("inf"), 1.0, -2.0], dtype=torch_dtype(dtype))
    both = torch.tensor([float("inf"), 1.0, -float("inf")], dtype=torch_dtype(dtype))
    large = torch.full((3,), torch.finfo(inf.dtype).max, dtype=inf.dtype)
    for x in (special(dtype), inf, -inf, both, large, inf.new_full((4,), -0.0)):
        graph = primitive("reduce", of(x), kind=kind, dims=(0,))
        (got,), (want,) = run(graph, [x]), evaluate(graph, [x])
        torch.testing.assert_close(got, want, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("count", [1000, 100_000])
def test_long_sums_are_as_good_as_correctly_rounded(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        x = (torch.rand(count, dtype=torch.float64, generator=generator) - 0.25).to(kind)
        (got,) = run(primitive("reduce", of(x), kind="sum", dims=(0,)), [x])
        exact = torch.tensor(math.fsum(x.tolist()), dtype=torch.float64)
        assert ulps(got.reshape(1), exact.reshape(1), kind).item() <= 1


@pytest.mark.few(23)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_float or d.is_int], ids=str)
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_arg_reduce(kind: str, dtype: DType) -> None:
    inputs = [(random(dtype, (3, 4, 5)), 1), (random(dtype, (300,)), 0), (random(dtype, (3, 0, 2)), 0)]
    if dtype.is_float:
        values = [[float("inf")] * 3, [-float("inf")] * 3, [1.0, 2.0, 2.0, 1.0, 1.0], [3.0, float("nan"), 4.0]]
        inputs += [(torch.tensor(v, dtype=torch_dtype(dtype)), 0) for v in values] + [(special(dtype), 0)]
    for x, dim in inputs:
        graph = primitive("arg_reduce", of(x), kind=kind, dim=dim)
        (got,) = run(graph, [x])
        assert torch.equal(got, reference(graph, [x], torch.int64))


CONTRACTIONS = {
    "matmul": ((4, 5), (5, 6), (), (), (1,), (0,)),
    "batched": ((2, 4, 5), (2, 5, 6), (0,), (0,), (2,), (1,)),
    "dot": ((5,), (5,), (), (), (0,), (0,)),
    "matrix-vector": ((4, 5), (5,), (), (), (1,), (0,)),
    "outer": ((3,), (4,), (), (), (), ()),
    "empty sum": ((3, 0), (0, 4), (), (), (1,), (0,)),
    "empty": ((0, 5), (5, 6), (), (), (1,), (0,)),
    "two sums, permuted": ((2, 3, 4, 5), (5, 3, 6, 2), (0,), (3,), (3, 1), (0, 1)),
    "long": ((2, 300), (300, 3), (), (), (1,), (0,)),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.is_bool], ids=str)
def test_contract(dtype: DType) -> None:
    for shape_a, shape_b, a_batch, b_batch, a_sum, b_sum in CONTRACTIONS.values():
        a, b = random(dtype, shape_a), random(dtype, shape_b)
        graph = primitive("contract", of(a), of(b), a_batch=a_batch, b_batch=b_batch, a_sum=a_sum, b_sum=b_sum)
        # 300 products of float64 round in the order of the loop, eager's in blocks: four epsilons of their magnitudes.
        compare(graph, [a, b], bound(dtype, 4))


def test_run_time_sizes() -> None:
    n, m, k = symbol("n"), symbol("m"), symbol("k")
    types = [TensorType((n, k), dt.float32), TensorType((k, m), dt.float32)]
    graph = primitive("contract", *types, a_batch=(), b_batch=(), a_sum=(1,), b_sum=(0,))
    b = Builder(graph.ops)
    product = graph.outputs[0]
    assert isinstance(product, Value)
    graph.outputs = (product, b.reduce(product, "max", (1,)), b.arg_reduce(product, kind="argmin", dim=0))
    kernel = TARGET.lower(graph).load()
    for sizes in [(2, 3, 4), (1, 1, 1), (7, 2, 0)]:
        x, y = torch.randn(sizes[0], sizes[2]), torch.randn(sizes[2], sizes[1])
        for got, want in zip(kernel([x, y]), evaluate(graph, [x, y]), strict=True):
            torch.testing.assert_close(got, want)


def test_a_sum_of_nothing_stored_knows_its_size() -> None:
    # size_value() in the expansions: the number of elements of a run-time size, with no tensor read.
    n = symbol("n")
    x = Value(TensorType((n,), dt.float32), "x")
    graph = Graph("f", [x])
    b = Builder(graph.ops)
    graph.outputs = (b.reduce(b.full(1, (n,), dt.int64), "sum", (0,)),)
    kernel = TARGET.lower(graph).load()
    assert [kernel([torch.zeros(size)])[0].item() for size in (0, 1, 17)] == [0, 1, 17]


def test_check_raises_its_message() -> None:
    x = Value(TensorType((3,), dt.int64), "x")
    graph = Graph("f", [x])
    b = Builder(graph.ops)
    nonzero = b.ne(x, b.full_like(x, 0))
    b.emit("check", b.reduce(nonzero, "and", (0,)), message="ZeroDivisionError")
    graph.outputs = (b.div(b.full_like(x, 12), x),)
    kernel = TARGET.lower(graph).load()
    assert kernel([torch.tensor([1, -5, 3])])[0].tolist() == [12, -2, 4]
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError$"):
        kernel([torch.tensor([1, 0, 3])])
