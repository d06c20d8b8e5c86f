"""Scripted and traced modules and functions: compiled like any other program, their parameters read at each call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
TARGETS = ("evaluator", "linalg")
X = torch.linspace(-2, 3, 12).view(4, 3)


class Gate(torch.nn.Module):
    """Branches on a value and on an attribute, and has a buffer that it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.shape[0])
        out = self.linear(x) if self.training else self.linear(x) * 2
        if bool(x.sum() > 0):
            return out + self.seen
        return out - 1


def chain() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x * 0.5, x)


MODULES: dict[str, Callable[[], Any]] = {
    "script": lambda: torch.jit.script(chain()),
    "script in evaluation": lambda: torch.jit.script(chain().eval()),
    "trace": lambda: torch.jit.trace(torch.nn.Linear(3, 2), X),
    "trace in evaluation": lambda: torch.jit.trace(chain().eval(), X),
    "branches": lambda: torch.jit.script(Gate()),
    "branches in evaluation": lambda: torch.jit.script(Gate()).eval(),
    "inside": lambda: torch.nn.Sequential(torch.jit.script(chain()), torch.nn.Linear(2, 2)),
    "traced inside": lambda: torch.nn.Sequential(torch.jit.trace(torch.nn.Linear(3, 3), X), torch.nn.BatchNorm1d(3)),
    "scripted twice": lambda: torch.nn.Sequential(*[torch.jit.script(torch.nn.Linear(3, 3))] * 2),
}


def _outcome(program: Any, x: torch.Tensor, state: Any) -> list[Any]:
    return [program(x), *(t.clone() for t in state.buffers())]


@pytest.mark.parametrize(("name", "target"), covering(MODULES, TARGETS, strength=1))
def test_a_scripted_module_is_what_it_is_in_eager(name: str, target: str) -> None:
    torch.manual_seed(0)
    mine = MODULES[name]()
    theirs = copy.deepcopy(mine)
    before = [t.clone() for t in mine.state_dict().values()]
    exe = compile(mine, (X,), target)
    assert all(map(torch.equal, before, mine.state_dict().values()))
    for step in range(3):
        x = X + step
        torch.testing.assert_close(_outcome(exe, x, mine), _outcome(theirs, x, theirs))
        with torch.no_grad():
            for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
                one.mul_(0.5)
                other.mul_(0.5)


@pytest.mark.parametrize("target", TARGETS)
def test_functions(target: str) -> None:
    for program in (torch.jit.script(halves), torch.jit.trace(halves, X)):
        exe = compile(program, (X,), target)
        for x in (X, -X):
            torch.testing.assert_close(exe(x), halves(x))


@pytest.mark.parametrize("inside", [False, True])
def test_a_frozen_module(inside: bool) -> None:
    frozen = torch.jit.freeze(torch.jit.script(chain().eval()))
    program = torch.nn.Sequential(frozen, torch.nn.ReLU()) if inside else frozen
    torch.testing.assert_close(compile(program, (X,), "linalg")(X * 2), program(X * 2))


def test_what_a_scripted_module_decides_by_is_guarded() -> None:
    scripted = torch.jit.script(Gate())
    exe = compile(scripted, (X,), "evaluator")
    exe(X)
    with pytest.raises(GuardError):
        exe(-X - 10)
    with pytest.raises(GuardError, match="mode"):
        scripted.eval()
        exe(X)


def test_what_is_refused_in_a_scripted_program_is_refused_by_its_reason() -> None:
    @torch.jit.script
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().to_dense()

    with pytest.raises(Unsupported, match="sparse"):
        compile(program, (X,), "evaluator")
