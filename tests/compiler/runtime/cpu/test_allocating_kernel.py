"""Functions that return buffers: ownership, aliasing, scalars, checks, torch-mlir's own ops."""

from __future__ import annotations

import ctypes
import gc

import pytest
import torch

from torchstone.compiler.diagnostics import GuardError, TorchstoneError
from torchstone.compiler.runtime.cpu import allocating_kernel
from torchstone.compiler.runtime.cpu.allocating_kernel import load_returning, run_returning

ROWS = """
ml_program.global private mutable @global_seed(dense<0> : tensor<i64>) : tensor<i64>
func.func @main(%a: tensor<?x3xf32>, %n: i64)
    -> (tensor<?x3xf32>, tensor<?x3xf32>, tensor<3x?xf32>, i64, tensor<?x3xf32>) {
  %c0 = arith.constant 0 : index
  %five = arith.constant 5 : index
  %d = tensor.dim %a, %c0 : tensor<?x3xf32>
  %ok = arith.cmpi ult, %d, %five : index
  cf.assert %ok, "at most four rows"
  %e = tensor.empty(%d) : tensor<?x3xf32>
  %sum = linalg.add ins(%a, %a : tensor<?x3xf32>, tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) -> tensor<?x3xf32>
  %et = tensor.empty(%d) : tensor<3x?xf32>
  %t = linalg.transpose ins(%sum : tensor<?x3xf32>) outs(%et : tensor<3x?xf32>) permutation = [1, 0]
  return %sum, %a, %t, %n, %sum : tensor<?x3xf32>, tensor<?x3xf32>, tensor<3x?xf32>, i64, tensor<?x3xf32>
}"""


class Heap:
    """An allocator that counts, on the C library's."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        self.live: set[int] = set()
        self.total = 0

        def alloc(size: int) -> int:
            address = libc.malloc(size)
            self.live.add(address)
            self.total += 1
            return address

        def free(address: int | None) -> None:
            if address:
                self.live.remove(address)
            libc.free(address)

        self._alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(alloc)
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)

    def addresses(self) -> dict[str, int]:
        functions = {"_mlir_memref_to_llvm_alloc": self._alloc, "_mlir_memref_to_llvm_free": self._free}
        return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in functions.items()}


@pytest.fixture
def heap(monkeypatch: pytest.MonkeyPatch) -> Heap:
    heap = Heap()
    monkeypatch.setattr(allocating_kernel, "allocator", heap.addresses)
    gc.collect()
    gc.freeze()  # what is there from before: the test collects again and again, and looks for what it makes itself
    return heap


def test_results_of_run_time_shape(heap: Heap) -> None:
    kernel = load_returning(ROWS)
    for rows in (4, 1, 0):
        x = torch.randn(rows, 3)
        total, same, transposed, n, again = kernel([x, 7])
        assert torch.equal(total, 2 * x) and torch.equal(transposed, 2 * x.t()) and torch.equal(again, total)
        assert torch.equal(same, x) and n == 7
        if rows:
            assert same.data_ptr() != x.data_ptr()
            assert again.data_ptr() != total.data_ptr(), "one value of the module, two results"


def test_every_allocation_is_freed_once(heap: Heap) -> None:
    kernel = load_returning(ROWS)
    for _ in range(5):
        results = kernel([torch.randn(4, 3), 1])
        gc.collect()
        assert heap.live
        keep = results[0]
        del results
        gc.collect()
        assert len(heap.live) == 1, "the result that is still held"
        assert keep.shape == (4, 3)
        del keep
    gc.collect()
    assert not heap.live and heap.total >= 15


def test_a_view_keeps_the_memory(heap: Heap) -> None:
    total = load_returning(ROWS)([torch.ones(4, 3), 1])[0]
    row = total[2]
    del total
    gc.collect()
    assert heap.live and row.tolist() == [2.0, 2.0, 2.0]
    del row
    gc.collect()
    assert not heap.live


def test_a_failed_assert_raises() -> None:
    kernel = load_returning(ROWS)
    with pytest.raises(RuntimeError, match=r"^at most four rows$"):
        kernel([torch.randn(5, 3), 1])
    assert kernel([torch.randn(2, 3), 1])[3] == 1


def test_arguments_are_never_written() -> None:
    text = """
    func.func @main(%a: tensor<4xi8>) -> tensor<4xi8> {
      %one = arith.constant 1 : i8
      %at = arith.constant 2 : index
      %r = tensor.insert %one into %a[%at] : tensor<4xi8>
      return %r : tensor<4xi8>
    }"""
    x = torch.tensor([250, 2, 3, 4], dtype=torch.uint8)
    (out,) = run_returning(text, [x], result_dtypes=[torch.uint8])
    assert out.tolist() == [250, 2, 1, 4] and out.dtype == torch.uint8
    assert x.tolist() == [250, 2, 3, 4]


def test_scalars_and_bools_cross() -> None:
    assert run_returning("func.func @f(%a: i64) -> i64 { return %a : i64 }", [-4]) == (-4,)
    text = "func.func @f(%a: f64, %b: f32) -> (f64, f32) { return %a, %b : f64, f32 }"
    assert run_returning(text, [2.5, 1]) == (2.5, 1.0)
    (out,) = run_returning(
        "func.func @main(%a: tensor<3xi1>) -> tensor<3xi1> { return %a : tensor<3xi1> }",
        [torch.tensor([True, False, True])],
    )
    assert out.tolist() == [True, False, True]


def test_constants_are_not_handed_out() -> None:
    t = "tensor<2xf64>"
    text = f"func.func @main() -> {t} {{ %c = arith.constant dense<[1.5, 2.0]> : {t} return %c : {t} }}"
    kernel = load_returning(text)
    kernel([])[0].zero_()
    assert kernel([])[0].tolist() == [1.5, 2.0]


def test_strided_arguments_are_read_by_value() -> None:
    text = "func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> { return %a : tensor<2x3xf32> }"
    x = torch.randn(3, 2).t()
    assert torch.equal(run_returning(text, [x])[0], x)


def test_what_does_not_fit_is_refused() -> None:
    kernel = load_returning(ROWS)
    with pytest.raises(GuardError, match=r"argument 0: expected memref<\?x3xf32>, got float32\[3\]"):
        kernel([torch.zeros(3), 1])
    with pytest.raises(GuardError, match="argument 1: expected a i64, got a tensor"):
        kernel([torch.zeros(2, 3), torch.tensor(1)])
    with pytest.raises(GuardError, match="expected 2 arguments, got 1"):
        kernel([torch.zeros(2, 3)])
    with pytest.raises(TorchstoneError, match=r"no function main .it has f, g"):
        load_returning("func.func @f() { return } func.func @g() { return }")


def test_what_passes_show_to_be_invalid_is_an_error() -> None:
    """The padding would begin one element in front of the result: upstream's lowering writes there."""
    text = """
    func.func @main(%a: tensor<3xf32>) -> tensor<4xf32> {
      %zero = arith.constant 0.0 : f32
      %out = tensor.pad %a low[-1] high[2] {
      ^bb0(%i: index):
        tensor.yield %zero : f32
      } : tensor<3xf32> to tensor<4xf32>
      return %out : tensor<4xf32>
    }"""
    with pytest.raises(TorchstoneError, match="expected offsets to be non-negative, but got -1"):
        load_returning(text)


def test_ops_of_torch_mlir_itself() -> None:
    text = """
    func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<4xf32>
      %out = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %s = tensor.empty() : tensor<f32>
      %acc = linalg.fill ins(%zero : f32) outs(%s : tensor<f32>) -> tensor<f32>
      %r:2 = tm_tensor.scan dimension(0) inclusive(true)
          ins(%a : tensor<4xf32>) outs(%out, %acc : tensor<4xf32>, tensor<f32>) {
      ^bb0(%x: f32, %y: f32):
        %t = arith.addf %x, %y : f32
        tm_tensor.yield %t : f32
      } -> tensor<4xf32>, tensor<f32>
      return %r#0 : tensor<4xf32>
    }"""
    assert run_returning(text, [torch.tensor([1.0, 2.0, 3.0, 4.0])])[0].tolist() == [1.0, 3.0, 6.0, 10.0]


def test_each_step_of_bfloat16_is_rounded() -> None:
    text = """
    #map = affine_map<(i) -> (i)>
    func.func @main(%a: tensor<?xbf16>, %b: tensor<?xbf16>) -> tensor<?xbf16> {
      %r = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%a : tensor<?xbf16>) outs(%b : tensor<?xbf16>) {
      ^bb0(%x: bf16, %y: bf16):
        %product = arith.mulf %x, %y : bf16
        %rest = arith.subf %product, %y : bf16
        linalg.yield %rest : bf16
      } -> tensor<?xbf16>
      return %r : tensor<?xbf16>
    }"""
    a, b = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(run_returning(text, [a, b])[0], a * b - b)
