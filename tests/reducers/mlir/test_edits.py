"""Edits of modules, text in and text out."""

import pytest

from torchstone.reducers.mlir import edits

MODULE = """module {
  func.func @main(%arg0: tensor<4x8xf32>, %arg1: i1) -> (tensor<4x8xf32>, i1) {
    %cst = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
    %0 = arith.addf %arg0, %arg0 : tensor<4x8xf32>
    %1 = scf.if %arg1 -> (tensor<4x8xf32>) {
      %2 = arith.mulf %0, %0 : tensor<4x8xf32>
      scf.yield %2 : tensor<4x8xf32>
    } else {
      scf.yield %0 : tensor<4x8xf32>
    }
    return %1, %arg1 : tensor<4x8xf32>, i1
  }
}
"""


def number(name: str, text: str = MODULE) -> int:
    module = edits.parsed(text)
    return [op.name for op in edits.every_op(module)].index(name)


def body(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if " = " in line or "return" in line]


def test_what_an_op_gave_comes_from_an_argument() -> None:
    module = edits.parsed(MODULE)
    at = [op.name for op in filter(edits.removable, edits.every_op(module))].index("arith.addf")
    found = edits.without_ops(MODULE, {at})
    assert "%arg2: tensor<4x8xf32>" in found and "addf" not in found
    assert "arith.mulf %arg2, %arg2" in found


def test_all_that_can_go_goes_at_once() -> None:
    assert edits.without_ops(MODULE, range(edits.count_removable(MODULE))) == "module {\n}\n"


def test_users_take_an_operand() -> None:
    found = edits.edited(MODULE, edits.BYPASS, number("arith.mulf"))
    assert "mulf" not in found and "scf.yield %0" in found
    assert number("scf.if") not in [
        at for at, _ in edits.places(MODULE, edits.BYPASS)
    ]  # its condition has another type


def test_a_region_takes_its_ops_place() -> None:
    found = edits.edited(MODULE, edits.HOIST, number("scf.if"))
    assert body(found)[-2:] == ["%1 = arith.mulf %0, %0 : tensor<4x8xf32>", "return %1, %arg1 : tensor<4x8xf32>, i1"]


def test_a_function_returns_less_and_takes_less() -> None:
    fewer = edits.edited(MODULE, edits.DROP_RESULT, number("func.func"), 0)
    assert "-> i1 {" in fewer
    assert edits.places(fewer, edits.DROP_ARGUMENTS) == []  # both are used
    used = edits.edited(MODULE, edits.DROP_RESULT, number("func.func"), 1)
    hoisted = edits.edited(used, edits.HOIST, number("scf.if", used))
    found = edits.edited(hoisted, edits.DROP_ARGUMENTS, number("func.func", hoisted))
    assert "@main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32>" in found


def test_a_constant_has_one_number() -> None:
    found = edits.edited(MODULE, edits.SIMPLIFY_ATTRIBUTE, number("arith.constant"))
    assert "dense<1.000000e+00> : tensor<2xf32>" in found


@pytest.mark.parametrize(
    ("everywhere", "expected"),
    [
        (False, "tensor<2x8x?xf32>, memref<2x2x[8]xi8>, vector<14xi1> sizes = [4, 8]"),
        (True, "tensor<2x8x?xf32>, memref<2x2x[8]xi8>, vector<14xi1> sizes = [2, 8]"),
    ],
)
def test_a_length_is_replaced_in_every_type(everywhere: bool, expected: str) -> None:
    text = "tensor<4x8x?xf32>, memref<4x4x[8]xi8>, vector<14xi1> sizes = [4, 8]"
    assert edits.lengths(text) == ["14", "8", "4"]
    assert edits.with_length(text, "4", "2", everywhere) == expected


def test_element_types_are_narrowed_and_names_are_not() -> None:
    assert list(edits.narrowed("func @f64(%f64: f64, %x: tensor<4xf64>)")) == [
        "func @f64(%f64: f32, %x: tensor<4xf32>)"
    ]


@pytest.mark.parametrize(
    "function",
    [
        'spirv.func @f(%a: f32) -> f32 "None" { %0 = spirv.FAdd %a, %a : f32 %1 = spirv.FMul %0, %a : f32 '
        "spirv.ReturnValue %1 : f32 }",
        "llvm.func @f(%a: f32) -> !llvm.struct<(f32, ptr)> { %0 = llvm.fadd %a, %a : f32 "
        "%u = llvm.mlir.undef : !llvm.struct<(f32, ptr)> "
        "%1 = llvm.insertvalue %0, %u[0] : !llvm.struct<(f32, ptr)> llvm.return %1 : !llvm.struct<(f32, ptr)> }",
        "emitc.func @f(%a: f32) -> f32 { %0 = emitc.add %a, %a : (f32, f32) -> f32 emitc.return %0 : f32 }",
    ],
    ids=["spirv", "llvm", "emitc"],
)
def test_functions_of_other_dialects_take_new_arguments(function: str) -> None:
    """Passes leave functions that are no ``func.func``: what an op gave comes from an argument there as well."""
    module = edits.printed(edits.parsed(f"module {{ {function} }}"))
    removable = edits.count_removable(module)
    less = edits.without_ops(module, {removable - 1})
    assert edits.count_ops(less) == edits.count_ops(module) - 1
    assert "%arg1" in less
    edits.parsed(less)
