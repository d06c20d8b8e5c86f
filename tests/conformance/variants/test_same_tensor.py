"""One tensor for all operands, dims counted from the end, wide 0-d operands, large sizes."""

from __future__ import annotations

import pytest
import torch
from variant_cases import asked, case, own

from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.variants.apply import apply


@pytest.mark.parametrize(
    "target, inputs, text",
    [
        ("torch.sub", [own(4), own(4)], "r0 = torch.sub(x0, x0)\nreturn r0"),
        ("torch.mm", [own(4, 3), own(3, 2)], "r0 = torch.mm(x0, x0)\nreturn r0"),
        ("torch.where", [own(4) > 3, own(4), own(4)], None),
        ("torch.addcdiv", [own(4), own(4), own(1)], "r0 = torch.addcdiv(x0, x0, x2)\nreturn r0"),
    ],
)
def test_one_tensor_for_all_operands(target: str, inputs: list[torch.Tensor], text: str | None) -> None:
    found = apply(case(target, *inputs), "same")
    assert (str(found.program) if isinstance(found, Case) else None) == text


def test_the_in_place_form_reads_what_it_writes() -> None:
    changed = asked(case("torch.sub", own(4), own(4), alpha=2), "inplace")
    assert str(changed.program) == "r0 = torch.Tensor.sub_(x0, x1, alpha=2)\nreturn r0"
    one, other = changed.fresh_args()
    assert one.data_ptr() == other.data_ptr()
    assert torch.equal(changed.program(one, other), -own(4)) and torch.equal(other, -own(4))
    assert Case.from_bytes(changed.to_bytes()).program == changed.program
    assert str(asked(case("torch.exp", own(4)), "inplace").program).startswith("r0 = torch.Tensor.exp_(x0)")
    for none in (case("torch.mm", own(4, 3), own(3, 2)), case("torch.lt", own(3).int(), own(3))):
        assert isinstance(apply(none, "inplace"), Untested)


@pytest.mark.parametrize(
    "target, shape, args, wanted, size",
    [
        ("torch.sum", (3, 4, 5), (0,), "torch.sum(x0, -2)", (3, 4, 5)),
        ("torch.sum", (3, 4, 5), (), "torch.sum(x0, dim=-2)", (3, 4, 5)),
        ("torch.sum", (4, 5), ([0],), "torch.sum(x0, [-2])", (2, 4, 5)),
        ("torch.cumsum", (5,), (0,), "torch.cumsum(x0, -2)", (2, 2, 5)),
        ("torch.amax", (2, 3, 4, 5), ((0, 1),), "torch.amax(x0, (-2, -1))", (2, 3, 4, 5)),
        ("torch.nn.functional.softmax", (3, 4), (1,), "torch.nn.functional.softmax(x0, -2)", (2, 3, 4)),
    ],
)
def test_the_middle_dim_from_the_end(target: str, shape: tuple, args: tuple, wanted: str, size: tuple) -> None:
    changed = asked(case(target, own(*shape), args=args), "dims")
    assert str(changed.program) == f"r0 = {wanted}\nreturn r0" and changed.args[0].shape == size


def test_what_has_no_dim_is_not_asked() -> None:
    assert isinstance(apply(case("torch.exp", own(3, 4, 5)), "dims"), Untested)
    assert isinstance(apply(case("torch.sum", own()), "dims"), Untested)
    assert isinstance(apply(case("torch.tile", own(3, 4, 5), args=((2,),)), "dims"), Untested)  # repeats, called dims


@pytest.mark.parametrize(
    "dtype, wide, result",
    [
        (torch.float32, torch.float64, torch.float32),
        (torch.bfloat16, torch.float64, torch.bfloat16),
        (torch.int8, torch.int64, torch.int8),
        (torch.int64, torch.float64, torch.float64),
        (torch.complex64, torch.complex128, torch.complex64),
        (torch.bool, torch.int64, torch.int64),
    ],
)
def test_a_wide_scalar_is_promoted_by_its_kind(dtype: torch.dtype, wide: torch.dtype, result: torch.dtype) -> None:
    for index, place in ((0, 1), (1, 0)):
        changed = asked(case("torch.add", own(3).to(dtype), own(3).to(dtype), index=index), "wide")
        scalar, other = changed.args[place], changed.args[1 - place]
        assert (scalar.dtype, scalar.dim(), other.dtype) == (wide, 0, dtype)
        assert changed.program(*changed.args).dtype == result


def test_large_sizes_are_past_the_counters_of_16_bits() -> None:
    assert asked(case("torch.exp", own(3)), "large").args[0].shape == (70_001,)
    assert asked(case("torch.sum", own(5, 6), args=(0,)), "large").args[0].shape == (4_099, 6)
    outer = apply(case("torch.outer", own(3), own(3)), "large")
    assert not isinstance(outer, Case) or torch.outer(*outer.args).numel() < 1 << 20
