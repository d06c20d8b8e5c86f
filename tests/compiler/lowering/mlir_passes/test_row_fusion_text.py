"""Which loop nests are fused, by the affine maps of their operands: text in, text out."""

from __future__ import annotations

import pytest

from torchstone.compiler.lowering.mlir_passes import pipelines, row_nests
from torchstone.compiler.lowering.mlir_passes.row_fusion import fuse_rows
from torchstone.compiler.mlir import bindings


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_nests, "BLOCK", 8)


def fused(text: str) -> str:
    """Return the text of a module after the pass."""
    module = pipelines.parse(text)
    fuse_rows(module, bindings())
    assert module.operation.verify()
    return str(module)


SUM_AND_QUOTIENT = """
func.func @main(%x: memref<6x4xf32>, %sums: memref<6xf32>, %y: memref<6x4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<6x4xf32>) outs(%sums : memref<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                   affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sums : memref<6x4xf32>, memref<6xf32>) outs(%y : memref<6x4xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %quotient = arith.divf %in, %sum : f32
    linalg.yield %quotient : f32
  }
  return
}
"""

BLOCKS_OF_TWO_ROWS = """
func.func @main(%x: memref<6x4xf32>, %sums: memref<6xf32>, %y: memref<6x4xf32>) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %c2 = arith.constant 2 : index
  scf.for %row = %c0 to %c6 step %c2 {
    %x_block = memref.subview %x[%row, 0] [2, 4] [1, 1]
        : memref<6x4xf32> to memref<2x4xf32, strided<[4, 1], offset: ?>>
    %sums_block = memref.subview %sums[%row] [2] [1] : memref<6xf32> to memref<2xf32, strided<[1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                    iterator_types = ["parallel", "reduction"]}
        ins(%x_block : memref<2x4xf32, strided<[4, 1], offset: ?>>)
        outs(%sums_block : memref<2xf32, strided<[1], offset: ?>>) {
    ^bb0(%in: f32, %out: f32):
      %sum = arith.addf %in, %out : f32
      linalg.yield %sum : f32
    }
    %y_block = memref.subview %y[%row, 0] [2, 4] [1, 1]
        : memref<6x4xf32> to memref<2x4xf32, strided<[4, 1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                     affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        ins(%x_block, %sums_block
            : memref<2x4xf32, strided<[4, 1], offset: ?>>, memref<2xf32, strided<[1], offset: ?>>)
        outs(%y_block : memref<2x4xf32, strided<[4, 1], offset: ?>>) {
    ^bb0(%in: f32, %sum: f32, %out: f32):
      %quotient = arith.divf %in, %sum : f32
      linalg.yield %quotient : f32
    }
  }
  return
}
"""


def test_two_nests_become_one_loop_over_blocks_of_rows() -> None:
    assert fused(SUM_AND_QUOTIENT) == str(pipelines.parse(BLOCKS_OF_TWO_ROWS))


def write_and_read(buffer: str, written: str, read: str) -> str:
    """A module in which one nest writes a buffer at ``written`` of its loops, and the next reads it at ``read``."""
    body = "^bb0(%in: f32, %out: f32):\n linalg.yield %in : f32"
    kinds = 'iterator_types = ["parallel", "parallel"]'
    return f"""
        func.func @main(%x: memref<4x4xf32>, %t: memref<{buffer}xf32>, %y: memref<4x4xf32>) {{
          linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ({written})>], {kinds}}}
            ins(%x : memref<4x4xf32>) outs(%t : memref<{buffer}xf32>) {{ {body} }}
          linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({read})>, affine_map<(i, j) -> (i, j)>], {kinds}}}
            ins(%t : memref<{buffer}xf32>) outs(%y : memref<4x4xf32>) {{ {body} }}
          return
        }}"""


@pytest.mark.parametrize(
    ("buffer", "written", "read", "shares"),
    [
        ("4x4", "i, j", "i, j", True),
        ("4x4", "i, j", "i, 0", True),  # one element of its own row
        ("4x4", "i, j", "i, j floordiv 2", True),
        ("4x4", "i, j", "0, j", False),  # one row, which all others need
        ("4x4", "i, j", "j, i", False),
        ("4x4", "j, i", "j, i", False),  # the same, but rows are columns of the buffer
        ("4x4", "i, j", "3 - i, j", False),
        ("4x4", "i, j", "i floordiv 2, j", False),
        ("4x4", "i, j", "(i + 1) mod 4, j", False),
        ("4x4x4", "i, j, i", "i, j, i", False),  # a loop over a diagonal
        ("7x4", "i * 2, j", "i * 2, j", False),  # every other row
        ("7", "i + j", "i + j", False),  # windows overlap
    ],
)
def test_a_nest_is_fused_where_it_reads_its_own_rows_only(buffer: str, written: str, read: str, shares: bool) -> None:
    text = write_and_read(buffer, written, read)
    untouched = str(pipelines.parse(text))
    assert ("scf.for" in fused(text)) is shares
    assert shares or fused(text) == untouched
