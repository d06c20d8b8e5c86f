"""Input tensors: their contents are in bounds, and every layout survives being saved."""

from __future__ import annotations

import itertools

import pytest
import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.generator import values
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.draft import Draft

SHAPES = [(), (0,), (1,), (3,), (0, 2), (2, 0), (2, 3), (1, 2, 3), (2, 1, 0, 2), (2, 2, 2, 2)]


class _Fixed(SeededChoices):
    """Choices in which one layout is always taken."""

    def __init__(self, layout: str) -> None:
        super().__init__(layout)
        self.layout = layout

    def weighted(self, options):
        return self.layout


@pytest.mark.parametrize(("layout", "shape"), list(itertools.product(dict(values.LAYOUTS), SHAPES)))
def test_a_layout_keeps_the_shape_and_survives_the_trip_through_bytes(layout, shape):
    tensor = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    laid = values.draw_layout(_Fixed(layout), tensor)
    assert laid.shape == tensor.shape
    assert layout == "expanded" or torch.equal(laid, tensor)
    case = Case(Program(("x0",), (Call("torch.neg", (Ref("x0"),), {}, "v0"),), Ref("v0")), {"x0": laid}, "", "", "")
    back = Case.from_bytes(case.to_bytes()).inputs["x0"]
    assert torch.equal(back, laid)
    assert (back.stride(), back.storage_offset()) == (laid.stride(), laid.storage_offset())


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in values.DTYPES])
def test_contents_are_within_their_bounds(dtype):
    choices = SeededChoices("contents")
    for low, high in ((-4.0, 4.0), (0.0, 1.0), (-1.0, 1.0), (2.0, 4.0)):
        drawn = values.draw_contents(choices, (5, 5), dtype, low, high)
        assert drawn.dtype == dtype and drawn.shape == (5, 5)
        if dtype.is_floating_point:
            assert low <= float(drawn.min()) and float(drawn.max()) <= high


def test_which_elements_are_in_a_domain():
    numbers = torch.tensor([-9.0, -1.0, 0.5, 3.0, 50.0, float("nan")])
    assert values.within(numbers, (-1.0, values.ANY[1])).tolist() == [False, False, True, True, True, False]
    assert values.within(numbers, (-2.0, 3.0)).tolist() == [False, True, True, False, False, False]
    assert values.within(numbers, values.ANY).all() and values.within(numbers.to(torch.complex64), (0.0, 1.0)).all()
    assert values.within(numbers.to(torch.float8_e5m2), (0.0, 1.0)).nonzero().tolist() == [[2]]


def test_an_operand_of_a_domain_has_numbers_of_every_kind_in_it():
    drawn = [Draft(SeededChoices(f"{n}")).fresh((40,), torch.float32, (-1.0, values.ANY[1])).tensor for n in range(60)]
    assert all(float(tensor.min()) > -1 for tensor in drawn)
    wide = [tensor for tensor in drawn if float(tensor.max()) > 4]
    assert len(drawn) // 10 < len(wide) < len(drawn) // 2
    assert any(float(tensor.abs().min()) < 1e-4 for tensor in wide)


def test_complex_operands_are_on_all_sides_of_a_cut():
    drawn = [Draft(SeededChoices(f"{n}")).fresh((40,), torch.complex64, (0.0, values.ANY[1])).tensor for n in range(20)]
    assert any(bool((tensor.real < 0).any()) and bool((tensor.imag < 0).any()) for tensor in drawn)


def test_some_contents_are_near_zero_where_the_domain_allows():
    choices = SeededChoices("near")
    largest = [float(values.draw_contents(choices, (5,), torch.float32).abs().max()) for _ in range(200)]
    assert 5 < sum(value < 0.01 for value in largest) < 60
    assert all(float(values.draw_contents(choices, (5,), torch.float32, 2.0, 4.0).min()) >= 2 for _ in range(50))


def test_distinct_contents_have_no_ties():
    for dtype in (torch.float32, torch.int64, torch.float16, torch.int8, torch.uint8):
        drawn = values.draw_contents(SeededChoices("distinct"), (7, 5), dtype, distinct=True)
        assert drawn.unique().numel() == 35


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_magnitudes_are_even_in_their_logarithms_and_of_both_signs(dtype):
    drawn = values.draw_magnitudes(SeededChoices("magnitudes"), (40, 25), dtype)
    parts = torch.view_as_real(drawn) if dtype.is_complex else drawn
    most = 6 if dtype != torch.float16 else 2.4
    logs = parts.abs().double().log10()
    assert drawn.dtype == dtype and bool(parts.isfinite().all())
    assert {True, False} == set((parts < 0).flatten().tolist())
    assert abs(float(logs.mean()) - (most - 6) / 2) < 0.5 and float(logs.max()) < most + 0.01


def test_a_row_of_one_number_is_one_along_a_dim_or_all_of_it():
    rows, wholes = set(), set()
    for seed in range(60):
        tensor = torch.arange(1.0, 13.0).reshape(3, 4)
        changed = values.draw_row(SeededChoices(f"row {seed}"), tensor, True) != tensor
        if changed.all(0).any() or changed.all(1).any():
            rows.add(int(changed.sum()))
        wholes.add(bool(changed.all()))
    assert rows >= {3, 4, 12} and wholes == {True, False}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_whole_numbers_are_of_all_magnitudes_and_none_is_the_least(dtype):
    drawn = values.draw_magnitudes(SeededChoices("whole"), (40, 25), dtype)
    most, info = int(drawn.abs().max()), torch.iinfo(dtype)
    assert drawn.dtype == dtype and info.max - 1 <= most <= info.max
    assert not bool(drawn.eq(info.min).any()) or not dtype.is_signed
    assert bool((drawn < 0).any()) is dtype.is_signed and 0 < int((drawn.abs() < 8).sum()) < drawn.numel() // 2


def test_one_shape_in_ten_has_a_long_dim_beside_a_power_of_two():
    choices = SeededChoices("long")
    shapes = [values.draw_shape(choices) for _ in range(1000)]
    long = [shape for shape in shapes if max(shape, default=0) > 8]
    assert 50 < len(long) < 120 and max(map(max, long)) > 4000
    assert all(torch.Size(shape).numel() <= values.NUMEL for shape in shapes)
    assert {len(shape) for shape in long} == {1, 2, 3, 4}
