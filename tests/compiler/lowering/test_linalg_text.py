"""FlatIR text in, linalg text out: what is fused, what is stored, how wide sums are, where an op came from."""

from __future__ import annotations

import re
import textwrap

import pytest

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph
from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.lowering.linalg.build import build


def linalg(text: str) -> str:
    return TARGET.lower(parse_graph(textwrap.dedent(text))).texts["linalg"]()


def test_an_elementwise_chain_is_one_loop_nest_read_through_views() -> None:
    out = linalg("""\
        graph @f(%x: f32[4, 5], %y: f32[5, 1]) {
          %0: f32[1, 5] = flat.transpose(%y) {permutation=[1, 0]}
          %1: f32[5] = flat.reshape(%0) {shape=[5]}
          %2: f32[4, 5] = flat.broadcast(%1) {shape=[4, 5], dims=[1]}
          %3: f32[4, 5] = flat.add(%x, %2)
          %4: f32[4, 5] = flat.reverse(%3) {dims=[0]}
          return %4
        }
    """)
    expected = """\
        #map = affine_map<(d0, d1) -> (-d0 + 3, d1)>
        #map1 = affine_map<(d0, d1) -> (d1, 0)>
        #map2 = affine_map<(d0, d1) -> (d0, d1)>
        module {
          func.func @main(%arg0: tensor<4x5xf32>, %arg1: tensor<5x1xf32>) -> tensor<4x5xf32> {
            %0 = tensor.empty() : tensor<4x5xf32>
            %1 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel"]} \
ins(%arg0, %arg1 : tensor<4x5xf32>, tensor<5x1xf32>) outs(%0 : tensor<4x5xf32>) {
            ^bb0(%in: f32, %in_0: f32, %out: f32):
              %2 = arith.addf %in, %in_0 : f32
              linalg.yield %2 : f32
            } -> tensor<4x5xf32>
            return %1 : tensor<4x5xf32>
          }
        }
        """
    assert out.strip() == textwrap.dedent(expected).strip()


def test_work_is_not_repeated() -> None:
    # sin is used by two loop nests and by a broadcast: it is stored once.
    out = linalg("""\
        graph @f(%x: f32[4, 5]) {
          %0: f32[4, 5] = flat.sin(%x)
          %1: f32[4] = flat.reduce(%0) {kind="sum", dims=[1]}
          %2: f32[4] = flat.cos(%1)
          %3: f32[4, 5] = flat.broadcast(%2) {shape=[4, 5], dims=[0]}
          %4: f32[4, 5] = flat.div(%0, %3)
          return %4
        }
    """)
    assert out.count("math.sin") == 1 and out.count("math.cos") == 1
    assert out.count("linalg.generic") == 5, "sin, sum in f64, its rounding, cos, div"


@pytest.mark.parametrize(
    ("dtype", "first", "stored"),
    [
        ("f32", "flat.sub(%x, %y)", False),
        ("i64", "flat.mul(%x, %y)", False),
        ("f32", "flat.div(%x, %y)", True),
        ("bf16", "flat.sub(%x, %y)", True),
        ("c64", "flat.mul(%x, %y)", True),
    ],
)
def test_one_instruction_is_repeated_rather_than_stored(dtype: str, first: str, stored: bool) -> None:
    out = linalg(f"""\
        graph @f(%x: {dtype}[4, 5], %y: {dtype}[4, 5]) {{
          %0: {dtype}[4, 5] = {first}
          %1: {dtype}[4, 5] = flat.mul(%0, %0)
          %2: {dtype}[4] = flat.reduce(%1) {{kind="sum", dims=[1]}}
          %3: {dtype}[4, 5] = flat.broadcast(%2) {{shape=[4, 5], dims=[0]}}
          %4: {dtype}[4, 5] = flat.mul(%0, %3)
          return %4
        }}
    """)
    full = re.findall(r"outs\(%\w+ : tensor<4x5x\w+", out)
    assert len(full) == 1 + stored


def test_short_floats_are_summed_in_wider_ones() -> None:
    out = linalg("""\
        graph @f(%x: f16[8]) {
          %0: f16[] = flat.reduce(%x) {kind="sum", dims=[0]}
          return %0
        }
    """)
    assert "arith.extf %in : f16 to f64" in out
    assert out.count("arith.truncf") == 2, "f64 to f32 to f16, as eager rounds"


def test_bools_are_bytes_and_checks_are_asserts() -> None:
    out = linalg("""\
        graph @f(%x: bool[3]) {
          %0: bool[] = flat.reduce(%x) {kind="and", dims=[0]}
          flat.check(%0) {message="all must hold"}
          return %x
        }
    """)
    assert "func.func @main(%arg0: tensor<3xi8>) -> tensor<3xi8>" in out
    assert re.search(r'%(\w+) = arith.cmpi ne, .*\n.*cf.assert %\1, "all must hold"', out)


def test_run_time_sizes_come_from_the_arguments() -> None:
    out = linalg("""\
        graph @f(%x: f32[n, 4]) {
          %0: f32[4*n] = flat.reshape(%x) {shape=[<4*n>]}
          %1: f32[8*n] = flat.concat(%0, %0) {dim=0}
          return %1
        }
    """)
    assert "tensor.dim %arg0, %c0 : tensor<?x4xf32>" in out
    assert "tensor.collapse_shape %arg0 [[0, 1]] : tensor<?x4xf32> into tensor<?xf32>" in out
    assert out.count("tensor.insert_slice") == 2


def test_locations_name_the_op_and_the_line_of_the_user() -> None:
    graph = parse_graph(
        'graph @f(%x: f32[2]) {\n  %0: f32[2] = flat.neg(%x) at "model.py":7:"forward"\n  return %0\n}\n'
    )
    module, work = build(graph, [graph.ops[0].result])
    text = module.operation.get_asm(enable_debug_info=True)
    assert re.search(r'#(loc\d*) = loc\("model.py":7:0\)', text)
    assert re.search(r'= loc\("flat.neg"\(#loc\d*\)\)', text)
    assert work == 2


def test_what_cannot_be_lowered_is_unsupported() -> None:
    graph = parse_graph("graph @f(%x: f32[n]) {\n  %0: f32[m] = flat.iota() {size=<m>, dtype=f32}\n  return %0\n}\n")
    with pytest.raises(Unsupported, match="the size m is not the size of any argument") as caught:
        TARGET.lower(graph)
    assert caught.value.stage == "lower"


def test_a_graph_without_tensors_or_ops() -> None:
    kernel = TARGET.lower(Graph("f", [], [], (3, None))).load()
    assert kernel([]) == (3, None)
