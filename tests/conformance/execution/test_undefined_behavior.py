"""Eager is not run on what it would corrupt memory with: indices of maxima that are none of the input's."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import torch
from variant_cases import case

from torchstone.conformance.execution.undefined_behavior import UndefinedBehavior, rules_checked, undefined_behavior
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants import backward as variant
from torchstone.reducers.edit import has_special_values

G, X, AT = Ref("g"), Ref("x"), Ref("i")
BACKWARDS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "max_pool2d_with_indices_backward": (2, (G, X, [2, 2], [1, 1], [0, 0], [1, 1], False, AT)),
    "max_pool3d_with_indices_backward": (3, (G, X, [2] * 3, [1] * 3, [0] * 3, [1] * 3, False, AT)),
    "adaptive_max_pool2d_backward": (2, (G, X, AT)),
    "adaptive_max_pool3d_backward": (3, (G, X, AT)),
}


def backward(name: str, index: int) -> Case:
    """The gradient of a pool of windows of 2 over 3 in each dim, the last of whose maxima is said to be at an index."""
    dims, args = BACKWARDS[name]
    x = torch.randn(1, 1, *[3] * dims, generator=torch.Generator().manual_seed(0))
    indices = torch.zeros(1, 1, *[2] * dims, dtype=torch.int64)
    indices.view(-1)[-1] = index
    call = Call(f"torch.ops.aten.{name}.default", args, {}, "y")
    inputs = {"g": torch.ones(indices.shape), "x": x, "i": indices}
    return Case(Program(("g", "x", "i"), (call,), Ref("y")), inputs, "test", name, "float32")


@pytest.mark.parametrize("name", BACKWARDS)
def test_a_maximum_outside_the_input_is_unsafe(name: str) -> None:
    dims, _ = BACKWARDS[name]
    for index in (0, 3**dims - 1):
        assert undefined_behavior(backward(name, index)) == ""
        assert has_special_values(backward(name, index)) is False
    for index in (3**dims, 10**8, -2):
        assert name in undefined_behavior(backward(name, index))
        assert (
            has_special_values(backward(name, index)) is None
        )  # a reduction does not try it: it would end this process
    # A window of nothing but padding has no maximum, but for adaptive pools, whose windows have elements.
    assert bool(undefined_behavior(backward(name, -1))) is ("adaptive" in name)


@pytest.mark.parametrize("eps", [None, 0.25, math.nan])
def test_a_bound_of_nan_under_a_gradient_is_undefined(eps: float | None) -> None:
    """Eager's kernel for one number takes it otherwise than that for several."""
    call = Call("torch.logit", (Ref("x"),), {"eps": eps}, "y")
    case = Case(Program(("x",), (call,), Ref("y")), {"x": torch.rand(3)}, "test", "logit", "float32")
    assert undefined_behavior(case) == ""
    assert ("eps of NaN" in undefined_behavior(variant.backward(case))) == (eps is not None and math.isnan(eps))


@pytest.mark.parametrize("name", ["_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"])
@pytest.mark.parametrize(("index", "undefined"), [(2, False), (-3, False), (3, True), (-4, True)])
def test_an_index_out_of_range_is_undefined_unless_the_mask_leaves_it_out(
    name: str, index: int, undefined: bool
) -> None:
    for left_out in (False, True):
        last = -1.0 if name == "_unsafe_masked_index" else Ref("x")
        call = Call(f"torch.{name}", (Ref("x"), Ref("mask"), [Ref("i")], last), {}, "y")
        mask = torch.tensor([True, True, not left_out])
        inputs = {"x": torch.ones(3), "mask": mask, "i": torch.tensor([0, 1, index])}
        one = Case(Program(tuple(inputs), (call,), Ref("y")), inputs, "test", name, "float32")
        assert bool(undefined_behavior(one)) == (undefined and not left_out)


@pytest.mark.parametrize(("degree", "undefined"), [(2**61, False), (2**62, True), (1e30, True)])
def test_a_degree_that_overflows_is_undefined(degree: float, undefined: bool) -> None:
    call = Call("torch.special.chebyshev_polynomial_w", (Ref("x"), degree), {}, "y")
    inputs = {"x": torch.tensor([1.0, 0.5])}
    case = Case(Program(("x",), (call,), Ref("y")), inputs, "test", "special.chebyshev_polynomial_w", "float32")
    assert ("none of 64 bits" in undefined_behavior(case)) == undefined


@pytest.mark.parametrize(
    ("width", "bins", "undefined"), [(1e38, 2, False), (3e38, 2, True), (math.inf, 2, True), (3e38, 1, False)]
)
def test_a_range_in_which_a_place_is_no_number_is_undefined(width: float, bins: int, undefined: bool) -> None:
    """Eager converts it to an integer: (x - low) * bins / width, of which the product overflows."""
    call = Call("torch.histogram", (Ref("x"), bins), {}, "y")
    inputs = {"x": torch.tensor([0.0, 1.0, width])}
    one = Case(Program(("x",), (call,), Ref("y", (0,))), inputs, "test", "histogram", "float32")
    assert ("too wide" in undefined_behavior(one)) == undefined


@pytest.mark.parametrize(("shape", "undefined"), [((5, 6, 7), False), ((5, 512, 7), True), ((512, 7), False)])
def test_a_long_transform_back_over_three_dims_is_undefined(shape: tuple[int, ...], undefined: bool) -> None:
    call = Call("torch.fft.irfftn", (Ref("x"),), {}, "y")
    inputs = {"x": torch.ones(shape, dtype=torch.complex64)}
    case = Case(Program(("x",), (call,), Ref("y")), inputs, "test", "fft.irfftn", "complex64")
    assert ("MKL" in undefined_behavior(case)) == undefined


@pytest.mark.parametrize(("target", "undefined"), [(4, False), (5, True), (-1, True)])
@pytest.mark.parametrize("padded", [False, True])
def test_a_target_that_is_none_of_the_classes_is_undefined(target: int, undefined: bool, padded: bool) -> None:
    row = [1, 2, target]
    targets = torch.tensor([[*row, 99], [3, 4, 99, 99]]) if padded else torch.tensor([*row, 3, 4])
    inputs = {"x": torch.zeros(6, 2, 5), "t": targets, "i": torch.tensor([6, 6]), "l": torch.tensor([3, 2])}
    call = Call("torch.nn.functional.ctc_loss", tuple(map(Ref, inputs)), {}, "y")
    case = Case(Program(tuple(inputs), (call,), Ref("y")), inputs, "test", "nn.functional.ctc_loss", "float32")
    assert ("none of the classes" in undefined_behavior(case)) == undefined


@pytest.mark.parametrize(("shape", "undefined"), [((), True), ((3,), False)])
def test_chunks_of_no_dim_are_undefined(shape: tuple[int, ...], undefined: bool) -> None:
    call = Call("torch._chunk_cat", ([Ref("x"), Ref("x")], 0, 1), {}, "y")
    case = Case(Program(("x",), (call,), Ref("y")), {"x": torch.ones(shape)}, "test", "_chunk_cat", "float32")
    assert ("without a dim" in undefined_behavior(case)) == undefined
    assert has_special_values(case) is (None if undefined else False)


def test_counts_of_nan_and_levels_of_more_than_64_bits_are_no_case() -> None:
    two = torch.tensor([2.0, 3.0])
    assert not undefined_behavior(case("torch.binomial", two, torch.tensor([0.5, 0.5])))
    assert "does not return" in undefined_behavior(case("torch.binomial", two * torch.nan, torch.tensor([0.5, 0.5])))
    target, zero = "torch.fake_quantize_per_channel_affine", torch.zeros(2, dtype=torch.int32)
    assert not undefined_behavior(case(target, 1e15 * two, two, zero, args=(0, 0, 255)))
    for x in (1e30 * two, torch.inf * two, torch.nan * two):
        assert "64 bits" in undefined_behavior(case(target, x, two, zero, args=(0, 0, 255)))


GROUPS = {"rows": ((8, 4), (3, 4, 8)), "columns": ((3, 8, 4), (4, 8)), "inner": ((4, 8), (8, 4))}


@pytest.mark.parametrize("form", GROUPS)
@pytest.mark.parametrize(
    ("ends", "defined"),
    [((2, 5, 8), True), ((0, 0, 3), True), ((5, 2, 8), False), ((-1, 2, 8), False), ((2, 5, 9), False)],
)
def test_groups_that_fall_or_lie_outside_are_no_case(form: str, ends: tuple[int, ...], defined: bool) -> None:
    x, y = map(torch.ones, GROUPS[form])
    offs = torch.tensor(ends, dtype=torch.int32)
    for target in ("torch._grouped_mm", "torch.nn.functional.grouped_mm"):
        call = Call(target, (Ref("x"), Ref("y")), {"offs": Ref("offs")}, "r")
        inputs = {"x": x, "y": y, "offs": offs}
        found = Case(Program(("x", "y", "offs"), (call,), Ref("r")), inputs, "test", "grouped_mm", "float32")
        assert bool(undefined_behavior(found)) != defined


def test_groups_behind_what_both_operands_have_are_no_case() -> None:
    def of(last: int) -> str:
        call = Call("torch._grouped_mm", (Ref("x"), Ref("y"), Ref("offs")), {}, "r")
        inputs = {"x": torch.ones(4, 8), "y": torch.ones(12, 4), "offs": torch.tensor([last], dtype=torch.int32)}
        return undefined_behavior(Case(Program(tuple(inputs), (call,), Ref("r")), inputs, "test", "mm", "float32"))

    assert not of(8) and "lie outside" in of(12)


def test_products_of_float8_in_integers_are_no_case() -> None:
    def of(dtype: torch.dtype) -> str:
        inputs = {"x": torch.ones(2, 2).to(torch.float8_e5m2), "one": torch.tensor(1.0)}
        operands = (Ref("x"), Ref("x"), Ref("one"), Ref("one"))
        call = Call("torch._scaled_mm", operands, {"out_dtype": dtype}, "r")
        return undefined_behavior(Case(Program(tuple(inputs), (call,), Ref("r")), inputs, "test", "mm", "float8_e5m2"))

    assert not of(torch.float32) and not of(torch.float8_e5m2)
    assert "documented for none" in of(torch.int32) and of(torch.complex64)


@pytest.mark.parametrize(("modes", "undefined"), [((0, 0), False), ((2, 2), False), ((0, -21), True), ((20, 0), True)])
@pytest.mark.parametrize("function", ["grid_sampler", "grid_sampler_2d"])
def test_a_mode_that_there_is_none_of_is_undefined(function: str, modes: tuple[int, int], undefined: bool) -> None:
    call = Call(f"torch.{function}", (Ref("x"), Ref("grid"), *modes, False), {}, "y")
    inputs = {"x": torch.ones(1, 1, 2, 4), "grid": torch.zeros(1, 1, 3, 2)}
    case = Case(Program(("x", "grid"), (call,), Ref("y")), inputs, "test", function, "float32")
    assert ("number of a mode" in undefined_behavior(case)) == undefined


@pytest.mark.parametrize(
    ("dtype", "padding", "place", "undefined"),
    [
        ("float32", "border", math.nan, True),
        ("float64", "reflection", math.inf, True),
        ("float32", "border", 1e9, False),
        ("float32", "zeros", math.nan, False),
        ("float16", "zeros", 65504.0, True),
        ("bfloat16", "zeros", 65504.0, False),
    ],
)
def test_a_gradient_at_a_place_that_is_no_finite_number_is_undefined(
    dtype: str, padding: str, place: float, undefined: bool
) -> None:
    """Eager's gradient of the first two ends the process."""
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "free"),
        Call("torch.Tensor.requires_grad_", (Ref("free"),), {}, "leaf"),
        Call("torch.nn.functional.grid_sample", (Ref("leaf"), Ref("grid"), "bilinear", padding, False), {}, "y"),
        Call("torch.autograd.grad", ([Ref("y")], [Ref("leaf")], [Ref("cotangent")]), {}, "z"),
    )
    x = torch.ones(1, 1, 5, 5, dtype=getattr(torch, dtype))
    inputs = {"x": x, "grid": x.new_full((1, 1, 40, 2), place), "cotangent": x.new_ones(1, 1, 1, 40)}
    case = Case(Program(tuple(inputs), calls, Ref("z")), inputs, "test", "grid_sample", dtype)
    assert ("may write anywhere" in undefined_behavior(case)) == undefined


@pytest.mark.parametrize(("dtype", "undefined"), [("bfloat16", True), ("float32", False)])
def test_a_place_in_three_dims_that_is_no_number_is_undefined_in_16_bits(dtype: str, undefined: bool) -> None:
    call = Call("torch.nn.functional.grid_sample", (Ref("x"), Ref("grid")), {"align_corners": False}, "y")
    x = torch.ones(1, 1, 2, 2, 2, dtype=getattr(torch, dtype))
    inputs = {"x": x, "grid": x.new_full((1, 1, 1, 4, 3), math.nan)}
    case = Case(Program(("x", "grid"), (call,), Ref("y")), inputs, "test", "grid_sample", dtype)
    assert bool(undefined_behavior(case)) == undefined


@pytest.mark.parametrize(
    "target", ["torch.linalg.inv", "torch.inverse", "torch.linalg.svdvals", "torch.ops.aten.linalg_qr"]
)
def test_of_a_matrix_that_is_not_finite_nothing_is_guaranteed(target: str) -> None:
    for number, undefined in ((float("nan"), True), (float("inf"), True), (1.0, False)):
        matrix = torch.eye(3)
        matrix[1, 1] = number
        assert bool(undefined_behavior(case(target, matrix))) is undefined
    assert not undefined_behavior(case("torch.linalg.vector_norm", torch.tensor([float("nan")])))


@pytest.mark.parametrize(("read", "open_order"), [(slice(None, -1), True), (slice(1, None), False)])
def test_elements_read_for_others_are_not_written_to(read: slice, open_order: bool) -> None:
    """``x[:, 1:] += x[:, :-1]`` adds up or not, by the order of the kernel."""
    whole = slice(None)
    calls = (
        Call("torch.Tensor.__getitem__", (X, (whole, slice(1, None))), {}, "to"),
        Call("torch.Tensor.__getitem__", (X, (whole, read)), {}, "of"),
        Call("torch.Tensor.add_", (Ref("to"), Ref("of")), {}, "y"),
    )
    x = torch.arange(12.0).reshape(3, 4)
    case = Case(Program(("x",), calls, Ref("y")), {"x": x}, "test", "add", "float32")
    assert ("an open order" in undefined_behavior(case)) == open_order


@pytest.mark.parametrize(("padding", "open_order"), [((-1, 3), True), ((-1, 2), False), ((1, 2), False)])
def test_circular_padding_around_more_than_is_left(padding: tuple[int, int], open_order: bool) -> None:
    call = Call("torch.nn.functional.pad", (X, padding, "circular"), {}, "y")
    case = Case(Program(("x",), (call,), Ref("y")), {"x": torch.rand(2, 3, 3)}, "test", "pad", "float32")
    assert ("an open order" in undefined_behavior(case)) == open_order


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
@pytest.mark.parametrize(
    ("target", "by", "options", "undefined"),
    [
        ("torch.div", -1, {"rounding_mode": "trunc"}, True),
        ("torch.Tensor.divide_", -1, {"rounding_mode": "trunc"}, True),
        ("torch.div", -1, {"rounding_mode": "floor"}, False),
        ("torch.div", -2, {"rounding_mode": "trunc"}, False),
        ("torch.lcm", 5, {}, True),
        ("torch.gcd", 5, {}, False),
    ],
)
def test_the_least_integer_ends_the_process(
    dtype: torch.dtype, target: str, by: int, options: dict[str, str], undefined: bool
) -> None:
    """The processor knows no 2**63: eager is not to be asked, neither here nor as a program is drawn."""
    call = Call(target, (Ref("x"), Ref("y")), options, "z")
    inputs = {"x": torch.full((3,), torch.iinfo(dtype).min, dtype=dtype), "y": torch.tensor([by], dtype=dtype)}
    case = Case(Program(("x", "y"), (call,), Ref("z")), inputs, "test", "div", str(dtype).removeprefix("torch."))
    undefined = undefined and dtype != torch.int16
    assert ("the least integer" in undefined_behavior(case)) == undefined
    with pytest.raises(UndefinedBehavior) if undefined else contextlib.nullcontext(), rules_checked(call):
        case.program(*case.fresh_args())
