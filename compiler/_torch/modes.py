"""Modes: what watches calls of PyTorch's functions (function modes) and of its ops (dispatch modes)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.compiler._torch.names import Names, uses

_NAMES = Names(
    __name__,
    {
        "TorchDispatchMode": ("torch.utils._python_dispatch.TorchDispatchMode", "see each op that is dispatched"),
        "no_dispatch_modes": ("torch.utils._python_dispatch._disable_current_modes", "run ops that no mode sees"),
        "unseen": ("torch._C._DisableTorchDispatch", "the same at a fortieth of the cost, of ordinary tensors"),
        "DisableTorchFunction": ("torch._C.DisableTorchFunction", "ask a tensor something that no function mode sees"),
        "enable_python_dispatcher": (
            "torch._dispatch.python.enable_python_dispatcher",
            "take composite ops apart by PyTorch's decompositions in Python",
        ),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


class ComputingMode(TorchDispatchMode):
    """A dispatch mode that computes with what an op is given, lazily conjugated and negated tensors among it.

    PyTorch calls ``__torch_dispatch__`` with the keys left out that make up for these bits: ``x + 0`` of a conjugated x
    is x, not conjugated. Here the keys are in force.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__torch_dispatch__" in cls.__dict__:
            cls.__torch_dispatch__ = _with_lazy_bits(cls.__torch_dispatch__)


@uses(
    "torch._C._SetExcludeDispatchKeyGuard",
    "torch._C._dispatch_tls_is_dispatch_key_excluded",
    "torch._C.DispatchKey.Conjugate",
    "torch._C.DispatchKey.Negative",
)
def _with_lazy_bits(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Have the keys of lazy bits in force in a mode's dispatch."""
    excluded, guard = torch._C._dispatch_tls_is_dispatch_key_excluded, torch._C._SetExcludeDispatchKeyGuard
    keys = torch._C.DispatchKey

    @functools.wraps(dispatch)
    def run(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not excluded(keys.Conjugate):
            return dispatch(self, func, types, args, kwargs)
        with guard(keys.Conjugate, False), guard(keys.Negative, False):
            return dispatch(self, func, types, args, kwargs)

    return run


@uses("torch._C._len_torch_function_stack", "torch._C._len_torch_dispatch_stack")
def depths() -> tuple[int, int]:
    """Return how many function modes and how many dispatch modes are in force."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


@uses("torch._C._pop_torch_function_stack", "torch._C._pop_torch_dispatch_stack")
def leave_down_to(wanted: tuple[int, int]) -> None:
    """Leave the innermost modes until no more of each kind are in force than ``wanted``."""
    while torch._C._len_torch_function_stack() > wanted[0]:
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack() > wanted[1]:
        torch._C._pop_torch_dispatch_stack(None)


@uses("torch.utils._device.DeviceContext", "torch._C._get_function_stack_at")
def device_in_force() -> torch.device | None:
    """Return the device that a mode in force makes tensors on, None where there is no such mode."""
    depth = torch._C._len_torch_function_stack()
    if not depth:
        return None
    from torch.utils._device import DeviceContext

    modes = (torch._C._get_function_stack_at(place) for place in reversed(range(depth)))
    return next((mode.device for mode in modes if isinstance(mode, DeviceContext)), None)


@uses("torch._C._dispatch_tls_is_dispatch_key_excluded", "torch._C.DispatchKey.Python")
def unseen_by_dispatch() -> bool:
    """Say whether PyTorch's C++ is calling back with dispatch modes off."""
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.Python)


@uses("torch._C._TorchDispatchModeKey.PROXY")
def take_tracers_place(mode: Any) -> None:
    """Have a dispatch mode stand where PyTorch's own tracer does: below functionalization, and told of symbols.

    PyTorch runs ordinary modes before its FunctionalTensorMode.
    """
    mode._mode_key = torch._C._TorchDispatchModeKey.PROXY
