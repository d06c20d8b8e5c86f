"""Arguments that no family draws: those of the suite that eager takes, and none that ends the process of eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance.program.literals import Ref, leaves
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.draft import Arguments, DraftValue
from torchstone.fuzz.generator.generate import nth_program
from torchstone.fuzz.generator.other_arguments import with_others

X = DraftValue(Ref("x0"), torch.arange(12.0).reshape(1, 3, 4), exact=True)


def drawn(target: str, *args: Any, count: int = 60, **kwargs: Any) -> list[Arguments]:
    found = (with_others(SeededChoices(str(n)), target, Arguments(args, kwargs)) for n in range(count))
    return [arguments for arguments in found if arguments is not None]


def test_what_is_left_out_is_given_and_what_is_given_is_another_or_left_out() -> None:
    found = drawn("torch.sum", X, dim=1, keepdim=True)
    assert {False, True} <= {arguments.kwargs.get("keepdim", False) for arguments in found}
    assert len({repr(arguments.kwargs.get("dim")) for arguments in found}) > 2
    assert any(arguments.kwargs.get("dtype") for arguments in found)
    assert all(arguments.args == (X,) for arguments in found)


def test_options_that_only_the_schema_knows_are_given() -> None:
    found = drawn("torch.topk", X, 2)
    assert any(arguments.kwargs.get("largest") is False for arguments in found)


def test_eager_takes_each_of_them() -> None:
    found = drawn("torch.nn.functional.smooth_l1_loss", X, X)
    assert any("beta" in arguments.kwargs for arguments in found)
    for arguments in found:
        tensors = [leaf.tensor if isinstance(leaf, DraftValue) else leaf for leaf in leaves(arguments.args)]
        torch.nn.functional.smooth_l1_loss(*tensors, **arguments.kwargs)


def test_an_argument_that_ends_the_process_of_eager_is_not_drawn() -> None:
    whole = DraftValue(Ref("x0"), torch.ones(1, 4, 4, dtype=torch.int64), exact=True)
    found = drawn("torch.nn.functional.avg_pool2d", whole, 2, divisor_override=2, count=40)
    assert found and all(arguments.kwargs.get("divisor_override") != 0 for arguments in found)


@pytest.mark.parametrize("target", ["torch.zeros_like", "torch.sort", "torch.nn.functional.gelu"])
def test_the_operands_are_as_they_were(target: str) -> None:
    before = X.tensor.clone()
    found = drawn(target, X, count=20)
    assert found
    for arguments in found:
        assert [leaf for leaf in leaves(arguments.args) if isinstance(leaf, DraftValue)] == [X]
    assert torch.equal(X.tensor, before)


def test_places_are_counted_from_the_end_too() -> None:
    rules = select_rules(["__getitem__", "take", "index_put"])
    cases = [nth_program(4, index, rules, max_ops=1) for index in range(60)]
    numbers = [t for case in cases for name, t in case.inputs.items() if name != "x0" and t.dtype == torch.int64]
    assert any(bool((t < 0).any()) for t in numbers) and any(t.numel() and bool((t >= 0).all()) for t in numbers)


@pytest.mark.torture
def test_an_operand_may_be_given_twice() -> None:
    cases = [nth_program(5, index, select_rules(["sub"]), max_ops=1) for index in range(200)]
    assert 2 < sum(case.program.calls[0].args[:1] == case.program.calls[0].args[1:2] for case in cases) < 40


def test_special_values_are_beside_each_other() -> None:
    inputs = [tensor for n in range(40) for tensor in nth_program(6, n, max_ops=1, specials=True).inputs.values()]
    inputs = [tensor for tensor in inputs if tensor.dtype == torch.float32 and tensor.numel() > 40]
    kinds = {len(tensor[~tensor.isfinite()].unique()) for tensor in inputs}
    assert inputs and max(kinds) >= 2
    assert any(bool(((tensor.abs() > 0) & (tensor.abs() < torch.finfo(tensor.dtype).tiny)).any()) for tensor in inputs)
