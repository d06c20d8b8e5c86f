"""Functions that the op database lacks: none is forgotten, and each row says what eager takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_coverage import LEFT_OUT, not_asked

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.sources import find_case, functions, opinfo
from torchstone.conformance.sources.functions.products import FLOAT8
from torchstone.conformance.sources.functions.row import ALL, Function, drawn, exact, given
from torchstone.conformance.sources.sampling import seeded


def test_every_public_function_is_asked_or_left_out_for_a_reason() -> None:
    missing = not_asked()
    assert sorted(missing - set(LEFT_OUT)) == [], "these need a row in conformance/sources/functions, or a reason"
    assert sorted(set(LEFT_OUT) - missing) == [], "these are asked, or are no functions of this release"


def test_no_row_is_of_an_op_of_the_database() -> None:
    rows = [f"{row.name}.{row.variant}" if row.variant else row.name for row in functions.ROWS]
    assert len(rows) == len(set(rows))
    assert not set(rows) & set(opinfo.op_names())
    assert set(functions.op_names()) <= set(rows)


def test_a_row_of_another_variant_calls_an_overload_that_the_database_does_not() -> None:
    for row in functions.ROWS:
        if row.variant:
            assert row.name in {info.name for info in opinfo.DATABASE.infos.values()}
    case = functions.case("xlogy.with_numbers", "float32", 0)
    assert case.program.calls[0].args == (0.0, Ref("x0")) and case.program.calls[0].target == "torch.xlogy"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("row", "is_asked"),
    [
        ("nn.functional.scaled_dot_product_attention.shared_heads", lambda s: s.args[0].shape[-3] < s.input.shape[-3]),
        ("_segment_reduce.products_with_zeros", lambda s: "prod" in s.args and bool((s.input == 0).any())),
        ("histogramdd.with_ranges", lambda s: s.kwargs.get("range") is not None),
        ("var.negative_correction", lambda s: not s.input.numel() and (s.kwargs.get("correction") or 0) < 0),
        ("cdist.of_nan", lambda s: bool(s.input.isnan().any())),
        ("index_add.many_onto_one", lambda s: len(s.args[1]) > 256),
    ],
)
def test_a_row_of_arguments_has_what_no_sample_of_the_database_has(row: str, is_asked: Callable[[Any], bool]) -> None:
    name = row.rpartition(".")[0]
    own, theirs = functions.info_of(row), [i for i in opinfo.DATABASE.infos.values() if i.name == name]
    assert any(is_asked(sample) for sample in own.sample_inputs("cpu", torch.float32))
    assert not any(is_asked(sample) for info in theirs for sample in info.sample_inputs("cpu", torch.float32))


def test_a_row_is_a_call_of_its_function() -> None:
    case = functions.case("nn.functional.fold", "float32", 1)
    (call,) = case.program.calls
    assert (call.target, call.args, call.kwargs["kernel_size"]) == ("torch.nn.functional.fold", (Ref("x0"),), (2, 2))
    assert case.args[0].shape == (12, 4)
    assert find_case(case.id).to_bytes() == case.to_bytes()
    torch.testing.assert_close(
        case.program(*case.fresh_args()), torch.nn.functional.fold(case.args[0], (4, 4), (2, 2), stride=2)
    )


def test_what_draws_is_seeded_and_what_writes_returns_what_it_wrote_to() -> None:
    drawing = functions.case("poisson", "float32", 0)
    assert [call.target for call in drawing.program.calls] == ["torch.manual_seed", "torch.poisson"]
    writing = functions.case("__setitem__", "int64", 1)
    assert writing.program.outputs == Ref("x0")
    args = writing.fresh_args()
    assert writing.program(*args)[-1].tolist() == [2, 2, 2] == args[0][-1].tolist()


def test_numbers_that_a_row_gives_are_kept() -> None:
    row = Function("neg", ("float32",), (given(exact([1, 2])), given(drawn(4, 3, low=0, high=1, strided=True))))
    first, second = (sample.input for sample in row.info().sample_inputs("cpu", torch.float32, requires_grad=False))
    assert first.dtype is torch.int64 and first.tolist() == [1, 2]
    assert not second.is_contiguous() and second.dtype is torch.float32 and second.min() >= 0 and second.max() <= 1


def test_unknown_names_are_told() -> None:
    with pytest.raises(UnknownName, match=r'did you mean "poisson"'):
        functions.case("poison", "float32", 0)
    with pytest.raises(InputError, match="has no samples for int64"):
        functions.case("poisson", "int64", 0)


@pytest.mark.torture
def test_eager_takes_the_samples() -> None:
    """Of a row's first dtype all of them, of every other some; float64 is there to judge float32, or a formula is."""
    for op in functions.op_names():
        dtypes = functions.dtypes_of(op)
        assert set(dtypes) <= {*ALL, *FLOAT8}
        formulas = ("fused_moving_avg_obs_fake_quant", "nn.functional.grouped_mm")
        assert "float64" in dtypes or "float32" not in dtypes or op in formulas
        for at, dtype in enumerate(dtypes):
            entries = list(functions.iterate([op], [dtype]))
            taken = [entry.id for entry in entries if isinstance(entry, Case) and _takes(entry)]
            assert len(taken) == len(entries) if at == 0 else taken, (op, dtype)


def _takes(case: Case) -> bool:
    with seeded(case.id):
        try:
            case.program(*case.fresh_args())
        except (RuntimeError, NotImplementedError):
            return False
    return True
