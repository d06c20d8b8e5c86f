"""Eager PyTorch as a backend: the control. Whatever it does not pass is the harness's fault, or the sample's."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.base import Availability

if TYPE_CHECKING:
    from torch import Tensor


class Eager:
    name = "eager"

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return fn

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return fn
