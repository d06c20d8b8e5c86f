"""Kernels on torch tensors: layouts, dtypes, shapes, checks, results that torch owns."""

from __future__ import annotations

import ctypes
import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch

import torchstone
from torchstone.compiler._torch.tensors import is_zero_tensor
from torchstone.compiler.diagnostics import GuardError, TorchstoneError
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.runtime.cpu import jit
from torchstone.compiler.runtime.cpu.bridge import IR_DTYPES, TORCH_DTYPES
from torchstone.compiler.runtime.cpu.cache import CACHE
from torchstone.compiler.runtime.cpu.kernel import CpuKernel


def copy(shape: str, element: str) -> str:
    t = f"tensor<{shape}{element}>"
    return f"func.func @main(%a: {t}) -> {t} {{ return %a : {t} }}"


def add(shape: str, sizes: str = "", setup: str = "") -> str:
    t = f"tensor<{shape}xf32>"
    return f"""
    func.func @main(%a: {t}, %b: {t}) -> {t} {{
      {setup}
      %e = tensor.empty({sizes}) : {t}
      %r = linalg.add ins(%a, %b : {t}, {t}) outs(%e : {t}) -> {t}
      return %r : {t}
    }}"""


F32 = TensorType((4, 6), dt.float32)
ADD = add("4x6")


@pytest.fixture(scope="module")
def adder() -> CpuKernel:
    return CpuKernel(ADD, inputs=[F32, F32], results=[F32])


LAYOUTS = {
    "contiguous": lambda: torch.randn(4, 6),
    "transposed": lambda: torch.randn(6, 4).t(),
    "sliced": lambda: torch.randn(8, 13)[1::2, 1::2],
    "offset": lambda: torch.randn(30)[6:].reshape(4, 6),
    "expanded": lambda: torch.randn(1, 6).expand(4, 6),
    "one element": lambda: torch.randn(()).expand(4, 6),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reads_any_layout_in_place(adder: CpuKernel, layout: str) -> None:
    a, b = LAYOUTS[layout](), torch.randn(4, 6)
    before = a.clone()
    (out,) = adder([a, b])
    assert torch.equal(out, a + b)
    assert torch.equal(a, before)
    assert out.is_contiguous()


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("name", sorted(TORCH_DTYPES))
@pytest.mark.parametrize("transposed", [False, True], ids=["contiguous", "strided"])
def test_every_dtype_moves_bit_for_bit(name: str, transposed: bool) -> None:
    dtype = dt.BY_NAME[name]
    size = TORCH_DTYPES[name].itemsize
    raw = torch.arange(12 * size, dtype=torch.int64).mul(37).to(torch.uint8)
    if dtype.is_bool:
        raw = raw % 2
    x = raw.view(TORCH_DTYPES[name]).reshape(3, 4)
    x = x.t() if transposed else x
    spec = TensorType(tuple(x.shape), dtype)
    element = "i8" if dtype.is_float and dtype.bits == 8 else dtype.mlir
    (out,) = CpuKernel(copy("x".join(map(str, x.shape)) + "x", element), inputs=[spec], results=[spec])([x])
    assert out.dtype == x.dtype
    assert out.data_ptr() != x.data_ptr()
    as_bytes = torch.uint8 if size == 1 else {2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}[size]
    expected = torch.empty(x.shape, dtype=x.dtype).copy_(x)
    assert torch.equal(out.view(as_bytes), expected.view(as_bytes))


def test_lazy_conjugate_and_negative_bits_are_applied() -> None:
    spec = TensorType((2,), dt.complex64)
    kernel = CpuKernel(copy("2x", "complex<f32>"), inputs=[spec], results=[spec])
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(kernel([x.conj()])[0], x.conj().resolve_conj())
    real = TensorType((2,), dt.float32)
    negated = torch._neg_view(torch.tensor([1.0, -2.0]))
    (out,) = CpuKernel(copy("2x", "f32"), inputs=[real], results=[real])([negated])
    assert out.tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bool], ids=str)
@pytest.mark.parametrize("view", [torch.t, torch.Tensor.conj, lambda x: x[1:], lambda x: x.expand(2, 2, 3)])
def test_zeros_for_which_pytorch_takes_no_memory_are_read(
    dtype: torch.dtype, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    zeros, some = view(torch._efficientzerotensor((2, 3), dtype=dtype)), torch.arange(6, dtype=torch.float32)
    assert is_zero_tensor(zeros)

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x.flatten()[:3] == 0, y[:3], y[3:])

    exe = torchstone.compile(program, (torch.ones(zeros.shape, dtype=dtype), some))
    assert torch.equal(exe(zeros, some), some[:3])


def test_0d_and_empty() -> None:
    scalar = TensorType((), dt.float64)
    (out,) = CpuKernel(copy("", "f64"), inputs=[scalar], results=[scalar])([torch.tensor(2.5, dtype=torch.float64)])
    assert out.shape == () and out.item() == 2.5
    empty = TensorType((0, 3), dt.int64)
    (out,) = CpuKernel(copy("0x3x", "i64"), inputs=[empty], results=[empty])([torch.empty(0, 3, dtype=torch.int64)])
    assert out.shape == (0, 3)


def test_results_are_distinct_memory() -> None:
    spec = TensorType((3,), dt.float32)
    t = "tensor<3xf32>"
    text = f"func.func @main(%a: {t}) -> ({t}, {t}) {{ return %a, %a : {t}, {t} }}"
    x = torch.tensor([1.0, 2.0, 3.0])
    a, b = CpuKernel(text, inputs=[spec], results=[spec, spec])([x])
    a.add_(1)
    assert b.tolist() == x.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("size", [70, symbol("n"), 0])
def test_results_are_known_to_be_memory_of_their_own(size: int) -> None:
    kind = "?" if not isinstance(size, int) else size
    tensor = f"tensor<{kind}xf32>"
    text = f"""func.func @main(%a: {tensor}, %b: {tensor}) -> ({tensor}, {tensor}) {{
      %0 = linalg.exp ins(%a : {tensor}) outs(%b : {tensor}) -> {tensor}
      return %0, %a : {tensor}, {tensor}
    }}"""
    spec = TensorType((size,), dt.float32)
    kernel = CpuKernel(text, inputs=[spec, spec], results=[spec, spec])
    (signature,) = (line for line in kernel.llvm().splitlines() if "@main" in line)
    arguments = signature.split("(")[1].split(",")
    marked = [i for i, a in enumerate(arguments) if "noalias" in a]
    assert marked == ([2, 3] if size == 70 else [11, 16])


LOOPS = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %start = linalg.fill ins(%one : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%a = %start) -> (tensor<4x8xf32>) {
    %n = scf.for %j = %c0 to %c8 step %c1 iter_args(%t = %a) -> (tensor<4x8xf32>) {
      %v = tensor.extract %x[%i, %j] : tensor<4x8xf32>
      %w = tensor.extract %t[%i, %j] : tensor<4x8xf32>
      %s = arith.addf %v, %w : f32
      %u = tensor.insert %s into %t[%i, %j] : tensor<4x8xf32>
      scf.yield %u : tensor<4x8xf32>
    }
    scf.yield %n : tensor<4x8xf32>
  }
  return RETURNED
}"""


@pytest.mark.parametrize("twice", [False, True])
def test_loops_compute_in_the_memory_of_the_result(twice: bool) -> None:
    """And what they began with is still there where it is a result too."""
    kind = TensorType((4, 8), dt.float32)
    module = LOOPS.replace("RETURNED", "%start, %r : KIND, KIND" if twice else "%r : KIND")
    module = module.replace("-> tensor<4x8xf32> {\n  %c0", "-> (KIND, KIND) {\n  %c0" if twice else "-> KIND {\n  %c0")
    kernel = CpuKernel(module.replace("KIND", "tensor<4x8xf32>"), inputs=[kind], results=[kind] * (1 + twice))
    x = torch.randn(4, 8)
    *start, out = kernel([x])
    assert torch.equal(out, 1 + torch.cat([x[:3], torch.zeros(1, 8)]))
    assert all(torch.equal(s, torch.ones(4, 8)) for s in start)
    assert twice or "memcpy" not in kernel.llvm()


def test_the_same_tensor_may_be_passed_twice(adder: CpuKernel) -> None:
    x = torch.randn(4, 6)
    assert torch.equal(adder([x, x])[0], x + x)


def test_run_time_sizes() -> None:
    setup = """%zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %d0 = tensor.dim %a, %zero : tensor<?x?xf32>
      %d1 = tensor.dim %a, %one : tensor<?x?xf32>"""
    spec = TensorType((symbol("n"), symbol("m")), dt.float32)
    kernel = CpuKernel(add("?x?", "%d0, %d1", setup), inputs=[spec, spec], results=[spec])
    for shape in [(3, 4), (1, 1), (0, 5), (70, 9)]:
        a, b = torch.randn(shape), torch.randn(shape[::-1]).t()
        assert torch.equal(kernel([a, b])[0], a + b)
    with pytest.raises(GuardError, match=r"argument 1: size n of dim 0 is 3, got 2"):
        kernel([torch.randn(3, 4), torch.randn(2, 4)])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([torch.zeros(4, 6)], "expected 2 tensors, got 1"),
        ([torch.zeros(4, 5), torch.zeros(4, 6)], r"argument 0: expected f32\[4, 6\], got float32\[4, 5\]"),
        ([torch.zeros(4, 6), torch.zeros(4, 6, dtype=torch.float64)], "argument 1: expected f32"),
        ([torch.zeros(4, 6, device="meta"), torch.zeros(4, 6)], "strided tensor on cpu, got .* on meta"),
        ([torch.zeros(4, 6).to_sparse(), torch.zeros(4, 6)], "strided tensor on cpu, got torch.sparse_coo"),
        ([1.0, torch.zeros(4, 6)], "argument 0: expected a tensor, got float"),
    ],
)
def test_what_does_not_fit_is_refused(adder: CpuKernel, args: list, message: str) -> None:
    with pytest.raises(GuardError, match=message):
        adder(args)


GUARDED = """
func.func @main(%a: tensor<3xi64>, %flag: tensor<i1>) -> tensor<3xi64> {
  %ok = tensor.extract %flag[] : tensor<i1>
  cf.assert %ok, "the flag must be set"
  %zero = arith.constant 0 : index
  %first = tensor.extract %a[%zero] : tensor<3xi64>
  %c0 = arith.constant 0 : i64
  %positive = arith.cmpi sgt, %first, %c0 : i64
  cf.assert %positive, "the first element must be positive, ünicode and all"
  return %a : tensor<3xi64>
}"""


def test_a_failed_check_raises_and_the_process_lives() -> None:
    spec, flag = TensorType((3,), dt.int64), TensorType((), dt.boolean)
    kernel = CpuKernel(GUARDED, inputs=[spec, flag], results=[spec])
    good, on, off = torch.tensor([1, 2, 3]), torch.tensor(True), torch.tensor(False)
    with pytest.raises(RuntimeError, match=r"^the flag must be set$"):
        kernel([good, off])
    with pytest.raises(RuntimeError, match=r"^the first element must be positive, ünicode and all$"):
        kernel([-good, on])
    assert torch.equal(kernel([good, on])[0], good)


UNKNOWN_CALLEE = """
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %r = func.call @no_such_function(%a) : (tensor<2xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}"""


ALLOCATING = """
func.func @main(%x: tensor<?xf32>) -> tensor<f32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %small = arith.constant 3.0 : f32
  %large = arith.constant 5.0 : f32
  %n = tensor.dim %x, %zero : tensor<?xf32>
  %empty = tensor.empty(%n) : tensor<?xf32>
  %a = linalg.exp ins(%x : tensor<?xf32>) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %first = tensor.extract %a[%zero] : tensor<?xf32>
  %ok = arith.cmpf olt, %first, %large : f32
  cf.assert %ok, "before the second buffer"
  %b = linalg.exp ins(%a : tensor<?xf32>) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %start = tensor.extract %b[%zero] : tensor<?xf32>
  %sum = scf.for %i = %zero to %n step %one iter_args(%total = %start) -> f32 {
    %c = linalg.exp ins(%b : tensor<?xf32>) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
    %y = tensor.extract %c[%i] : tensor<?xf32>
    %fine = arith.cmpf olt, %y, %small : f32
    cf.assert %fine, "in the loop"
    %z = tensor.extract %a[%i] : tensor<?xf32>
    %next = arith.addf %total, %z : f32
    scf.yield %next : f32
  }
  %out = tensor.from_elements %sum : tensor<f32>
  return %out : tensor<f32>
}
"""


def test_small_buffers_are_on_the_stack_as_long_as_there_is_room() -> None:
    t = "tensor<32x32xf32>"  # 4 KiB, of 16
    steps = "".join(
        f"%e{i} = tensor.empty() : {t}\n"
        f"%v{i + 1} = linalg.transpose ins(%v{i} : {t}) outs(%e{i} : {t}) permutation = [1, 0]\n"
        for i in range(7)
    )
    spec = TensorType((32, 32), dt.float32)
    text = f"func.func @main(%v0: {t}) -> {t} {{\n{steps}return %v7 : {t}\n}}"
    kernel = CpuKernel(text, inputs=[spec], results=[spec], fused=True)
    x = torch.randn(32, 32)
    torch.testing.assert_close(kernel([x])[0], x.t(), rtol=0, atol=0)
    code = kernel.llvm()
    calls = [code.count(f"call @{name}(") for name in ("aligned_alloc", "free")]
    assert (code.count("llvm.alloca"), *calls) == (4, 2, 2)


class Usage(ctypes.Structure):
    """``struct mallinfo2`` of the C library."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    ))  # fmt: skip


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not say what is allocated")
@pytest.mark.parametrize(("value", "message"), [(2.0, "before the second"), (0.5, "in the loop"), (-9.0, None)])
def test_a_failed_check_frees_what_is_allocated(value: float, message: str | None) -> None:
    kernel = CpuKernel(
        ALLOCATING, inputs=[TensorType((symbol("n"),), dt.float32)], results=[TensorType((), dt.float32)]
    )
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Usage
    x = torch.full((2_000,), -9.0)
    x[:3] = torch.tensor([-9.0 if message == "in the loop" else value, -9.0, value])

    def calls(count: int) -> int:
        for _ in range(count):
            if message is None:
                kernel([x])
                continue
            with pytest.raises(RuntimeError, match=message):
                kernel([x])
        usage = mallinfo()
        return usage.uordblks + usage.hblkhd

    before = calls(3)
    assert calls(50) - before < 40_000  # five buffers: less than one in each call


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("func.func @main(", "parsing the MLIR module failed"),
        ("module {}", "no function main"),
        (UNKNOWN_CALLEE, "no_such_function"),
        ("func.func @main(%a: f32) -> f32 { return %a : f32 }", "no ranked tensor: f32"),
    ],
)  # fmt: skip
def test_bad_modules_are_compile_errors(module: str, message: str) -> None:
    spec = TensorType((2,), dt.float32)
    with pytest.raises(TorchstoneError, match=message) as caught:
        CpuKernel(module, inputs=[spec], results=[spec])
    assert caught.value.stage == "compile"


def test_a_missing_symbol_is_an_error_not_a_crash() -> None:
    text = """
    func.func private @torchstone_no_such_symbol(f32) -> f32
    func.func @main(%a: tensor<f32>) -> tensor<f32> {
      %x = tensor.extract %a[] : tensor<f32>
      %y = func.call @torchstone_no_such_symbol(%x) : (f32) -> f32
      %r = tensor.from_elements %y : tensor<f32>
      return %r : tensor<f32>
    }"""
    spec = TensorType((), dt.float32)
    with pytest.raises(TorchstoneError, match="needs torchstone_no_such_symbol, which nothing provides"):
        CpuKernel(text, inputs=[spec], results=[spec])


def test_bfloat16_between_blocks_keeps_every_value() -> None:
    # A scalar carried into a loop: LLVM holds it as a float32 and rounds it back on the way out.
    text = """
    func.func @main(%v: tensor<bf16>) -> tensor<2xbf16> {
      %e = tensor.empty() : tensor<2xbf16>
      %x = tensor.extract %v[] : tensor<bf16>
      %r = linalg.fill ins(%x : bf16) outs(%e : tensor<2xbf16>) -> tensor<2xbf16>
      return %r : tensor<2xbf16>
    }"""
    kernel = CpuKernel(text, inputs=[TensorType((), dt.bfloat16)], results=[TensorType((2,), dt.bfloat16)])
    for value in [1.0, -0.0, 1e-39, 3e38, float("inf"), float("nan")]:
        x = torch.tensor(value, dtype=torch.bfloat16)
        torch.testing.assert_close(kernel([x])[0], x.expand(2), rtol=0, atol=0, equal_nan=True)


def test_the_machine_code_dies_with_the_kernel() -> None:
    CACHE.clear()
    kernel = CpuKernel(ADD, inputs=[F32, F32], results=[F32])
    engine = weakref.ref(kernel._contiguous.function.engine)
    (out,) = kernel([torch.ones(4, 6), torch.ones(4, 6)])
    del kernel
    CACHE.clear()
    gc.collect()
    assert engine() is None
    assert out.sum().item() == 48


def test_dtypes_of_torch_and_mlir_are_one_table() -> None:
    assert {IR_DTYPES[t].name for t in TORCH_DTYPES.values()} == set(TORCH_DTYPES)
    assert set(TORCH_DTYPES) == {d.name for d in dt.DTYPES}


def test_a_double_becomes_a_half_through_a_float() -> None:
    """LLVM joins two roundings into a call that no C library here has; the stand-in makes two of it again."""
    from torchstone.compiler.mlir import bindings
    from torchstone.compiler.runtime.cpu import jit

    rounded = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_double)(jit.helpers(bindings())["__truncdfhf2"])
    exponents = torch.linspace(-9, 6, 2000, dtype=torch.float64)
    values = torch.cat(
        [torch.sin(exponents * 7) * 10**exponents, torch.tensor([0.0, -0.0, math.inf, 65519.9, 65520.0, 3e-8])]
    )
    bits = torch.tensor([rounded(v) for v in values.tolist()], dtype=torch.float32).view(torch.int32)
    assert torch.equal(bits.to(torch.int16), values.float().half().view(torch.int16))


def test_sizes_that_make_much_work_have_a_kernel_optimized_before_it_runs() -> None:
    n = symbol("n")
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %o = tensor.empty(%n) : tensor<?xf32>
      %r = linalg.exp ins(%x : tensor<?xf32>) outs(%o : tensor<?xf32>) -> tensor<?xf32>
      return %r : tensor<?xf32>
    }"""
    spec = TensorType((n,), dt.float32)
    kernel = CpuKernel(text, inputs=[spec], results=[spec], work=n * 1000)
    for size, level in ((4, jit.FAST_COMPILE), (jit.SMALL_WORK // 1000 + 1, jit.FAST_CODE), (5, jit.FAST_CODE)):
        x = torch.randn(size)
        torch.testing.assert_close(kernel([x])[0], x.exp())
        assert kernel._opt_level == level
