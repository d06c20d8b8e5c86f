"""PyTorch's settings that have no public function, or one that does more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler._torch.names import Names, attributes, uses

_NAMES = Names(
    __name__,
    {
        "print_options": ("torch._tensor_str.PRINT_OPTS", "keep the way in which tensors are printed"),
        "get_uninitialized_fill": (
            "torch._C._get_deterministic_fill_uninitialized_memory",
            "read whether uninitialized memory is filled",
        ),
        "set_uninitialized_fill": (
            "torch._C._set_deterministic_fill_uninitialized_memory",
            "set whether uninitialized memory is filled",
        ),
        "get_onednn": ("torch._C._get_mkldnn_enabled", "read whether oneDNN is used"),
        # torch.backends.mkldnn.flags sets more, with a warning
        "set_onednn": ("torch._C._set_mkldnn_enabled", "set whether oneDNN is used"),
    },
)
# Of PyTorch's backends: what ``torch._C._get_…`` reads and ``torch._C._set_…`` sets.
FLAGS = (
    "cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "cudnn_allow_tf32", "mkldnn_enabled",
    "mkldnn_deterministic", "onednn_allow_tf32", "cublas_allow_tf32", "nnpack_enabled", "linalg_preferred_backend",
    "blas_preferred_backend", "cublas_allow_fp16_accumulation", "math_sdp_allow_fp16_bf16_reduction",
    "cpu_allow_fp16_reduced_precision_reduction",
)  # fmt: skip
ATTENTION = ("flash", "mem_efficient", "math")
_PURPOSE = "keep a setting of a backend as it was"
attributes("torch._C", (f"_{way}_{name}" for name in FLAGS for way in ("get", "set")), _PURPOSE)
attributes("torch._C", (f"_get_{name}_sdp_enabled" for name in ATTENTION), _PURPOSE)
attributes("torch._C", (f"_set_sdp_use_{name}" for name in ATTENTION), _PURPOSE)

Accessors = tuple[Callable[[], Any], Callable[[Any], Any]]


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


def flag(name: str) -> Accessors:
    """Return what reads and what sets one of ``FLAGS``."""
    return getattr(torch._C, f"_get_{name}"), getattr(torch._C, f"_set_{name}")


def attention(name: str) -> Accessors:
    """Return what reads and what sets whether one of the ways of computing attention, ``ATTENTION``, may be taken."""
    return getattr(torch._C, f"_get_{name}_sdp_enabled"), getattr(torch._C, f"_set_sdp_use_{name}")


@uses("torch._GLOBAL_DEVICE_CONTEXT")
def default_device() -> Any:
    """Return the device that ``torch.set_default_device`` has set, None where it was not called."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


@contextlib.contextmanager
def onednn_off() -> Iterator[None]:
    """Turn oneDNN off in the block."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)
