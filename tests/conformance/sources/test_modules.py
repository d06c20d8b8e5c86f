"""Modules as cases: what the module computes the program computes, with the module's state as inputs."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_modules import module_db

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.sources import iterate, modules, select
from torchstone.conformance.sources.sampling import seeded


def first(op: str, dtype: str = "float32", count: int = 2) -> list[Case]:
    return [case for case in modules.iterate([op], [dtype], count) if isinstance(case, Case)]


@pytest.mark.parametrize("op", ["nn.Linear", "nn.BatchNorm2d", "nn.LSTM", "nn.LazyConv2d"])
def test_state_is_input_and_training_alternates(op: str) -> None:
    evaluation, training = first(op)
    assert (evaluation.tags, training.tags) == ((), ("train",))
    assert len(evaluation.inputs) > 1
    assert [c.id for c in (evaluation, training)] == [f"modules:{op}:float32:{i}" for i in (0, 1)]


def test_what_the_module_computes_the_program_computes() -> None:
    info = next(info for info in module_db if info.name == "nn.GroupNorm")
    with seeded("modules:nn.GroupNorm:float64"):
        sample = next(iter(info.module_inputs_func(info, "cpu", torch.float64, False, training=False)))
    with seeded("modules:nn.GroupNorm:float64:0"):
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).double().eval()
        expected = module(*sample.forward_input.args)
    (case,) = first("nn.GroupNorm", "float64", 1)
    assert torch.equal(case.program(*case.fresh_args()), expected)


def test_training_updates_the_running_statistics() -> None:
    _, training = first("nn.BatchNorm1d")
    args = training.fresh_args()
    training.program(*args)
    assert not all(torch.equal(a, b) for a, b in zip(args, training.args, strict=True))


def test_every_module_that_draws_has_a_case_that_draws() -> None:
    """PyTorch's database has none of dropout. What draws is known by its forward: it is told whether it trains."""
    draws = {f"nn.{name}" for name in torch.nn.modules.dropout.__all__} | {"nn.RReLU"}
    assert draws <= set(modules.op_names())
    for op in [*draws, *(name for name in modules.op_names() if name.endswith(".with_dropout"))]:
        evaluation, training = first(op)
        drew = []
        for case in (evaluation, training):
            before = torch.random.get_rng_state()
            case.program(*case.fresh_args())
            drew.append(not torch.equal(before, torch.random.get_rng_state()))
        assert drew == [False, True], op
        assert {training.dtype, modules.case(op, "float64", 1).dtype} == {"float32", "float64"}
        assert modules.case(op, "float32", 1).to_bytes() == training.to_bytes()


def test_the_same_case_by_its_coordinates() -> None:
    (_, wanted) = first("nn.Conv1d")
    assert modules.case("nn.Conv1d", "float32", 1).to_bytes() == wanted.to_bytes()
    with pytest.raises(UnknownName, match=r'did you mean "nn\.Conv1d"'):
        modules.case("nn.Conv1e", "float32", 0)
    with pytest.raises(InputError, match="no sample 9999"):
        modules.case("nn.Conv1d", "float32", 9999)


def test_what_cannot_be_written_down_is_untested_with_a_reason() -> None:
    entries = modules.iterate(["nn.LinearCrossEntropyLoss"], ["float32"])
    entry = next(entry for entry in entries if isinstance(entry, Untested))
    assert "LinearCrossEntropyOptions" in entry.reason


def test_names_mean_something_in_one_source() -> None:
    assert select(["opinfo", "modules"], ["nn.Conv*", "softmax"]) == {
        "opinfo": ["softmax"],
        "modules": [name for name in modules.op_names() if name.startswith("nn.Conv")],
    }
    with pytest.raises(UnknownName, match=r'unknown op "sofmax" \(did you mean "softmax"\?\)'):
        select(["opinfo", "modules"], ["sofmax"])
    with pytest.raises(InputError, match="no module matches"):
        select(["modules"], ["linalg.*"])
    found = list(iterate(select(["opinfo", "modules"], ["add", "nn.ReLU"]), ["float32"], 1))
    assert [entry.id for entry in found] == ["opinfo:add:float32:0", "modules:nn.ReLU:float32:0"]
