"""The oracle on choices among equal elements: the right ones pass with what follows from them, wrong places do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.sampling import some
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


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(GRADIENTS, ("sort", "kthvalue", "mode").__contains__))
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


def any_order(x: Tensor) -> Tensor:
    """Equal elements in an order that is neither eager's nor a stable sort's, forwards or backwards."""
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(7))
    return shuffled[rising(x[shuffled])]


def exchanged(x: Tensor) -> Tensor:
    """Such an order, but for two elements that are not equal."""
    order = any_order(x).clone()
    order[[0, -1]] = order[[-1, 0]]
    return order


ORDERS = {
    "sort": (gradient("sort"), lambda order, x: order(x), GIVEN),
    "msort": (gradient("msort"), lambda order, x: order(x), GIVEN),
    "topk": (gradient("topk", 20, -1, False), lambda order, x: order(x)[:20], GIVEN[:20]),
    "kthvalue": (gradient("kthvalue", 40), lambda order, x: order(x)[39], GIVEN[39]),
    "median": (gradient("median", 0), lambda order, x: order(x)[19], GIVEN[19]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ORDERS)
def test_gradients_show_any_choice(name: str, dtype: torch.dtype) -> None:
    program, places, given = ORDERS[name]
    x, given = TIED.to(dtype), given.to(dtype)
    other = scattered(partial(places, any_order))
    before = [program, *(scattered(partial(places, order)) for order in (rising, late))]
    assert not any(torch.equal(function(x, given)[0], other(x, given)[0]) for function in before)
    assert compare(program, other, x, given).ok


@pytest.mark.parametrize("name", some([name for name in ORDERS if name != "median"], ("topk", "kthvalue").__contains__))
def test_gradients_show_no_choice_of_an_element_that_is_not_equal(name: str) -> None:
    program, places, given = ORDERS[name]
    assert compare(program, scattered(lambda x: places(exchanged, x)), TIED, given).kind == Kind.VALUE


@pytest.mark.parametrize("factor", [0.5, 1.01])
def test_gradients_show_no_choice_of_other_numbers(factor: float) -> None:
    def wrong(x: Tensor, g: Tensor) -> tuple[Tensor]:
        (right,) = scattered(any_order)(x, g)
        right[3] *= factor
        return (right,)

    assert compare(gradient("sort"), wrong, TIED, GIVEN).kind == Kind.VALUE


def halves(x: Tensor, g: Tensor) -> tuple[Tensor]:
    """A gradient that equal elements share, as that of ``amax`` does."""
    equal = (x == x.sort().values[19]).to(g.dtype)
    return (equal * g / equal.sum(),)


def test_equal_elements_do_not_share_a_gradient() -> None:
    assert compare(gradient("median", 0), halves, TIED, GIVEN[19]).kind == Kind.VALUE


def of_quantile(x: Tensor, dim: int | None, order: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of the sum of the quantiles 0.3: what two ranks weigh, at their places in some order."""
    rows = x.flatten()[None] if dim is None else x.movedim(dim, -1)
    places = torch.stack([order(row) for row in rows.reshape(-1, rows.shape[-1])]).reshape(rows.shape)
    rank = 0.3 * (rows.shape[-1] - 1)
    weights = torch.zeros(rows.shape[-1])
    weights[int(rank)], weights[int(rank) + 1] = 1 - rank % 1, rank % 1
    found = torch.zeros(rows.shape).scatter_(-1, places, weights.expand(rows.shape))
    return found.reshape(x.shape) if dim is None else found.movedim(-1, dim)


def gradient_of_quantile(dim: int | None) -> Program:
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "data"),
        Call("torch.Tensor.requires_grad_", (Ref("data"),), {}, "leaf"),
        Call("torch.quantile", (Ref("leaf"), 0.3), {"dim": dim}, "r"),
        Call("torch.sum", (Ref("r"),), {}, "total"),
        Call("torch.autograd.grad", (Ref("total"), [Ref("leaf")]), {}, "y"),
    )
    return Program(("x",), calls, Ref("y"))


@pytest.mark.parametrize("dim", [None, 0, 1, 2])
def test_gradients_show_the_choice_of_a_sort_of_other_rows(dim: int | None) -> None:
    x = TIED[:27].reshape(3, 3, 3)  # what is sorted has its dims elsewhere
    program = gradient_of_quantile(dim)
    assert not torch.equal(program(x)[0], of_quantile(x, dim, any_order))
    assert compare(program, lambda x: (of_quantile(x, dim, any_order),), x).ok


@pytest.mark.torture
def test_gradients_of_other_rows_are_caught() -> None:
    x = TIED[:12].reshape(2, 3, 2)
    assert compare(gradient_of_quantile(1), lambda x: (of_quantile(x, 1, rising).flip(0),), x).kind == Kind.VALUE


@pytest.mark.torture
def test_two_choices_of_which_each_has_a_gradient() -> None:
    x = TIED[:12].reshape(2, 3, 2)
    y = TIED[5:14].reshape(3, 3)
    calls = []
    for name, dim in (("x", 1), ("y", 0)):
        calls += [
            Call("torch.Tensor.detach", (Ref(name),), {}, f"{name}_data"),
            Call("torch.Tensor.requires_grad_", (Ref(f"{name}_data"),), {}, f"{name}_leaf"),
            Call("torch.quantile", (Ref(f"{name}_leaf"), 0.3), {"dim": dim}, f"{name}_r"),
            Call("torch.sum", (Ref(f"{name}_r"),), {}, f"{name}_total"),
        ]
    calls += [
        Call("torch.add", (Ref("x_total"), Ref("y_total")), {}, "total"),
        Call("torch.autograd.grad", (Ref("total"), [Ref("x_leaf"), Ref("y_leaf")]), {}, "g"),
    ]
    program, args = Program(("x", "y"), tuple(calls), Ref("g")), (x, y)
    late_ones = (of_quantile(x, 1, late), of_quantile(y, 0, late))
    expected = Observed(program(*args), args)
    assert judge(program, args, expected, Observed(late_ones, args)).ok
    wrong = (late_ones[0], late_ones[1].flip(1))
    assert judge(program, args, expected, Observed(wrong, args)).kind == Kind.VALUE


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


def test_a_mode_is_any_value_that_is_there_most_often() -> None:
    x = torch.tensor([4, 7, 2, 7, 4, 9])
    assert compare(one("mode"), lambda x: (x[3], torch.tensor(3)), x).ok
    assert compare(one("mode", 0, True), lambda x: (x[1:2], torch.tensor([1])), x).ok
    assert compare(one("mode"), lambda x: (x[3], torch.tensor(0)), x).kind == Kind.VALUE  # a place of another number
    assert compare(one("mode"), lambda x: (x[5], torch.tensor(5)), x).kind == Kind.VALUE  # a number that is there once


@pytest.mark.parametrize("name", ANY)
def test_a_wrong_index_is_caught(name: str) -> None:
    program, other = ANY[name]

    def wrong(x: Tensor) -> Any:
        out = other(x)
        return torch.zeros_like(out) if isinstance(out, Tensor) else (out[0], torch.full_like(out[1], 6))

    assert compare(program, wrong, TIED).kind == Kind.VALUE


def test_a_stable_sort_leaves_no_choice() -> None:
    assert compare(one("sort", stable=True), lambda x: (x[late(x)], late(x)), TIED).kind == Kind.VALUE


NAN = float("nan")


@pytest.mark.parametrize(
    ("target", "shape", "size"), [("max_pool2d", (1, 2, 4), 2), ("max_pool3d", (1, 1, 2, 4), (1, 2, 2))]
)
def test_a_pool_gives_the_place_of_the_first_or_the_last_nan_of_a_window(target: str, shape: Any, size: Any) -> None:
    x = torch.tensor([[1.0, NAN, NAN, NAN], [NAN, 3.0, 1.0, NAN]]).reshape(shape)
    program = one(f"nn.functional.{target}", size, return_indices=True)
    values, last = program(x)

    def with_places(*places: int) -> Finding:
        return compare(program, lambda x: (values.clone(), torch.tensor(places).reshape(last.shape)), x)

    assert last.flatten().tolist() == [4, 7]
    assert with_places(1, 2).ok
    assert with_places(1, 3).kind == with_places(0, 2).kind == Kind.VALUE


def test_the_first_nan_needs_no_decomposition_of_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11 has none of these pools. Padding and what a window leaves over are no places."""
    monkeypatch.setattr("torchstone.conformance.oracle.perturbation.decompositions.decompositions", dict)
    monkeypatch.setattr("torchstone.conformance.oracle.ambiguity.ties.decompositions", dict, raising=False)
    x = torch.tensor([[1.0, NAN, NAN, 2.0, 3.0], [NAN, 3.0, 1.0, NAN, NAN]]).reshape(1, 2, 5)
    program = one("nn.functional.max_pool2d", 3, stride=2, padding=1, ceil_mode=True, return_indices=True)
    values, last = program(x)

    def with_places(*places: int) -> Finding:
        return compare(program, lambda x: (values.clone(), torch.tensor(places).reshape(last.shape)), x)

    assert last.flatten().tolist() == [5, 8, 9, 5, 8, 9]
    assert with_places(1, 1, 8, 5, 8, 8).ok
    assert with_places(1, 1, 8, 5, 8, 9).kind == with_places(0, 1, 8, 5, 8, 8).kind == Kind.VALUE
