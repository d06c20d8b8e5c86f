"""Eager with a planted bug, as a backend."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.backends.protocol import Availability
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.planted.bug import PlantedBug
from torchstone.conformance.planted.op_call import OpCall, bound, functional, written

if TYPE_CHECKING:
    from torch import Tensor


class PlantedBackend:
    """Runs programs in eager, where one op, or what is around the program, has the bug's defect.

    Without a bug it is the control: eager, seen through the same dispatch mode.
    """

    def __init__(self, bug: PlantedBug | None) -> None:
        self.name = f"planted:{bug.name if bug else 'none'}"
        self.bug = bug
        self.kept: dict[Any, Any] = {}

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        bug = self.bug
        state: dict[Any, Any] = {"calls": 0}
        if bug is not None and bug.compile is not None:
            return bug.compile(self.kept, fn, args)  # type: ignore[arg-type]

        def run(*tensors: Tensor) -> Any:
            state["calls"] += 1
            with _Defective(bug, state):
                return fn(*tensors)

        return run

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self.compile(fn, args)


class _Defective(ComputingMode):
    """Gives the ops of a bug the results of its rule; ops that write to an argument get them written there."""

    def __init__(self, bug: PlantedBug | None, state: dict[Any, Any]) -> None:
        super().__init__()
        self.bug, self.state = bug, state
        self.ops = frozenset(bug.ops) if bug else frozenset()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = base_name(func)
        if self.bug is None or self.bug.rule is None or not (name in self.ops or name.rstrip("_") in self.ops):
            return func(*args, **kwargs)
        in_place = name.endswith("_")
        straight = func if in_place and name in self.ops else functional(func) or func
        given = bound(func, args, kwargs)
        outs = [] if straight is func else written(func)
        arguments = {key: value for key, value in given.items() if in_place or key not in outs}
        call = OpCall(straight, arguments, self.state)
        try:
            result = self.bug.rule(call)
        except Exception:  # a defect that does not know this case is not there, and what eager refuses it refuses
            return func(*args, **kwargs)
        return result if not outs else _write(func, given, outs, result)


def _write(func: Any, given: dict[str, Any], outs: list[str], result: Any) -> Any:
    """Write a functional op's results to the arguments that the op called writes to, and return these."""
    targets = [given[name] for name in outs]
    for target, value in zip(targets, flatten(result), strict=True):
        if target.shape != value.shape:
            target.resize_(value.shape)
        target.copy_(value)
    return targets[0] if len(targets) == 1 else tuple(targets)
