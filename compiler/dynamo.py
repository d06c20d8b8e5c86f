"""``torch.compile(model, backend="torchstone")``: TorchDynamo captures, AOTAutograd differentiates, this compiles.

    torch.compile(model, backend="torchstone", options={"target": "linalg", "library_calls": True})

Forward and backward graphs are both compiled. What the target does not take is an error that says so, never a graph
that PyTorch runs instead. PyTorch finds this backend by its entry point, so that importing torchstone imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchstone.compiler._torch import dynamo
from torchstone.compiler.capture.export import aot
from torchstone.compiler.capture.memory.layouts import drawn_into_out
from torchstone.compiler.capture.trace.tracer_overrides import integer_blends_refused
from torchstone.compiler.capture.writes import ExactWrites
from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.driver import build
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.target import Target

_OPTIONS = {"target": "linalg", "library_calls": True}


def backend(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo.

    ``options`` are ``target``, ``library_calls`` and the target's own, as ``torchstone.compile`` takes them. A graph
    has no names for its dynamic sizes: they are s0, s1 and so on, in the order in which its arguments have them.
    TorchstoneError for an unknown option, Unsupported for an op that the target does not take.
    """
    settings = {**_OPTIONS, **(options or {})}
    target = find_target(settings["target"])
    known = (*_OPTIONS, *target.options)
    for name in settings:
        if name not in known:
            listed = f"target {target.name} has {', '.join(known)}"
            raise TorchstoneError(f'no option "{name}"{did_you_mean(name, known)}; {listed}')
    own = {name: value for name, value in settings.items() if name not in _OPTIONS}

    def compile_graph(graph: torch.fx.GraphModule, fakes: Sequence[Any]) -> Callable[..., Any]:
        return _compile(graph, fakes, target, settings["library_calls"], own)

    drawn_into_out(module.graph)
    with integer_blends_refused(), ExactWrites():
        return dynamo.aot_autograd(fw_compiler=compile_graph)(module, inputs)


def _compile(
    graph: torch.fx.GraphModule, fakes: Sequence[Any], target: Target, library_calls: bool, own: Mapping[str, Any]
) -> Callable[..., Any]:
    captured = aot.capture(graph, fakes)
    captured.drop_aliased()
    executable = build(captured, target, library_calls=library_calls, options=own)
    token = torch.empty(0)

    def run(args: list[Any]) -> list[Any]:
        # PyTorch traces a tensor for a token that keeps ops with effects in order, and passes None for it.
        leaves = [token if a is None and isinstance(f, torch.Tensor) else a for a, f in zip(args, fakes, strict=True)]
        args.clear()  # AOTAutograd's way to have arguments freed as early as can be
        return executable.run(leaves)

    return dynamo.takes_one_list(run)
