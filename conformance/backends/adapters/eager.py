"""Eager PyTorch as a backend: the control. Whatever it does not pass is the harness's fault, or the sample's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.protocol import Availability, Backend, counted

if TYPE_CHECKING:
    from torch import Tensor


class Eager:
    name = "eager"
    random_numbers = "eager"
    executors = ("eager",)
    options = ("cuda",)

    def configured(self, options: Sequence[str]) -> Backend:
        """Return eager on a CUDA device."""
        from torchstone.conformance.backends.cuda import OnCuda

        return OnCuda(self)

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            return fn(*tensors)

        run.__dict__["evidence"] = {"ran": {"eager": counted(call.target for call in getattr(fn, "calls", ()))}}
        return run

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self.compile(fn, args)
