"""A program under PyTorch's functionalization: it writes to nothing, and says which values it would have written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.control_flow import functionalized_under
from torchstone.compiler._torch.functionalization import (
    FunctionalTensor,
    FunctionalTensorMode,
    PythonFunctionalizeAPI,
    has_effects,
    replay_views,
    views_to,
    was_moved,
    was_reshaped,
    was_written,
    without_tracer_notes,
)
from torchstone.compiler._torch.modes import DisableTorchFunction, no_dispatch_modes
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.symbolic_shapes import GuardOnDataDependentSymNode
from torchstone.compiler._torch.tensors import storage_key
from torchstone.compiler.capture.leaves import View
from torchstone.compiler.capture.memory.layouts import Layouts
from torchstone.compiler.capture.memory.memory_calls import MemoryCalls
from torchstone.compiler.capture.memory.shared_results import Viewed, grouped
from torchstone.compiler.capture.user_code import raised_at
from torchstone.compiler.capture.writes import written_exactly
from torchstone.compiler.diagnostics import Unsupported

Pairs: TypeAlias = Sequence[tuple[torch.Tensor, torch.Tensor]]


@without_tracer_notes
class _Functionalize(FunctionalTensorMode):
    """PyTorch's functionalization, with the recorder in the place of PyTorch's own tracer.

    Unsupported, at the user's line, where the sizes or strides of one of ``arguments`` change in place.
    """

    arguments: Pairs = ()
    layouts = Layouts()
    memory = MemoryCalls()
    bases: dict[int, FunctionalTensor]

    def note(self, out: Any) -> None:
        """Note the tensors that an op gives and that are no views."""
        with DisableTorchFunction():  # TorchScript calls ops with the modes on that watch Python's calls
            for leaf in pytree.tree_leaves(out):
                if isinstance(leaf, FunctionalTensor) and not views_to(leaf):
                    self.bases.setdefault(storage_key(leaf), leaf)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func, args, kwargs = written_exactly(func, args, kwargs or {})
        if not has_effects(func):
            moved = args[0] if func.overloadpacket is torch.ops.aten.set_ else None
            with (
                _out_of_inference_mode(),
                self.memory.moving(str(func), moved),
                self.layouts.calling(func, args, kwargs) as made,
            ):
                try:
                    out = super().__torch_dispatch__(func, types, args, kwargs)
                except RuntimeError as error:
                    if type(error) is RuntimeError and schema_of(func).is_mutable and _resizes(func, args, kwargs):
                        why = f"{func} gives the tensor that it writes to other sizes"
                        raise Unsupported(why, stage="capture", op=str(func)) from error
                    raise
                made.append(out)
            self.note(out)
            if torch.Tag.inplace_view in func.tags and any(args[0] is tensor for _, tensor in self.arguments):
                _same_outline(args[0], str(func))
            return out
        # PyTorch threads a token through the ops whose order matters; a graph of ours keeps their order anyway.
        below = PythonFunctionalizeAPI()
        with below.redispatch_to_next():
            args, kwargs = below.unwrap_tensors((args, kwargs))
            return below.wrap_tensors(func(*args, **kwargs))


def _declined(op: str, error: Exception) -> Unsupported:
    why = str(error).strip().splitlines()[0].rstrip("!:")
    return Unsupported(f"torch.{op} in a program with writes or views: {why}", stage="capture", op=f"torch.{op}")


functionalized_under(_Functionalize, FunctionalTensorMode, _declined)


@contextlib.contextmanager
def _out_of_inference_mode() -> Iterator[None]:
    """Leave inference mode, where the program is in it: there PyTorch gives no view of a wrapper made outside."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


Share: TypeAlias = "tuple[torch.Tensor, View | None] | Viewed | None"


def _resizes(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether eager's kernel takes these sizes, for which functionalization copies a result into the first operand."""

    kwargs = kwargs or {}
    sizes = [leaf.shape for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not args or not isinstance(args[0], torch.Tensor) or not all(isinstance(n, int) for size in sizes for n in size):
        return False
    with DisableTorchFunction(), no_dispatch_modes():
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda leaf: torch.zeros(tuple(leaf.shape), dtype=leaf.dtype), (args, kwargs)
        )
        try:
            func(*args, **kwargs)
        except RuntimeError:  # eager does not take them either
            return False
    return args[0].shape != sizes[0]


def _same_outline(tensor: Any, culprit: str) -> None:
    if was_reshaped(tensor):
        raise Unsupported(f"{culprit} changes the sizes or strides of an argument in place", stage="capture")
    if was_moved(tensor):
        raise Unsupported(f"{culprit} gives an argument other memory; write to it with copy_", stage="capture")


def functionalized(
    run: Callable[[list[Any], list[Any]], list[Any]],
    clones: list[Any],
    lifted: list[Any],
    tracked: set[int],
    layouts: Layouts,
    memory: MemoryCalls,
) -> tuple[list[Any], Pairs, list[Share], Pairs]:
    """Run under PyTorch's functionalization; ``tracked`` has the ids of the tensors that autograd tracks.

    Return the results, the new value of each argument written to, for each tensor among the results the argument that
    it shares memory with, if there is one, and as which view, and the gradient of each argument that has one now.
    """
    wrapped: list[tuple[torch.Tensor, FunctionalTensor]] = []

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = next((f for t, f in wrapped if t is leaf), None)
        if known is None:
            known = FunctionalTensor.to_functional(leaf)
            known.requires_grad_(id(leaf) in tracked)
            wrapped.append((leaf, known))
        return known

    try:
        with _Functionalize() as mode:
            mode.arguments, mode.layouts, mode.memory, mode.bases = wrapped, layouts, memory, {}
            flat = run([wrap(c) for c in clones], [wrap(t) for t in lifted])
    except GuardOnDataDependentSymNode as error:  # in a branch, of which PyTorch makes a graph of its own
        reason, _, _ = str(error).partition("\n")
        why = f"in a function of torch.cond or torch.while_loop, a size that depends on values decides: {reason}"
        raise Unsupported(why, stage="capture", where=raised_at(error)) from error
    except RuntimeError as error:
        if "not allowed in the functionalization pass" in str(error):
            why = "resize_ gives a tensor more memory than it had; make one of that size"
            raise Unsupported(why, stage="capture", where=raised_at(error)) from error
        if "functional tensor" not in str(error):
            raise
        raise Unsupported("the program writes to a tensor that is no argument", stage="capture") from error
    for _, tensor in wrapped:
        _same_outline(tensor, "the program")
    owners = {storage_key(f): (t, f) for t, f in wrapped}
    shared: list[Share] = []
    for leaf in flat:
        owner = owners.get(storage_key(leaf)) if isinstance(leaf, FunctionalTensor) else None
        if owner is not None:
            shared.append((owner[0], None if leaf is owner[1] else _view_of(leaf)))
        elif isinstance(leaf, torch.Tensor):
            shared.append(None)
    mode.bases.update({storage_key(f): f for _, f in wrapped})
    found = iter(grouped([leaf for leaf in flat if isinstance(leaf, torch.Tensor)], mode.bases, _view_of))
    shared = [group if share is None else share for share, group in zip(shared, found, strict=True)]
    written = [(t, unwrap(f)) for t, f in wrapped if was_written(f)]
    left = [(t, unwrap(f.grad)) for t, f in wrapped if f.is_leaf and f.grad is not None]
    return [unwrap(leaf) for leaf in flat], written, shared, left


def _view_of(tensor: FunctionalTensor) -> View:
    """Return what makes a tensor of its base: the views that functionalization has noted."""
    steps = views_to(tensor)
    if any(step.has_symbolic_inputs for step in steps):
        return told_by_values
    return lambda base, sizes: replay_views(base, steps)


def told_by_values(base: torch.Tensor, sizes: Any) -> torch.Tensor:
    """Stand for a view at a place that values tell, which the graph has to tell."""
    raise AssertionError("unreachable")


def unwrap(leaf: Any) -> Any:
    return leaf.from_functional() if isinstance(leaf, FunctionalTensor) else leaf
