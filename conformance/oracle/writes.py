"""What an operator writes to: what its schema says, or that of the same operator that says it."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.perturbation.accumulation import arguments_of
from torchstone.conformance.oracle.pytree import leaves_of


def telling_overload(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The same operator with a schema that says what it writes to; None for one whose own does."""
    aten = torch.ops.aten
    if func is not aten.native_batch_norm.default:
        return None
    given = arguments_of(func, args, kwargs)
    updates = given["training"] and given["running_mean"] is not None and given["running_var"] is not None
    return aten._native_batch_norm_legit.default if updates else None


def written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that a call of an operator writes to, by its own schema."""
    found: list[Any] = []
    for index, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name) if argument.kwarg_only or index >= len(args) else args[index]
            found.extend(leaves_of(value))
    return found
