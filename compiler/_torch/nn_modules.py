"""What ``torch.nn.Module`` keeps in private attributes."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.names import attributes, uses

_MODULE = "torch.nn.Module()"
# The dicts of a module's tensors and submodules.
TENSOR_DICTS = attributes(
    _MODULE, {"_parameters", "_buffers", "_modules"}, "tell the dicts in which a module keeps tensors and submodules"
)
# What calling a module reads, though no user code names it.
READ_BY_CALLS = TENSOR_DICTS | attributes(
    _MODULE,
    {
        "_compiled_call_impl", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    },
    "know what calling a module reads",
)  # fmt: skip
# What calling a module does not look at.
UNREAD_BY_CALLS = attributes(
    _MODULE,
    {
        "_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks", "_is_full_backward_hook",
    },
    "know what calling a module does not read",
)  # fmt: skip
# What recurrent modules make of their parameters: made again whenever those are others.
DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})


@uses("torch.nn.Module()._parameters", "torch.nn.Module()._buffers")
def put_tensor(module: torch.nn.Module, name: str, tensor: Any) -> None:
    """Put a tensor in the place of a module's parameter or buffer."""
    (module._parameters if name in module._parameters else module._buffers)[name] = tensor
