"""Replays a graph that PyTorch traced, node by node under the recorder, so that every frontend records alike."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch

from torchstone.compiler._torch import operators
from torchstone.compiler._torch.decompositions import decomposition_table
from torchstone.compiler._torch.fake_tensors import detect_fake_mode
from torchstone.compiler._torch.modes import enable_python_dispatcher
from torchstone.compiler._torch.operators import OpOverload, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler._torch.tensors import has_symbolic_layout
from torchstone.compiler.capture.trace.recorder import Mutation, Recorder
from torchstone.compiler.capture.user_code import is_user_file
from torchstone.compiler.diagnostics import Unsupported, quote
from torchstone.compiler.ir import Frame, Location

FRAMES = "torchstone_frames"
_STACK_LINE = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


_DROPOUTS = frozenset(
    {torch.ops.aten.dropout.default, torch.ops.aten.alpha_dropout.default, torch.ops.aten.feature_dropout.default}
)


class _Replay(torch.fx.Interpreter):
    """Tells the recorder whose line each node is, and which tensors the graph holds."""

    def __init__(self, module: torch.fx.GraphModule, recorder: Recorder, mode: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._recorder = recorder
        self._mode = mode
        self._held: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        self._recorder.location = location_of(n)
        try:
            return super().run_node(n)
        except Unsupported as error:
            error.where = error.where or "\n".join(quote(frame) for frame in self._recorder.location.frames[:1])
            raise

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.higher_order.with_effects:
            # PyTorch threads a token through the ops whose order matters; a graph of ours keeps their order anyway.
            token, op, *rest = args
            out = op(*rest, **kwargs)
            return (token, *out) if isinstance(out, tuple) else (token, out)
        if target in _DROPOUTS and (args[1] == 0 or not args[2]):
            return args[0]  # as eager does, where PyTorch's decomposition makes a new tensor
        ops = self._recorder.graph.ops
        kept = len(ops)
        try:
            return super().call_function(target, args, kwargs)
        except (RuntimeError, Unsupported) as error:
            # PyTorch takes composite ops apart in C++, which cannot do it for every symbolic size; Python can.
            in_python = reference(target) if is_composite(target) and _is_symbolic(args, kwargs) else None
            if in_python is None:
                raise
            del ops[kept:]
            try:
                return in_python(*args, **kwargs)
            except (TypeError, ValueError):
                raise error from None

    def fetch_attr(self, target: str) -> Any:
        """Return a fake tensor for a tensor that the graph holds; the recorder knows the tensor itself."""
        held = super().fetch_attr(target)
        if not isinstance(held, torch.Tensor) or self._mode is None:
            return held
        if target not in self._held:
            self._held[target] = self._mode.from_tensor(held, static_shapes=True)
            self._recorder.capture(self._held[target], held)
        return self._held[target]


def is_composite(target: Any) -> bool:
    """Say whether PyTorch takes an op apart before a mode sees it."""
    return isinstance(target, OpOverload) and operators.is_composite(target)


def _is_symbolic(*operands: Any) -> bool:
    leaves = tree_leaves(operands)
    return any(
        isinstance(leaf, torch.SymInt) or (isinstance(leaf, torch.Tensor) and has_symbolic_layout(leaf))
        for leaf in leaves
    )


@cache
def reference(op: Any) -> Callable[..., Any] | None:
    """Return PyTorch's decomposition in Python of an op, None when it has none that takes the op's own arguments.

    What is registered for nll_loss takes other ones, in another order, and gives another result.
    """
    fn = decomposition_table.get(op)
    if fn is None:
        return None
    theirs = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.VAR_KEYWORD]
    ours = schema_of(op).arguments
    same = len(theirs) >= len(ours) and all(
        "Tensor" in str(a.type) or a.name == name for a, name in zip(ours, theirs, strict=False)
    )
    return fn if same else None


def replay(module: torch.fx.GraphModule, inputs: Sequence[Any], recorder: Recorder) -> list[Any]:
    """Run the graph on fake ``inputs`` under the recorder; return its outputs: values for tensors, others as they are.

    Mutation names the op that writes in place, when PyTorch has not functionalized the graph.
    """
    mode = detect_fake_mode(inputs)
    recorder.replayed = True
    try:
        with mode or nullcontext(), enable_python_dispatcher() if mode else nullcontext(), recorder:
            outputs = _Replay(module, recorder, mode).run(*inputs, enable_io_processing=False)
            return [recorder.operand(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in outputs]
    except Mutation as error:
        raise Mutation(str(error).split("\n")[0]) from None  # the interpreter adds to the message


def location_of(node: torch.fx.Node) -> Location:
    """Return the user's frames of a traced node, innermost first."""
    noted = node.meta.get("custom", {}).get(FRAMES)
    if noted is not None:
        return Location(tuple(Frame(*frame) for frame in noted))
    lines = reversed(_STACK_LINE.findall(node.meta.get("stack_trace") or ""))
    return Location(tuple(Frame(file, int(line), name) for file, line, name in lines if is_user_file(file)))
