"""A function that ``torch.compile`` takes for a backend, as a backend under test: ``--backend mymodule:my_compiler``.

It is called with a ``torch.fx.GraphModule`` and example inputs, and returns a callable, as PyTorch's manual of custom
backends has it. TorchDynamo captures the program, in one graph, and guards it. Of a program that takes gradients it
captures the forward part, and autograd runs through what the backend made, as in training.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.dynamo_errors import told_apart
from torchstone.conformance.backends.protocol import Availability

if TYPE_CHECKING:
    from torch import Tensor


class DynamoBackend:
    """A backend of ``torch.compile``: a function of a graph module and example inputs, or one by its name."""

    def __init__(self, name: str, function: Callable[..., Any] | str) -> None:
        self.name = name
        self.function = function

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._compile(fn, args, dynamic=False)

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self._compile(fn, args, dynamic=True)

    def _compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dynamic: bool) -> Callable[..., Any]:
        import torch

        from torchstone.conformance.program.fx import compiled_forward
        from torchstone.conformance.program.tensor_storage import copy_tensors

        dynamo.reset()
        with dynamo.config.patch(suppress_errors=False):
            compiled = compiled_forward(
                fn,
                args,
                lambda function: torch.compile(function, fullgraph=True, dynamic=dynamic, backend=self.function),
            )
            with told_apart():  # torch.compile works at the first call: make one, on copies
                compiled(*copy_tensors(args))
        return lambda *tensors: compiled(*tensors)  # a module has no truth value


def is_dynamo_backend(found: Any) -> bool:
    """Whether something is a function that ``torch.compile`` may take for a backend: of two arguments at least."""
    if not inspect.isroutine(found):
        return False
    parameters = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) == 2
