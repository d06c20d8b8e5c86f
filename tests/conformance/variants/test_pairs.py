"""Two changes at once: which rows there are, and that the classes of cases that one change does not make are asked."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import part_of, run_case
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.sources import find_case, opinfo
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.attempts import attempts
from torchstone.conformance.variants.pairs import FIRST, LEVELS, ON_TOP, PARTS, ROUND
from torchstone.conformance.variants.samples import KINDS

SAMPLES = 4
"""Samples of an op whose parts are looked at."""


@pytest.fixture(autouse=True)
def _few_forks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Eager is asked in this process where the op comes through it: forks of a large process take long."""
    monkeypatch.setattr(attempts, "expendable", "embedding_bag" not in request.node.name)


@functools.cache
def parts(op: str, dtype: str = "float32") -> list[Case]:
    """The parts that the first samples of an op have together."""
    made = [apply(each, "pairs") for each in opinfo.iterate([op], [dtype], SAMPLES) if isinstance(each, Case)]
    return [
        part_of(whole, program)
        for whole in made
        if isinstance(whole, Case)
        for _, program in parts_of(whole.program, whole.args)
    ]


def floats(part: Case) -> list[Tensor]:
    return [tensor for tensor in part.args if tensor.is_floating_point() or tensor.is_complex()]


def given(part: Case, target: str) -> Iterator[dict[str, object]]:
    """The arguments by keyword of the calls of an op."""
    return (call.kwargs for call in part.program.calls if call.operator == target)


def test_all_pairs_of_levels_are_met_equally_often_in_a_round() -> None:
    factors = {"dtype": KINDS, "first": FIRST, "on top": ON_TOP}
    assert all(math.gcd(len(a), len(b)) == 1 for a, b in itertools.combinations(factors.values(), 2))
    rows = [tuple(number % len(levels) for levels in factors.values()) for number in range(ROUND)]
    for one, other in itertools.combinations(range(len(factors)), 2):
        assert len(set(Counter((row[one], row[other]) for row in rows).values())) == 1
    assert set(FIRST) | set(ON_TOP) == {"", *LEVELS} - {"line", "ranks"}


@pytest.mark.torture
def test_parts_are_different_pairs_and_the_same_in_every_process() -> None:
    first = find_case("opinfo:nn.functional.avg_pool2d:float32:0")
    whole = asked(first, "pairs")
    assert find_case("opinfo:nn.functional.avg_pool2d:float32:0:pairs").to_bytes() == whole.to_bytes()
    rows = {next(part for part in call.result.split("_") if part.startswith("row")) for call in whole.program.calls}
    assert len(rows) == len(parts_of(whole.program, whole.args)) == PARTS
    calls = [call for call in whole.program.calls if call.operator == "avg_pool2d"]
    assert len({repr((call.args[1:], call.kwargs)) for call in calls}) > PARTS // 2, "samples take turns"
    assert run_case(whole, load("linalg")).outcome == "pass"


def differentiated_in_16_bits(part: Case) -> bool:
    return part.program.differentiates and any(tensor.dtype.itemsize == 2 for tensor in floats(part))


def differentiated_at_ties(part: Case) -> bool:
    return part.program.differentiates and any(
        tensor.numel() > 8 and len(tensor.unique()) < tensor.numel() / 2
        for name, tensor in part.inputs.items()
        if tensor.is_floating_point() and not name.startswith("cotangent")
    )


def differentiated_without_elements(part: Case) -> bool:
    return part.program.differentiates and any(not tensor.numel() for tensor in floats(part))


def of_a_negative_row(part: Case) -> bool:
    whole = [tensor for tensor in part.args if tensor.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)]
    return bool(whole) and not floats(part) and all(bool((tensor < 0).all()) for tensor in whole if tensor.numel())


def of_two_other_dtypes(part: Case) -> bool:
    return len({tensor.dtype for tensor in part.args} - {torch.int64}) > 1


def of_places_in_32_bits(part: Case) -> bool:
    return any(tensor.dtype == torch.int32 for tensor in part.args) and bool(floats(part))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        ("nn.functional.avg_pool2d", "float32", differentiated_in_16_bits),
        ("scatter_reduce.amax", "float32", differentiated_at_ties),
        pytest.param("nn.functional.embedding_bag", "float32", differentiated_at_ties, marks=pytest.mark.torture),
        pytest.param("nn.functional.embedding_bag", "float32", of_places_in_32_bits, marks=pytest.mark.torture),
        ("index_add", "float32", differentiated_without_elements),
        ("amax", "int64", of_a_negative_row),
        ("mul", "int64", of_two_other_dtypes),
    ],
)
def test_a_class_of_cases_that_takes_two_changes_is_asked(op: str, dtype: str, wanted: object) -> None:
    assert callable(wanted) and any(map(wanted, parts(op, dtype)))


def test_gradients_in_16_bits_are_asked_of_other_arguments() -> None:
    """The op's approximation is "none" or "tanh", and each has a gradient of its own."""
    found = [part for part in parts("nn.functional.gelu") if differentiated_in_16_bits(part)]
    assert {repr(kwargs) for part in found for kwargs in given(part, "gelu")} >= {
        "{'approximate': 'none'}", "{'approximate': 'tanh'}"
    }  # fmt: skip


def test_what_draws_random_numbers_and_what_eager_refuses_is_left_out() -> None:
    drawing = apply(case("torch.bernoulli", torch.rand(6, 8)), "pairs")
    assert isinstance(drawing, Untested) and "draws random numbers" in drawing.reason
    whole = asked(case("torch.linalg.cholesky", torch.eye(3)), "pairs")
    whole.program(*whole.fresh_args())


def test_mixes_change_several_things_at_once_and_never_place_extremes() -> None:
    whole = asked(find_case("opinfo:nn.functional.avg_pool2d:float32:0"), "mixes")
    assert find_case("opinfo:nn.functional.avg_pool2d:float32:0:mixes").to_bytes() == whole.to_bytes()
    names = {call.result.partition("_row")[2] for call in whole.program.calls if call.operator == "avg_pool2d"}
    changes = [len(set(name.split("_")) & LEVELS.keys()) for name in names]
    assert max(changes) > 2 and not any("extremes" in name for name in names)
