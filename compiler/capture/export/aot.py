"""The ``aot`` frontend: the graphs that AOTAutograd makes of a program under torch.compile, forward and backward.

They are functional already, and their dynamic sizes are SymInts. What is assumed of those here is told to PyTorch's
shape environment, so that PyTorch has a call that breaks it compiled anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler.capture.leaves import Computed, Result
from torchstone.compiler.capture.memory.aliases import results_of
from torchstone.compiler.capture.program import Captured, flatten_arguments
from torchstone.compiler.capture.symbolic.integers import (
    bind_integers,
    plain_result,
    rename_leaves,
    rename_symbols,
    under,
)
from torchstone.compiler.capture.symbolic.sizes import bounds_of, to_dim
from torchstone.compiler.capture.trace.recorder import Mutation, Recorder
from torchstone.compiler.capture.trace.replay import replay
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Expr, Value


def capture(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Captured:
    """Capture a graph on its fake inputs. Unsupported, with stage ``capture``, for what a graph of ours cannot hold."""
    leaves, in_spec = flatten_arguments([_specialized(leaf) for leaf in inputs], None)
    recorder = Recorder("main")
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            recorder.input(leaf, f"x{len(recorder.graph.args)}")
    try:
        flat = replay(module, leaves, recorder)
    except Mutation as error:
        raise Unsupported(f"an in-place {error} that AOTAutograd did not functionalize", stage="capture") from None
    graph = recorder.graph
    values = [v for v in flat if isinstance(v, Value)]
    graph.outputs = tuple(values)
    bound, integers = bind_integers(graph, leaves, {i: s for i, s in enumerate(leaves) if isinstance(s, torch.SymInt)})
    renamed = rename_symbols(graph)
    tensors = iter(results_of(graph, values).results)
    results = [next(tensors) if isinstance(v, Value) else plain_result(v, renamed) for v in flat]
    results = [_laid_out(r, fake, renamed) for r, fake in zip(results, _outputs(module), strict=True)]
    captures = [t for _, t in recorder.captures]
    _, out_spec = pytree.tree_flatten(flat)
    out = Captured(graph, rename_leaves(bound, renamed), in_spec, out_spec, results, captures, integers=integers)
    for name, size in _symbols(leaves).items():
        if name in renamed:
            out.hints[renamed[name]] = size.node.hint
            out.ranges[renamed[name]] = bounds_of(size.node.shape_env.var_to_range[size.node.expr])
    return out


def _outputs(module: torch.fx.GraphModule) -> list[Any]:
    """Return the fake results that PyTorch traced."""
    (node,) = (n for n in module.graph.nodes if n.op == "output")
    return [leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf for leaf in node.args[0]]


def _laid_out(result: Result, fake: Any, renamed: dict[str, str]) -> Result:
    """Ask for the strides that PyTorch saw in the result: it makes views of it that rely on them."""
    if not isinstance(result, Computed) or not isinstance(fake, torch.Tensor) or fake.is_contiguous():
        return result
    return Computed(result.index, tuple(under(to_dim(s), renamed) for s in fake.stride()))


def _specialized(leaf: Any) -> Any:
    """Return an input, as a constant where it is no size; PyTorch guards on that."""
    if isinstance(leaf, torch.SymInt):
        return leaf if leaf >= 0 else int(leaf)
    return float(leaf) if isinstance(leaf, torch.SymFloat) else leaf


def _symbols(leaves: Sequence[Any]) -> dict[str, torch.SymInt]:
    """Return the symbols that are a size or an int of their own, by name."""
    sizes = [size for leaf in leaves for size in (leaf.shape if isinstance(leaf, torch.Tensor) else [leaf])]
    found = {}
    for size in sizes:
        if isinstance(size, torch.SymInt) and isinstance(dim := to_dim(size), Expr) and str(dim).isidentifier():
            found[str(dim)] = size
    return found
