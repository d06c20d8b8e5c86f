"""Ops as the dispatcher has them: overloads, their schemas and their kernels."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from torchstone.compiler._torch.names import Names, uses

_NAMES = Names(
    __name__,
    {
        "OpOverload": ("torch._ops.OpOverload", "tell an overload of an op"),
        "OpOverloadPacket": ("torch._ops.OpOverloadPacket", "tell an op, all overloads of it"),
        "HigherOrderOperator": ("torch._ops.HigherOrderOperator", "tell an op that takes functions"),
        "DispatchKey": ("torch._C.DispatchKey", "name the kernels of an op"),
        "nn_functions": ("torch._C._nn", "watch the functions of C++ behind torch.nn.functional"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@uses("torch.ops.aten.add.Tensor._schema")
def schema_of(overload: Any) -> Any:
    """Return the schema of an overload: its arguments, in order, and what it returns."""
    return overload._schema


def has_schema(target: Any) -> bool:
    """Say whether the target of a graph's node is an overload of an op."""
    return hasattr(target, "_schema")


def base_name(overload: Any) -> str:
    """Return the name of an op without its namespace and overload: ``add_`` of ``aten::add_.Tensor``."""
    return overload._schema.name.partition("::")[2]


@uses("torch.ops.aten.add.Tensor._overloadname")
def overload_name(overload: Any) -> str:
    """Return the name of an overload: ``Tensor``, ``default``."""
    return overload._overloadname


@uses("torch.ops.aten.add._qualified_op_name")
def qualified_name(packet: Any) -> str:
    """Return the name of an op with its namespace: ``aten::add``."""
    return packet._qualified_op_name


@uses("torch.ops.aten.add.Tensor._dispatch_cache")
def forget_kernels(overload: Any) -> None:
    """Have PyTorch look up the kernels of an op anew, after its ``py_kernels`` were changed."""
    overload._dispatch_cache.clear()


@functools.cache
def functional_form(overload: Any) -> Any:
    """The overload that computes what this one writes: ``exp.default`` of ``exp_.default`` and of ``exp.out``.

    Itself where it writes to nothing; None for a view, and where there is no such overload.
    """
    import torch

    if getattr(overload, "is_view", True):
        return None
    schema = schema_of(overload)
    if not schema.is_mutable:
        return overload
    packet = getattr(getattr(torch.ops, overload.namespace), base_name(overload).removesuffix("_"), None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for name in packet.overloads() if packet is not None else ():
        form = getattr(packet, name)
        given = [(a.name, str(a.type)) for a in schema_of(form).arguments]
        if not schema_of(form).is_mutable and not form.is_view and given == wanted:
            return form
    return None


@uses("torch._C.DispatchKey.CompositeImplicitAutograd")
def is_composite(overload: Any) -> bool:
    """Say whether PyTorch takes an op apart, for any device and autograd, before a dispatch mode sees it."""
    from torch._C import DispatchKey

    return overload.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


@functools.cache
@uses("torch._C.DispatchKey.CPU")
def is_only_composite(overload: Any) -> bool:
    """Say whether an op is a composite that has no kernel of its own on the CPU."""
    from torch._C import DispatchKey

    return is_composite(overload) and not overload.has_kernel_for_dispatch_key(DispatchKey.CPU)


@uses("torch.ops.aten._foreach_add.List._op_dk", "torch._C.DispatchKey.CompositeExplicitAutograd")
def call_for_any_device(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel that an op has for any device, written in other ops."""
    from torch._C import DispatchKey

    return overload._op_dk(DispatchKey.CompositeExplicitAutograd, *args, **kwargs)


@uses("torch._C._dispatch_get_all_op_names")
def registered_names() -> list[str]:
    """Return the names of all ops that the dispatcher knows: ``aten::add.Tensor``."""
    import torch

    return torch._C._dispatch_get_all_op_names()


@uses("torch._C._jit_get_schemas_for_operator")
def schemas_named(name: str) -> Any:
    """Return the schemas of all overloads of an op: ``aten::add``."""
    import torch

    return torch._C._jit_get_schemas_for_operator(name)


@uses("torch._C._VariableFunctions")
def functions_of_torch() -> Collection[str]:
    """Return the names of the ops that are functions of ``torch`` itself."""
    import torch

    return dir(vars(torch._C)["_VariableFunctions"])


@uses("torch._assert_async")
def assert_async(condition: Any, message: str) -> None:
    """Raise an error with this message, when the op runs, where a tensor of one bool is false."""
    import torch

    torch._assert_async(condition, message)
