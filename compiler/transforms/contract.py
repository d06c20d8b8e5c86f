"""A captured graph becomes a graph of what the target takes: the pipelines ``contract`` and ``flat``, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchstone.compiler.capture.program import Guard
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.library import find_family
from torchstone.compiler.lowering.steps import is_control
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.passes import Pass, Pipeline
from torchstone.compiler.transforms.bounds import REQUIRE, hoist, require_bounds
from torchstone.compiler.transforms.cse import eliminate_common_subexpressions
from torchstone.compiler.transforms.dce import eliminate_dead_code
from torchstone.compiler.transforms.decompose import decompose
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.compiler.transforms.size_specialization import require_large_sizes
from torchstone.compiler.transforms.verify import verify


@dataclass(slots=True)
class Contract:
    """What the passes of one compilation share: the target, example sizes, and the guards that passes add."""

    target: Target
    library_calls: bool = True
    hints: Mapping[str, int] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    verified: list[Operation] | None = None

    def keeps(self, op: Operation) -> bool:
        """Say whether an op needs no decomposition of PyTorch's."""
        if op.name.startswith("flat.") or op.name in EXPANSIONS:
            return True
        return self.calls(op) or self.target.takes(op) is None

    def takes(self, op: Operation) -> str | None:
        """Return None when the target, or the host around its kernels, runs this op, else why not."""
        if self.target.schedules and is_control(op):
            return None
        refusal = self.target.takes(op)
        family = None if refusal is None else find_family(op)
        if family is None:
            return refusal
        why = "library calls are off" if self.target.schedules else f"the target {self.target.name} makes none"
        return f"{op.name} is a call into LibTorch ({family.reason}), and {why}"

    def calls(self, op: Operation) -> bool:
        """Say whether an op may be a call into LibTorch."""
        return self.target.schedules and self.library_calls and find_family(op) is not None


def _verify(graph: Graph, c: Contract) -> Graph:
    if graph.ops != c.verified:
        verify_graph(graph)
        c.verified = list(graph.ops)
    return graph


def _require_large_sizes(graph: Graph, c: Contract) -> Graph:
    require_large_sizes(graph, c.hints)
    return graph


def _decompose(graph: Graph, c: Contract) -> Graph:
    graph, guards = decompose(graph, c.keeps, c.hints)
    c.guards.extend(guards)
    return graph


def _expand(graph: Graph, c: Contract) -> Graph:
    return expand(graph, lambda op: None if op.name == REQUIRE else c.takes(op), c.calls)


def _hoist(graph: Graph, c: Contract) -> Graph:
    graph, guards = hoist(graph)
    c.guards.extend(guards)
    return graph


def _verify_contract(graph: Graph, c: Contract) -> Graph:
    verify(graph, lambda op: None if c.calls(op) else c.takes(op))
    return graph


_DEAD_CODE = Pass("eliminate-dead-code", "ops go that nobody uses", lambda graph, c: eliminate_dead_code(graph))

CONTRACT = Pipeline(
    "contract",
    (
        Pass("verify", "the IR's own rules hold", _verify),
        Pass("require-large-sizes", "sizes of 0 and 1 that would change results are excluded", _require_large_sizes),
        Pass("decompose", "ATen ops without an expansion become simpler ones, by PyTorch's tables", _decompose),
        _DEAD_CODE,
        Pass("verify", "the IR's own rules hold", _verify),
    ),
)  # fmt: skip

FLAT = Pipeline(
    "flat",
    (
        Pass("expand", "ops that the target does not take become primitives", _expand),
        Pass("cse", "nothing is computed twice", lambda graph, c: eliminate_common_subexpressions(graph)),
        _DEAD_CODE,
        Pass("require-bounds", "what primitives assume of sizes is checked", lambda graph, c: require_bounds(graph)),
        Pass("hoist-requires", "checks that the arguments' sizes decide become guards", _hoist),
        Pass("verify-contract", "the target takes every op, and all sizes are bound", _verify_contract),
    ),
)


def to_contract(
    graph: Graph, target: Target, hints: Mapping[str, int], *, library_calls: bool = True
) -> tuple[Graph, list[Guard]]:
    """Return the graph of core ATen ops, and what decomposing assumed of its sizes; ``hints`` are example sizes."""
    context = Contract(target, library_calls, hints)
    return CONTRACT.run(graph, context), context.guards


def to_flat(contract: Graph, target: Target, *, library_calls: bool = True) -> tuple[Graph, list[Guard]]:
    """Return the graph of ops that the target takes, and what they take for granted of the sizes of its arguments."""
    context = Contract(target, library_calls)
    return FLAT.run(contract, context), context.guards
