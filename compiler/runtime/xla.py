"""Runs a StableHLO module by OpenXLA's CPU client, of the jaxlib wheel: a private interface, of one version."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from torchstone.compiler.diagnostics import TorchstoneError

if TYPE_CHECKING:
    from torch import Tensor


@cache
def client() -> Any:
    """Return the CPU client. Without x64 its arrays would have no 64-bit types."""
    try:
        import jax
        from jax.extend.backend import get_backend
    except ImportError as error:
        raise TorchstoneError(
            f"no XLA: {error}; install it with: pip install 'torchstone[xla]'", stage="compile"
        ) from None
    jax.config.update("jax_enable_x64", True)
    return get_backend("cpu")


def load(stablehlo: str) -> Any:
    """Return XLA's loaded executable of a module's text; errors are XLA's own."""
    xla = client()
    from jax.extend.backend import get_compile_options
    from jaxlib import _jax

    options = get_compile_options(num_replicas=1, num_partitions=1)
    return xla.compile_and_load(stablehlo.encode(), _jax.DeviceList(tuple(xla.local_devices()[:1])), options)


def execute(executable: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of an executable as fresh tensors of torch."""
    import torch
    from jax.dlpack import from_dlpack

    given = [from_dlpack(t.detach().contiguous().resolve_conj().resolve_neg()) for t in tensors]
    return [torch.from_dlpack(value).clone() for value in executable.execute(given)]


def _errors() -> tuple[type[Exception], ...]:
    """Return what XLA raises of a module, or of arguments, that it does not take."""
    client()
    from jax.errors import JaxRuntimeError

    return JaxRuntimeError, ValueError


class Xla:
    """Callable on a sequence of torch tensors, one for each argument of ``main``; gives a tuple, one for each result.

    Raises TorchstoneError with XLA's words: stage ``compile`` where it takes no such module, else ``run``.
    """

    def __init__(self, module: Any) -> None:
        try:
            self._executable = load(str(module))
        except _errors() as error:
            raise TorchstoneError(f"XLA: {error}", stage="compile") from error

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        try:
            return tuple(execute(self._executable, tensors))
        except _errors() as error:
            raise TorchstoneError(f"XLA: {error}", stage="run") from error
