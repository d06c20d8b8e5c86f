"""Lists and dicts among the arguments that a program changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compiler.capture.state.compare import difference, picture
from tests.compiler.capture.state.test_state import inputs
from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile


def arguments(name: str) -> tuple[Any, ...]:
    made: dict[str, Any] = {
        "list": ([],), "dict": ({},), "nested": ({"rows": [torch.ones(3)]},), "twice": ([1], [2]),
    }  # fmt: skip
    return made[name]


ON_ARGUMENTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "append": ("list", lambda x, rows: rows.append(x * 2)),
    "setitem": ("dict", lambda x, named: named.update(y=x * 2)),
    "nested": ("nested", lambda x, d: (d["rows"][0].add_(x), d["rows"].append(x), d.update(n=len(d["rows"])))[-1]),
    "moved": ("twice", lambda x, one, two: one.append(two.pop())),
    "returned": ("list", lambda x, rows: rows),
}


@pytest.mark.parametrize(("name", "target"), covering(ON_ARGUMENTS, ["evaluator", "linalg"], strength=1))
def test_containers_of_the_arguments_are_changed_as_eager_does(name: str, target: str) -> None:
    kind, program = ON_ARGUMENTS[name]
    mine, theirs = arguments(kind), arguments(kind)
    exe = compile(program, (inputs(0), *mine), target)
    assert not difference(picture(mine), picture(arguments(kind)))
    one, two = exe(inputs(1), *mine), program(inputs(1), *theirs)
    assert not difference(picture([one, mine]), picture([two, theirs]))


def test_a_list_that_is_only_added_to_may_have_any_length() -> None:
    rows: list[torch.Tensor] = []
    exe = compile(lambda x, rows: rows.append(x), (inputs(0), rows), "evaluator")
    for number in range(3):
        exe(inputs(number), rows)
    assert [row[0].item() for row in rows] == [0.25, 1.25, 2.25]
    with pytest.raises(GuardError, match="compiled for a call like"):
        exe(inputs(0), (1, 2))


def test_one_object_for_two_that_are_written_to_is_guarded() -> None:
    def program(x, one, two):
        one.append(x)
        two.append(len(one))

    exe = compile(program, (inputs(0), [], []), "evaluator")
    shared: list[Any] = []
    with pytest.raises(GuardError, match="are one now"):
        exe(inputs(0), shared, shared)
    with pytest.raises(Unsupported, match=r"twice|one now"):
        compile(program, (inputs(0), shared, shared), "evaluator")
    assert not shared


def test_two_arguments_that_are_one_tensor_are_guarded_where_one_is_written_to() -> None:
    def program(x, y):
        x.add_(1)
        return y * 2

    exe = compile(program, (torch.zeros(3), torch.zeros(3)), "evaluator")
    x = torch.ones(3)
    with pytest.raises(GuardError, match="share memory"):
        exe(x, x)
