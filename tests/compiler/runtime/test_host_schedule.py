"""Schedules: how a graph is split into kernels and what the host does, and how the steps run."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir import Graph, parse_graph
from torchstone.compiler.lowering import partition
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.steps import Segment
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.dce import eliminate_dead_code
from torchstone.compiler.transforms.expand import expand


def flat(text: str) -> Graph:
    graph = expand(parse_graph(text), find_target("evaluator").takes, lambda op: True)
    verify_graph(graph)
    return eliminate_dead_code(graph)


def shape_of(graph: Graph) -> list[str]:
    """Return the steps: ``kernel`` with the ops in it, or the op of the host."""
    steps = []
    for step in partition.split(graph):
        ops = [op.name.partition(".")[2].removesuffix(".default") for op in getattr(step, "graph", graph).ops]
        steps.append(f"kernel: {' '.join(ops)}" if isinstance(step, Segment) else step.name.split(".")[1])  # type: ignore[union-attr]
    return steps


def test_calls_come_early_and_ops_late() -> None:
    graph = flat(
        """graph @f(%x: f32[3, 3], %y: f32[3, 3]) {
      %0: f32[3, 3] = aten.exp.default(%x)
      %1: f32[3, 3] = aten.sin.default(%y)
      %2: f32[3, 3], %3: f32[3, 3] = aten.linalg_qr.default(%x, "reduced")
      %4: f32[3, 3] = aten.mul.Tensor(%2, %0)
      %5: f32[3, 3], %6: f32[3, 3] = aten.linalg_qr.default(%1, "reduced")
      %7: f32[3, 3] = aten.add.Tensor(%4, %6, alpha=1)
      return %7
    }""".replace("alpha=1", "1")
    )
    assert shape_of(graph) == ["linalg_qr", "kernel: sin", "linalg_qr", "kernel: exp mul add"]


def test_constants_are_made_where_they_are_used() -> None:
    graph = flat("""graph @f(%x: f32[3, 3]) {
      %0: f32[3, 3] = aten.add.Scalar(%x, 2, 1)
      %1: f32[3, 3], %2: f32[3, 3] = aten.linalg_qr.default(%0, "reduced")
      %3: f32[3, 3] = aten.add.Scalar(%2, 2, 1)
      return %3
    }""")
    first, _, second = partition.split(graph)
    assert isinstance(first, Segment) and isinstance(second, Segment)
    assert len(first.graph.args) == len(second.graph.args) == 1
    assert len(first.graph.outputs) == 1


def test_a_graph_of_one_target_is_one_kernel() -> None:
    graph = flat("graph @f(%x: f32[3]) {\n %0: f32[3] = aten.exp.default(%x)\n return %0\n}")
    assert shape_of(graph) == ["kernel: exp"]


def test_random_draws_keep_their_order() -> None:
    """The second draw needs nothing, and waits for the first, which waits for a kernel."""
    graph = flat("""graph @f(%x: f32[3]) {
      %0: f32[3] = aten.sigmoid.default(%x)
      %1: f32[3] = aten.bernoulli.default(%0)
      %2: f32[3] = aten.rand.default([3], none, none, none, none)
      %3: f32[3] = aten.add.Tensor(%1, %2, 1)
      return %3
    }""")
    assert [s for s in shape_of(graph) if not s.startswith("kernel")] == ["bernoulli", "rand"]
    assert [s.startswith("kernel") for s in shape_of(graph)] == [True, False, False, True]


COUNTED = """graph @f(%x: f32[3, 4]) {
  %0: i64[u0, 2] = aten.nonzero.default(%x)
  %1: f32[3, 4] = aten.mul.Tensor(%x, 2)
  %2: bool[3, 4] = aten.gt.Scalar(%x, 0)
  %3: f32[u1] = aten.masked_select.default(%1, %2)
  %4: f32[u1] = aten.exp.default(%3)
  return %0, %4
}"""


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_sizes_are_bound_between_kernels(target: str) -> None:
    graph = flat(COUNTED)
    assert parse_graph(str(graph)).ops[-1].name == graph.ops[-1].name
    assert [s if not s.startswith("kernel") else "kernel" for s in shape_of(graph)] == [
        "kernel",
        "bind",
        "bind",
        "kernel",
    ]
    kernel = partition.lower(graph, find_target(target).lower).load()
    for x in (torch.randn(3, 4), torch.randn(3, 4).relu(), torch.zeros(3, 4), -torch.ones(3, 4)):
        places, chosen = kernel([x])
        assert torch.equal(places, x.nonzero())
        torch.testing.assert_close(chosen, (x * 2)[x > 0].exp())
        assert torch.equal(evaluate_graph(graph, [x])[0], places)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_what_was_taken_for_granted_is_checked(target: str) -> None:
    graph = flat("""graph @f(%x: f32[4], %n: f32[]) {
      %0: i64[u0, 1] = aten.nonzero.default(%x)
      flat.require() {left=<u0>, right=2, relation="ne"}
      flat.specialize(%n) {value=1.5}
      return %0
    }""")
    kernel = partition.lower(graph, find_target(target).lower).load()
    assert kernel([torch.tensor([1.0, 0, 1, 1]), torch.tensor(1.5)])[0].tolist() == [[0], [2], [3]]
    with pytest.raises(GuardError, match="compiled for 2 != 2"):
        kernel([torch.tensor([1.0, 0, 0, 1]), torch.tensor(1.5)])
    with pytest.raises(GuardError, match=r"compiled for the value 1.5, and it is 2.0"):
        kernel([torch.ones(4), torch.tensor(2.0)])


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_size_compiled_as_a_number_is_checked(target: str) -> None:
    graph = flat("graph @f(%x: f32[4]) {\n %0: i64[2, 1] = aten.nonzero.default(%x)\n return %0\n}")
    kernel = partition.lower(graph, find_target(target).lower).load()
    assert kernel([torch.tensor([1.0, 0, 0, 1])])[0].tolist() == [[0], [3]]
    with pytest.raises(GuardError, match="a size was compiled to be 2, and is 4"):
        kernel([torch.ones(4)])
