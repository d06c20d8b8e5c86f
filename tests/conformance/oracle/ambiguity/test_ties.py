"""The oracle on choices among equal elements: the right ones pass with what follows from them, wrong places do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Kind
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors

TIED = torch.tensor([2.0, 1.0, 2.0, 0.0, 1.0, 2.0, -1.0, 0.0, 2.0, 1.0] * 4)
"""Eager's choices among these are not those of a stable sort."""
GIVEN = torch.arange(1.0, 41.0)


def compare(program: Program, other: Callable[..., Any], *tensors: Tensor) -> Finding:
    eager_args, backend_args = copy_tensors(tensors), copy_tensors(tensors)
    expected = Observed(program(*eager_args), eager_args)
    return judge(program, tensors, expected, Observed(other(*backend_args), backend_args))


def gradient(target: str, *args: Any) -> Program:
    """The gradient of the values alone: no index is among the results."""
    values = Ref("r") if target == "msort" else Ref("r", (0,))
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "data"),
        Call("torch.Tensor.requires_grad_", (Ref("data"),), {}, "leaf"),
        Call(f"torch.{target}", (Ref("leaf"), *args), {}, "r"),
        Call("torch.autograd.grad", ([values], [Ref("leaf")], [Ref("g")]), {}, "y"),
    )
    return Program(("x", "g"), calls, Ref("y"))


def scattered(order: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
    """The gradient of the elements at these places."""
    return lambda x, g: (torch.zeros_like(x).index_put((order(x),), g),)


def rising(x: Tensor) -> Tensor:
    return x.sort(stable=True).indices


def falling(x: Tensor) -> Tensor:
    return x.sort(stable=True, descending=True).indices


GRADIENTS = {
    "sort": (gradient("sort"), rising, GIVEN),
    "msort": (gradient("msort"), rising, GIVEN),
    "sort, descending": (gradient("sort", 0, True), falling, GIVEN),
    "topk": (gradient("topk", 20), lambda x: falling(x)[:20], GIVEN[:20]),
    "kthvalue": (gradient("kthvalue", 9), lambda x: rising(x)[8], GIVEN[8]),
    "mode": (gradient("mode", 0), lambda x: (x == 2).nonzero()[-1, 0], GIVEN[8]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_go_to_the_places_chosen(name: str, dtype: torch.dtype) -> None:
    program, order, given = GRADIENTS[name]
    x, given = TIED.to(dtype), given.to(dtype)
    (eager,), (other,) = program(x, given), scattered(order)(x, given)
    assert not torch.equal(eager, other)
    assert compare(program, scattered(order), x, given).ok


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_place_that_holds_another_value_is_caught(name: str) -> None:
    program, order, given = GRADIENTS[name]

    def wrong(x: Tensor) -> Tensor:
        places = order(x).clone()
        if not places.dim():
            return (places + 1) % len(x)
        places[[0, -1]] = places[[-1, 0]]
        return places

    assert TIED[wrong(TIED)].ne(TIED[order(TIED)]).any()
    assert compare(program, scattered(wrong), TIED, given).kind == Kind.VALUE


def test_a_gradient_twice_at_one_place_is_caught() -> None:
    def twice(x: Tensor, g: Tensor) -> tuple[Tensor]:
        order = rising(x)
        order[-1] = order[-2]
        return (torch.zeros_like(x).index_put((order,), g, accumulate=True),)

    assert compare(gradient("sort"), twice, TIED, GIVEN).kind == Kind.VALUE


def late(x: Tensor) -> Tensor:
    """Neither eager's choice nor a stable sort's."""
    return len(x) - 1 - rising(x.flip(0))


def one(target: str, *args: Any, **kwargs: Any) -> Program:
    return Program(("x",), (Call(f"torch.{target}", (Ref("x"), *args), kwargs, "r"),), Ref("r"))


ANY = {
    "sort": (one("sort"), lambda x: (x[late(x)], late(x))),
    "argsort": (one("argsort"), late),
    "topk": (one("topk", 7, 0, False), lambda x: (x[late(x)[:7]], late(x)[:7])),
    "topk, in no order": (one("topk", 7, 0, False, False), lambda x: (x[late(x)[:7].flip(0)], late(x)[:7].flip(0))),
    "kthvalue": (one("kthvalue", 9), lambda x: (x[late(x)[8]], late(x)[8])),
    "median": (one("median", 0), lambda x: (x[late(x)[19]], late(x)[19])),
    "nanmedian": (one("nanmedian", 0, True), lambda x: (x[late(x)[19:20]], late(x)[19:20])),
    "mode": (one("mode", 0), lambda x: (x[5], torch.tensor(5))),
}


@pytest.mark.parametrize("name", ANY)
def test_any_right_choice_that_the_results_show(name: str) -> None:
    program, other = ANY[name]
    assert compare(program, other, TIED).ok


def test_values_that_could_be_indices_are_not_taken_for_them() -> None:
    x = torch.tensor([3, 3, 0, 3, 1, 3] * 8)  # x[3] is 3, the mode
    right, wrong = torch.tensor(6), torch.tensor(8)
    assert compare(one("mode"), lambda x: (x[6], right), x).ok
    assert compare(one("mode"), lambda x: (x[6], wrong), x).kind == Kind.VALUE


@pytest.mark.parametrize("name", ANY)
def test_a_wrong_index_is_caught(name: str) -> None:
    program, other = ANY[name]

    def wrong(x: Tensor) -> Any:
        out = other(x)
        return torch.zeros_like(out) if isinstance(out, Tensor) else (out[0], torch.full_like(out[1], 6))

    assert compare(program, wrong, TIED).kind == Kind.VALUE


def test_a_stable_sort_leaves_no_choice() -> None:
    assert compare(one("sort", stable=True), lambda x: (x[late(x)], late(x)), TIED).kind == Kind.VALUE
