"""The variant ``inference``: compiled and called in ``torch.inference_mode``, as programs are that are only run.

Autograd has no part there, so a compiler that captures by dispatch meets whole ops where it meets their parts
otherwise, and tensors that count no writes. Eager is asked outside of it: its numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchstone.conformance.execution.run_case import Compiled, compare_with_eager
from torchstone.conformance.variants.protocol import NotApplicable, Variant

if TYPE_CHECKING:
    from torchstone.conformance.backends.protocol import Backend
    from torchstone.conformance.execution.verdict import Stage
    from torchstone.conformance.oracle.finding import Finding
    from torchstone.conformance.program.case import Case


class _Inferring:
    """A backend, or a program that it compiled, in inference mode."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def compile(self, fn: Callable[..., Any], args: Any) -> Any:
        with torch.inference_mode():
            return _Inferring(self._inner.compile(fn, args))

    def __call__(self, *args: Any) -> Any:
        """Call the program. What it gives are inference tensors, which nobody may write to outside of the mode."""
        with torch.inference_mode():
            return self._inner(*args)


def compare_in_inference_mode(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compare as ``compare_with_eager`` does; the backend compiles and runs the program in inference mode."""
    inferring: Any = _Inferring(backend)
    return compare_with_eager(case, inferring)


def _without_gradients(case: Case) -> Case:
    if case.program.differentiates:
        raise NotApplicable("it takes gradients, which there are none of in inference mode")
    return case


INFERENCE = Variant(
    "Compiled and called in inference mode.", _without_gradients, compare_in_inference_mode, compiled_alone=True
)
