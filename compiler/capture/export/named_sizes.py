"""Dynamic sizes under the names that ``dynamic_shapes`` gives them, and ``Dim``, which has an optimum too."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torchstone.compiler._torch.pytrees import map_dynamic_shapes
from torchstone.compiler.capture.program import Captured
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, raise_bug
from torchstone.compiler.ir import Expr, TensorType
from torchstone.compiler.ir.dims import solve


class Dim(torch.export.Dim):
    """A named dynamic size: ``torch.export.Dim`` with ``opt``, the size that an engine is tuned for.

    ``dynamic_shapes`` takes it wherever it takes one of PyTorch's; so does torch.export. Targets that build no engine
    ignore ``opt``. Without it, the size of the example is the optimum.
    TorchstoneError unless ``min <= opt <= max``; ``opt`` needs a ``max``.
    """

    def __init__(self, name: str, *, min: int | None = None, opt: int | None = None, max: int | None = None) -> None:
        low = 0 if min is None else min
        if max is not None and max <= low:
            raise _refused(f"Dim {name}: max must be above min, got min {low} and max {max}")
        if opt is not None and max is None:
            raise _refused(f'Dim {name}: opt needs a max, the largest size: Dim("{name}", opt={opt}, max=...)')
        if opt is not None and max is not None and not low <= opt <= max:
            raise _refused(f"Dim {name}: min <= opt <= max must hold, got min {low}, opt {opt} and max {max}")
        super().__init__(name, min=min, max=max)
        self.opt = opt


def _refused(message: str) -> TorchstoneError:
    return TorchstoneError(message, stage="capture")


class NamedSizes:
    """The ``Dim``s of ``dynamic_shapes``, each with the tensor and the axis whose size it is.

    Unsupported when a size of the example is none that its Dim takes.
    """

    def __init__(
        self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
    ) -> None:
        self._found: list[tuple[torch.Tensor, int, Any]] = []
        try:
            if isinstance(dynamic_shapes, torch.export.ShapesCollection):
                dynamic_shapes = dynamic_shapes.dynamic_shapes(module, tuple(args), dict(kwargs))
            if isinstance(dynamic_shapes, dict | tuple | list):
                given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
                named = (
                    dynamic_shapes
                    if isinstance(dynamic_shapes, dict)
                    else dict(zip(given, dynamic_shapes, strict=False))
                )
                map_dynamic_shapes(self._note, given, named)
        except TorchstoneError:
            raise
        except Exception as error:  # anything: torch.export is given the same, and says what is wrong with it
            raise_bug(error)
            self._found.clear()

    def _note(self, path: Any, tensor: Any, shape: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        for axis, dim in _axes(shape):
            if not isinstance(dim, torch.export.Dim) or axis not in range(tensor.dim()):
                continue
            size, low, high = tensor.shape[axis], dim.min, dim.max
            if not low <= size <= high:
                where = "".join(map(str, path[1:]))
                raise Unsupported(
                    f"size {axis} of {path[0].key}{where} is {size} in the example, and {dim.__name__} takes "
                    f"{low} to {high}: give an example inside, or another min or max",
                    stage="capture",
                )
            self._found.append((tensor, axis, dim))

    def tell(self, captured: Captured, leaves: Sequence[Any]) -> Captured:
        """Note in a captured program the names of its symbols, and the sizes that they are at their best."""
        places = {id(t): n for n, t in reversed([*enumerate(x for x in leaves if isinstance(x, torch.Tensor))])}
        told: dict[str, int] = {}
        for tensor, axis, dim in self._found:
            kind = captured.graph.args[places[id(tensor)]].type
            size = kind.shape[axis] if isinstance(kind, TensorType) else None
            solved = solve(size, tensor.shape[axis]) if isinstance(size, Expr) else None
            if solved is None:
                continue
            symbol, value = solved
            root = getattr(dim, "root", dim)
            captured.names[symbol] = name = root.__name__
            optimum = getattr(root, "opt", None)
            if optimum is None:
                captured.optima.setdefault(symbol, value)
            elif told.setdefault(symbol, optimum) != optimum:
                raise _refused(f"Dim {name}: opt is {told[symbol]} in one place and {optimum} in another")
        captured.optima.update(told)
        return captured


def _axes(shape: Any) -> Iterator[tuple[int, Any]]:
    if isinstance(shape, dict):
        yield from shape.items()
    elif isinstance(shape, tuple | list):
        yield from enumerate(shape)
