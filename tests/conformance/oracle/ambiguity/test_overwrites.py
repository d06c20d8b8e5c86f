"""Of several values that are written to one place any may be there, and no other number; elsewhere nothing is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref

X = torch.arange(12.0).view(3, 4)
TWICE = torch.tensor([1, 0, 1, 1])
NEW = torch.arange(100.0, 112.0).view(3, 4)
POOLED = torch.tensor([[[[5.0, 7.0], [9.0, 11.0]]]])
PLACES = torch.tensor([[[[3, 3], [0, 3]]]])

Order = list[int]


def in_order(write: Callable[[Order], Tensor], count: int) -> list[Tensor]:
    """What is there when the writes come in each of some orders."""
    return [write([*range(k, count), *range(k)]) for k in range(count)]


CASES: dict[str, tuple[str, tuple[Any, ...], list[Tensor]]] = {
    "index_copy": (
        "torch.index_copy",
        (X, 1, TWICE, NEW),
        in_order(lambda order: X.index_copy(1, TWICE[order], NEW[:, order]), 4),
    ),
    "scatter": (
        "torch.scatter",
        (X, 1, TWICE.expand(3, 4), NEW),
        in_order(lambda order: X.scatter(1, TWICE[order].expand(3, 4), NEW[:, order]), 4),
    ),
    "scatter of a part": (
        "torch.scatter",
        (X, 0, torch.tensor([[2, 2], [2, 0]]), NEW),
        [X.put(torch.tensor([8, 9, 1]), torch.tensor([value, 101.0, 105.0])) for value in (104.0, 100.0)],
    ),
    "index_put": (
        "torch.index_put",
        (X, (torch.tensor([0, 0, 2]), torch.tensor([1, -3, 2])), torch.tensor([50.0, 60.0, 70.0])),
        [X.put(torch.tensor([1, 10]), torch.tensor([value, 70.0])) for value in (60.0, 50.0)],
    ),
    "put": (
        "torch.Tensor.put",
        (X, TWICE, torch.tensor([50.0, 60.0, 70.0, 80.0])),
        in_order(lambda order: X.put(TWICE[order], torch.tensor([50.0, 60.0, 70.0, 80.0])[order]), 4),
    ),
    "as_strided_scatter": (
        "torch.as_strided_scatter",
        (X, torch.tensor([[50.0, 60.0], [70.0, 80.0]]), (2, 2), (1, 1), 3),
        [X.put(torch.tensor([3, 4, 5]), torch.tensor([50.0, value, 80.0])) for value in (70.0, 60.0)],
    ),
    "max_unpool2d": (
        "torch.nn.functional.max_unpool2d",
        (POOLED, PLACES, 2),
        [torch.zeros(1, 1, 4, 4).index_put((torch.tensor([0]),) * 2 + (torch.tensor([0, 0]), torch.tensor([3, 0])),
                                           torch.tensor([last, 9.0])) for last in (11.0, 7.0, 5.0)],
    ),
}  # fmt: skip


def judged(target: str, args: tuple[Any, ...], given: Tensor, then: str = "") -> Outcome:
    tensors = tuple(a for a in args if isinstance(a, Tensor))
    tensors += tuple(t for a in args if isinstance(a, tuple) for t in a if isinstance(t, Tensor))
    names = {id(tensor): f"x{i}" for i, tensor in enumerate(tensors)}

    def named(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(named, value))
        return Ref(names[id(value)]) if isinstance(value, Tensor) else value

    calls = (Call(target, tuple(map(named, args)), {}, "r"),)
    calls += (Call(then, (Ref("r"),), {}, "s"),) if then else ()
    program = Program(tuple(names.values()), calls, Ref("s" if then else "r"))
    expected = program(*(t.clone() for t in tensors))
    return judge(program, tensors, Observed(expected, tensors), Observed(given, tensors)).outcome


@pytest.mark.torture
@pytest.mark.parametrize("name", CASES)
def test_any_of_the_values_is_right_and_nothing_else(name: str) -> None:
    target, args, right = CASES[name]
    assert len({tuple(one.reshape(-1).tolist()) for one in right}) > 1
    for one in right:
        assert judged(target, args, one) is Outcome.PASS
        wrong = one.clone()
        wrong.view(-1)[1::4] += 0.5
        assert judged(target, args, wrong) is Outcome.MISMATCH


@pytest.mark.torture
@pytest.mark.parametrize("name", ["index_copy", "put"])
def test_what_follows_from_the_first_everywhere_is_right(name: str) -> None:
    target, args, right = CASES[name]
    first = right[1]  # the first of the writes comes last
    assert judged(target, args, first.sin(), "torch.sin") is Outcome.PASS
    assert judged(target, args, first.sin() + 0.1, "torch.sin") is Outcome.MISMATCH


def test_what_is_added_up_is_not_open() -> None:
    args = (X, TWICE, torch.tensor([50.0, 60.0, 70.0, 80.0]), True)
    added = X.put(*args[1:])
    assert judged("torch.Tensor.put", args, added) is Outcome.PASS
    assert judged("torch.Tensor.put", args, CASES["put"][2][0]) is Outcome.MISMATCH


def test_a_write_in_place_is_seen_in_the_input() -> None:
    program = Program(
        ("x", "i", "v"), (Call("torch.Tensor.index_copy_", (Ref("x"), 1, Ref("i"), Ref("v")), {}, "r"),), ()
    )
    expected, other = X.clone().index_copy_(1, TWICE, NEW), X.index_copy(1, TWICE.flip(0), NEW.flip(1))
    for given, outcome in ((expected, Outcome.PASS), (other, Outcome.PASS), (other + 1, Outcome.MISMATCH)):
        left = (given.clone(), TWICE, NEW)
        found = judge(program, (X, TWICE, NEW), Observed((), (expected, TWICE, NEW)), Observed((), left))
        assert found.outcome is outcome, found
