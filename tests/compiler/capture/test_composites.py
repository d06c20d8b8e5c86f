"""Ops that autograd takes apart: where it has no part, they come whole, and the graph is the one it would be."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.compiler._torch.operators import is_only_composite
from torchstone.compiler.capture.trace.schemas import find_overload
from torchstone.compiler.transforms.expansions import EXPANSIONS

x = torch.rand(4, 6) + 0.5

# What their kernels do as well: write in place, share memory, ask for numbers, be given away as they came.
PROGRAMS = {
    "linear": lambda x: F.linear(x, x, x[:, 0]),
    "batch_norm": lambda x: F.batch_norm(x, x[0], x[1], training=False),
    "quantile": lambda x: torch.quantile(x, 0.3, dim=1),
    "isclose": lambda x: torch.isclose(x, x.t().reshape(4, 6)),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij"),
    "conj_physical": lambda x: torch.conj_physical(x),
    "item": lambda x: x * x.sum().item(),
    "in place": lambda x: x.clone().square_(),
}


def graph(program, args=(x,)):
    return torchstone.compile(program, args).ir["aten"]


@pytest.mark.few(6)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_the_same_graph_in_inference_mode(program) -> None:
    with torch.no_grad():
        plain = graph(program)

    def inside(x):
        with torch.inference_mode():
            return program(x)

    with torch.inference_mode():
        assert graph(program) == plain
        compiled = torchstone.compile(program, (x,))
        torch.testing.assert_close(compiled(x), program(x))
        made = x.clone()  # an inference tensor, outside of the mode as well
    with torch.no_grad():
        assert graph(inside) == plain.replace("@main", "@inside")
    assert graph(program, (made,)) == plain


def test_no_expansion_is_of_what_comes_apart() -> None:
    assert [name for name in EXPANSIONS if is_only_composite(find_overload(name))] == []
