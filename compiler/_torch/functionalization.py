"""PyTorch's functionalization: a program's writes become new values, its views are noted."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from torchstone.compiler._torch.names import Names, uses

_MODE = "torch._subclasses.functional_tensor"
_NAMES = Names(
    __name__,
    {
        "FunctionalTensor": (f"{_MODE}.FunctionalTensor", "tell and make tensors whose writes are noted"),
        "FunctionalTensorMode": (f"{_MODE}.FunctionalTensorMode", "functionalize a program"),
        "PythonFunctionalizeAPI": (f"{_MODE}.PythonFunctionalizeAPI", "pass an op on below functionalization"),
        "has_effects": ("torch._higher_order_ops.effects.has_effects", "tell ops whose order matters"),
    },
)
Mode = TypeVar("Mode", bound=type)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@uses(f"{_MODE}.FunctionalTensorMode._sync_view_replay_annotations")
def without_tracer_notes(mode: Mode) -> Mode:
    """Keep a class of functionalization modes from leaving notes on views for PyTorch's own tracer."""
    setattr(mode, "_sync_view_replay_annotations", lambda self, args, kwargs: None)  # noqa: B010 - no known attribute
    return mode


@uses("torch._functionalize_has_data_mutation")
def was_written(tensor: Any) -> bool:
    """Say whether the program has written to a functional tensor."""
    return torch._functionalize_has_data_mutation(tensor.elem)  # pyright: ignore[reportAttributeAccessIssue]


@uses("torch._functionalize_has_metadata_mutation")
def was_reshaped(tensor: Any) -> bool:
    """Say whether the program has changed sizes or strides of a functional tensor in place."""
    return torch._functionalize_has_metadata_mutation(tensor.elem)


@uses("torch._functionalize_was_storage_changed")
def was_moved(tensor: Any) -> bool:
    """Say whether the program has given a functional tensor other memory."""
    return torch._functionalize_was_storage_changed(tensor.elem)


@uses("torch._sync", "torch._from_functional_tensor")
def held_by(elem: torch.Tensor) -> torch.Tensor:
    """Return the tensor that the ``elem`` of a functional tensor holds, brought up to date."""
    torch._sync(elem)
    return torch._from_functional_tensor(elem)


@uses("torch._C._functionalization.get_view_meta_sequence")
def views_to(tensor: Any) -> Any:
    """Return the views, one after the other, that make a functional tensor of its base; empty for a base."""
    return _functionalization().get_view_meta_sequence(tensor.elem)


def was_expanded(tensor: Any) -> bool:
    """Say whether a functional tensor is a view of an expanded one, or of a part of it."""
    return _has_view(tensor, "expand")


def was_unfolded(tensor: Any) -> bool:
    """Say whether a functional tensor is a view of the windows that ``unfold`` makes, or of a part of them."""
    return _has_view(tensor, "unfold")


def _has_view(tensor: Any, op: str) -> bool:
    return any(type(step).__name__ == f"{op}_ViewMeta" for step in views_to(tensor))


@uses("torch._C._functionalization.apply_view_meta_sequence")
def replay_views(base: torch.Tensor, views: Any) -> torch.Tensor:
    """Make the same views, one after the other, of another base."""
    return _functionalization().apply_view_meta_sequence(base, views)


def _functionalization() -> Any:
    return getattr(torch._C, "_functionalization")  # noqa: B009 - PyTorch's stubs leave it out
