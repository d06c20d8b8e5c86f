"""Compiling leaves nothing behind: the random generators, and the line of what is refused inside of somebody's try."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.compiler.capture import test_decisions, test_numbers
from tests.compiler.test_library_calls import RANDOM
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg", "tosa", "tensorrt")
ROWS = {0: torch.export.Dim.AUTO}


def programs() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    for table in (test_decisions.COMPUTING, test_decisions.DECIDING, test_decisions.SIZED, test_numbers.PROGRAMS):
        for fn, calls in table.values():
            yield fn, calls[0]
    for fn, number, _ in test_numbers.DECIDING.values():
        yield fn, (test_numbers.X, number)
    for name, fn in RANDOM.items():
        yield fn, (torch.ones(3 if name == "rand" else 4),)
    yield torch.split, (torch.arange(6.0), [1, 5])
    yield lambda x: x * 2 if torch.rand(()) > 0.5 else x, (torch.ones(4),)


# What draws is a frontend, and none hangs on the target: the long tests ask the others, too.
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("target", "dynamic", "every"),
    [
        *(pytest.param(name, False, 1, marks=() if name == "evaluator" else pytest.mark.torture) for name in TARGETS),
        ("evaluator", True, 4),
        pytest.param("evaluator", True, 1, marks=pytest.mark.torture),
    ],
)
def test_no_compile_draws(target: str, dynamic: bool, every: int) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
    for fn, args in itertools.islice(programs(), 0, None, every):
        sizes = tuple(ROWS if isinstance(a, torch.Tensor) and a.dim() else None for a in args) if dynamic else None
        with contextlib.suppress(TorchstoneError):
            compile(fn, args, target, sizes)
        state = torch.get_rng_state(), random.getstate(), np.random.get_state()[2]
        assert torch.equal(state[0], before[0]) and state[1:] == before[1:], fn


def loaded() -> Callable[..., Any]:
    one, other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def program(x):
        other.load_state_dict(one.state_dict())
        return other(x)

    program.state = one, other  # type: ignore[attr-defined]
    return program


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_state_dict_is_loaded_at_each_call(target: str) -> None:
    program = loaded()
    one, other = program.state  # type: ignore[attr-defined]
    before = [t.clone() for t in other.state_dict().values()]
    x = torch.randn(3, 4)
    exe = compile(program, (x,), target)
    assert all(map(torch.equal, before, other.state_dict().values()))
    for number in range(2):
        with torch.no_grad():
            one[0].weight.add_(number)
            expected = nn.functional.batch_norm(one[0](x), None, None, training=True)
        torch.testing.assert_close(exe(x), expected)
        assert torch.equal(other[0].weight, one[0].weight) and int(other[1].num_batches_tracked) == 1


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_keys_that_are_read_are_numbers(target: str) -> None:
    seen: dict[Any, Any] = {}
    ordered: OrderedDict[Any, Any] = OrderedDict(first=1)
    met: set[Any] = set()

    def program(x):
        k = x.argmax().item()
        seen[k] = seen.get(k, 0) + 1
        seen[k, "row"] = x * 2
        ordered[k, x.max().item()] = k
        met.add((k, frozenset([k])))
        return {k: x, "again": {x.min().item(): k}}

    x = torch.tensor([0.5, 2.5, 1.5])
    exe = compile(program, (x,), target)
    assert not seen and not met and list(ordered) == ["first"]
    with pytest.raises(GuardError, match=r"test_no_trace\.py"):
        exe(-x)
    assert not seen and not met and list(ordered) == ["first"]
    got = exe(x)
    assert list(got) == [1, "again"] and got["again"] == {0.5: 1} and list(seen) == [1, (1, "row")]
    assert seen[1] == 1 and met == {(1, frozenset([1]))} and ordered == OrderedDict([("first", 1), ((1, 2.5), 1)])
    keys = [*got, *seen, *ordered, *next(iter(met))]
    assert {type(key) for key in keys} == {int, str, tuple, frozenset}


def read_otherwise(x):
    try:
        return x.numpy().sum() * x
    except Exception:
        return x * 3


def swapped(x):
    y = x * 2
    try:
        torch.utils.swap_tensors(x, y)
    except Exception as error:
        raise RuntimeError("the program says that it is the user's fault") from error
    return x


def seeded(x):
    try:
        return x * torch.initial_seed()
    except Exception:
        return x


@pytest.mark.parametrize("program", [read_otherwise, swapped, seeded])
def test_a_refusal_that_the_program_catches_is_told(program: Callable[..., Any]) -> None:
    with pytest.raises(Unsupported, match=r"test_no_trace\.py"):
        compile(program, (torch.ones(3),), "evaluator")


def test_what_the_program_raises_itself_is_its_own() -> None:
    def program(x):
        try:
            x.view(7)
        except RuntimeError as error:
            raise ValueError("no such size") from error

    with pytest.raises(ValueError, match="no such size"):
        compile(program, (torch.ones(3),), "evaluator")
