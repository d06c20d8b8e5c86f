"""What a program went by of Python's state is guarded, by the place where it was. A refused call changes nothing."""

import dataclasses
import os
import queue
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.compiler.capture.state.test_state import inputs
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile


@dataclasses.dataclass
class World:
    scale: float = 2.0
    flag: bool = True
    names: dict[str, int] = dataclasses.field(default_factory=lambda: {"a": 1})
    numbers: Any = dataclasses.field(default_factory=lambda: np.ones(3))
    layers: Any = dataclasses.field(default_factory=lambda: nn.ModuleList([nn.Linear(3, 3), nn.ReLU()]))
    jobs: Any = dataclasses.field(default_factory=queue.Queue)

    def function(self, x):
        return x + 1

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.function(x) * self.scale * float(self.numbers[0]) * len(self.names) * int(os.environ["STATE"])
        return x if self.flag else -x


def _patch(world: World) -> None:
    world.function = lambda x: x - 1  # type: ignore[method-assign]


CHANGED: dict[str, tuple[Callable[[World], Any], str]] = {
    "number": (lambda w: setattr(w, "scale", 3.0), r"World\.scale was 2\.0 .* is 3\.0"),
    "another class of number": (lambda w: setattr(w, "scale", 2), r"World\.scale was 2\.0 .* is 2"),
    "flag": (lambda w: setattr(w, "flag", False), r"World\.flag was True"),
    "entry": (lambda w: w.names.update(b=2), r"World\.names has an entry 'b' now"),
    "array": (lambda w: w.numbers.__setitem__(0, 5.0), r"World\.numbers holds other numbers"),
    "layer": (lambda w: w.layers.append(nn.ReLU()), r"World\.layers has an entry '2' now"),
    "another layer": (lambda w: w.layers.__setitem__(1, nn.Tanh()), r"World\.layers\.1 was a ReLU"),
    "hook": (lambda w: w.layers[0].register_forward_hook(lambda m, a, out: out * 2), r"_forward_hooks has an entry"),
    "mode": (lambda w: w.layers.eval(), "was in training mode"),
    "method": (_patch, r"World\.function was not there"),
    "environment": (lambda w: os.environ.update(STATE="3"), r"os\.environ"),
    "default dtype": (lambda w: torch.set_default_dtype(torch.float64), "default dtype"),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("dynamic", [None, ({0: torch.export.Dim.AUTO},)], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CHANGED)
def test_what_a_program_went_by_is_guarded(name: str, dynamic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE", "1")
    world, x = World(), torch.randn(4, 3)
    exe = compile(world, (x,), "evaluator", dynamic)
    with torch.no_grad():
        torch.testing.assert_close(exe(x), world(x))
        world.layers[0].weight = nn.Parameter(torch.eye(3))
        torch.testing.assert_close(exe(x), world(x))
        world.layers[0] = nn.Linear(3, 3)
        torch.testing.assert_close(exe(x), world(x))
    change, match = CHANGED[name]
    try:
        change(world)
        with pytest.raises(GuardError, match=match):
            exe(x)
    finally:
        torch.set_default_dtype(torch.float32)


def test_under_dynamic_shapes_a_change_is_refused_at_its_line() -> None:
    log: list[torch.Tensor] = []

    def program(x, rows):
        y = x * 2
        log.append(y)
        return y

    shapes = ({0: torch.export.Dim.AUTO}, None)
    with pytest.raises(Unsupported, match=r"log, which torch\.export(.|\n)*log\.append\(y\)"):
        compile(program, (torch.randn(4, 3), 1), "evaluator", shapes)
    with pytest.raises(Unsupported, match=r"an argument, which torch\.export(.|\n)*rows\.append\(x\)"):
        compile(lambda x, rows: rows.append(x), (torch.randn(4, 3), []), "evaluator", ({0: torch.export.Dim.AUTO}, []))
    assert not log


def test_a_call_that_is_refused_changes_nothing() -> None:
    state = types.SimpleNamespace(n=0, mode="a")

    def program(x):
        state.n += 1
        return x * state.n if state.mode == "a" else x

    exe = compile(program, (inputs(0),), "evaluator")
    state.mode = "b"
    with pytest.raises(GuardError, match="mode was 'a'"):
        exe(inputs(0))
    assert state.n == 0
