"""What PyTorch's tracer takes apart before anybody sees it, and what of that is not what eager computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler._torch.operators import DispatchKey, forget_kernels
from torchstone.compiler.diagnostics import Unsupported

# Of uint8 images eager's kernels blend with 16-bit integers, PyTorch's decompositions with floats: now and then they
# round to neighbours. The dispatcher's graph, of static sizes, keeps these ops whole.
_BLENDS = tuple(
    getattr(packet, overload)
    for packet in (torch.ops.aten.upsample_bilinear2d, torch.ops.aten.upsample_bicubic2d)
    for overload in ("default", "vec")
)


def _of_floats(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        image = next(a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor))  # the only one
        if not image.dtype.is_floating_point:
            kind = str(image.dtype).removeprefix("torch.")
            why = f"{op} of {kind}: PyTorch's tracer computes with floats what eager computes with integers"
            raise Unsupported(why, op=str(op), stage="capture")
        return kernel(*args, **kwargs)

    return checked


@contextlib.contextmanager
def integer_blends_refused() -> Iterator[None]:
    """Let PyTorch's decompositions of blends raise Unsupported for integer images."""
    kept = [(op, dict(op.py_kernels)) for op in _BLENDS]
    for op, kernels in kept:
        apart = {key: kernel for key, kernel in kernels.items() if key != DispatchKey.Meta}
        op.py_kernels.update({key: _of_floats(op, kernel) for key, kernel in apart.items()})
        forget_kernels(op)
    try:
        yield
    finally:
        for op, kernels in kept:
            op.py_kernels.update(kernels)
            forget_kernels(op)
