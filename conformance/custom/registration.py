"""Which ops of the user's own there are in this process: registered ones, and the modules that define them.

An op is an operator of the dispatcher (``mylib::op``, an overload of ATen's), or what a module has under a name: a
Python function or a ``torch.nn.Module`` (``mymodule:function``). Programs call it by a dotted name, as they do
PyTorch's own. Such a name resolves only after the user has named its module with ``--ops-from``: a case file says which
module it needs, and never has one imported.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torchstone.compiler._torch import operators
from torchstone.conformance.errors import InputError

OPS_FROM = "ops-from="
"""Before the module that a case needs, the tag that says so."""

_OF_PYTORCH = """
    aten bw c10d c10d_functional cuda debug_mode_ops debugprims dist_autograd export fsdp higher_order image_ops
    inductor inductor_prims mkl mkldnn mkldnn_prepacked nested onednn prepacked prim prims profiler quantization
    quantized quantized_decomposed rngprims rtensor sparse static_runtime streams symm_mem tensorexpr xnnpack
"""
OF_PYTORCH = frozenset(_OF_PYTORCH.split())
"""Namespaces of the dispatcher that are PyTorch's, as are those with an underscore in front. No module of a user's lets
a case call what is in them."""

_CUSTOM_OP = re.compile(r"<CustomOpDef\((.+)\)>")


@dataclass(frozen=True, eq=False)
class CustomOp:
    """An op to be tested.

    ``name`` is what ids call it (``mylib.op``, ``mylib.op.overload``, ``mymodule.function``), ``target`` what programs
    call. ``sample``, ``reference`` and ``gradient`` are as ``register`` has them.
    """

    name: str
    target: str
    sample: Callable[..., Iterable[Any]] | None = None
    reference: Callable[..., Any] | None = None
    gradient: Callable[..., Any] | bool | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """What is called. Raises ``InputError`` where there is nothing of the name."""
        found = lookup(self.target) or _operator(self.target)
        if found is None:
            raise InputError(f"there is no op {self.name}: {self.target} is not defined{_hint()}")
        return found

    @property
    def schema(self) -> Any:
        """The schema, of an operator; None for a Python function or a module."""
        return operators.schema_of(self.function) if isinstance(self.function, operators.OpOverload) else None


_OPS: dict[str, CustomOp] = {}
_MODULES: list[str] = []


def register(
    op: Any,
    sample: Callable[..., Iterable[Any]] | None = None,
    reference: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | bool | None = None,
) -> CustomOp:
    """Register an op to be fuzzed: call it where the op is defined, so that workers do so, too.

    ``op`` is what ``torch.library.custom_op`` returned, an operator of ``torch.ops``, a Python function at the top of
    a module, or a name: ``mylib::op``, ``mylib::op.overload``, ``package.module:attribute``. The last may be a
    ``torch.nn.Module``, whose parameters and buffers become inputs.

    ``sample(dtype)`` yields the arguments of calls with tensors of a ``torch.dtype``: a tuple, or a tuple and a dict
    of keywords. Where it raises or yields nothing the op takes no such dtype. Without it, they are learned.
    ``reference`` takes the same arguments and returns the same, written in plain PyTorch: eager is held to it.
    ``gradient`` is False for an op that has none, or a function of the gradients that come in, one for each floating
    result, and of the arguments, which returns a gradient for each floating tensor among the arguments. Without it,
    eager's gradients are held to finite differences.

    Raises ``InputError`` for what is no op, and for an op that is registered twice.
    """
    name, target = _named(op)
    if name in _OPS:
        raise InputError(f"the op {name} is registered twice")
    _OPS[name] = CustomOp(name, target, sample, reference, gradient)
    return _OPS[name]


def load_modules(specs: Iterable[str]) -> None:
    """Import modules that define ops, the user's own word for it given: ``module``, or ``module:function``.

    The current folder is searched too, as ``python -m`` does. Raises ``InputError`` for what cannot be imported.
    """
    for spec in specs:
        if spec in _MODULES:
            continue
        module, colon, attribute = spec.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            found = importlib.import_module(module)
        except Exception as error:  # anything: it is the user's code
            message = f"--ops-from {spec}: {module} cannot be imported: {type(error).__name__}: {error}"
            raise InputError(message) from error
        if colon and not callable(getattr(found, attribute, None)):
            raise InputError(f"--ops-from {spec}: {module} has no function or module {attribute}")
        _MODULES.append(spec)
        if colon:
            _OPS.setdefault(f"{module}.{attribute}", CustomOp(f"{module}.{attribute}", f"{module}.{attribute}"))


def modules() -> list[str]:
    """What ``load_modules`` has imported: workers import it, too."""
    return list(_MODULES)


def needed_tags() -> tuple[str, ...]:
    """The tags that say of a case which modules it needs."""
    return tuple(f"{OPS_FROM}{spec}" for spec in _MODULES)


def needs(tags: Iterable[str]) -> list[str]:
    """The modules that the tags of a case name, and that are not loaded."""
    named = [tag.removeprefix(OPS_FROM) for tag in tags if tag.startswith(OPS_FROM)]
    return [spec for spec in named if spec not in _MODULES]


def ops() -> dict[str, CustomOp]:
    """The ops that are registered or were asked for, by name."""
    return dict(_OPS)


def ask(name: str) -> CustomOp:
    """The op that a user names, registered or not. Raises ``InputError`` where there is none."""
    name, target = _named(name)
    if ":" not in target and not target.startswith("torch.ops.") and name not in _OPS:
        module, _, attribute = target.rpartition(".")
        load_modules([f"{module}:{attribute}"])
    op = _OPS.get(name) or CustomOp(name, target)
    op.function  # noqa: B018  raises where there is none
    return _OPS.setdefault(name, op)


def is_custom(text: str) -> bool:
    """Whether a user means an op that is no row of a database: ``mylib::op``, ``module:function``, a registered one."""
    return ":" in text or text in _OPS


def lookup(target: str) -> Callable[..., Any] | None:
    """What a dotted name stands for in a program, where it is an op of the user's own; None where it is not."""
    registered = any(op.target == target for op in _OPS.values())
    if target.startswith("torch.ops."):
        namespace = target.split(".")[2]
        if namespace in OF_PYTORCH or namespace.startswith("_") or not (_MODULES or registered):
            return None
        return _operator(target)
    if registered:
        module, _, name = target.rpartition(".")
        return _callable(getattr(sys.modules.get(module), name, None))
    return None


def _operator(target: str) -> Any:
    namespace, *names = target.removeprefix("torch.ops.").split(".")
    return operator_named(namespace, *names) if len(names) in (1, 2) else None


def why_unknown(target: str) -> str:
    """What to do about a name that is no op of PyTorch's, for a message; empty for other names."""
    namespace = target.split(".")[2] if target.startswith("torch.ops.") and target.count(".") > 2 else "aten"
    if namespace in OF_PYTORCH:
        return ""
    return f": it is an operator of {namespace}{_hint()}"


def _hint() -> str:
    if not _MODULES:
        return "; name the module that defines it with --ops-from MODULE"
    return f"; --ops-from {', '.join(_MODULES)} does not define it"


def operator_named(namespace: str, name: str, overload: str = "") -> Any:
    """The overload of an operator; of an operator with one overload, that one; None where there is none."""
    import torch

    packet: Any = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, operators.OpOverloadPacket):
        return None
    names = packet.overloads()
    overload = overload or ("default" if "default" in names else names[0] if len(names) == 1 else "")
    return getattr(packet, overload) if overload in names else None


def _callable(found: Any) -> Callable[..., Any] | None:
    import torch

    if isinstance(found, torch.nn.Module):
        return _functional(found)
    return found if callable(found) else None


@functools.cache
def _functional(module: Any) -> Callable[..., Any]:
    """A module as a function of its arguments and, by the keyword ``parameters``, of its parameters and buffers."""
    import torch

    def call(*args: Any, parameters: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, parameters or {}, args, kwargs)

    call.__name__ = type(module).__name__
    call.__dict__["module"] = module
    return call


def _named(op: Any) -> tuple[str, str]:
    """The name of an op, and what programs call it. Raises ``InputError`` for what is no op."""
    if isinstance(op, operators.OpOverloadPacket):
        op = operators.qualified_name(op)
    elif isinstance(op, operators.OpOverload):
        op = op.name()
    elif found := _CUSTOM_OP.fullmatch(repr(op)):
        op = found[1]
    elif callable(op) and not isinstance(op, str):
        op = f"{op.__module__}:{op.__qualname__}" if hasattr(op, "__qualname__") else _no_op(op)
    if not isinstance(op, str):
        raise _no_op(op)
    if "::" in op:
        namespace, _, rest = op.partition("::")
        name, _, overload = rest.partition(".")
    elif op.startswith("torch.ops.") and op.count(".") in (3, 4):
        namespace, name, overload = [*op.split(".")[2:], ""][:3]
    elif ":" in op:
        module, _, attribute = op.partition(":")
        if module == "__main__" or not attribute.isidentifier():
            raise InputError(f"{op} is nothing that a worker can import: put it at the top of a module of its own")
        return f"{module}.{attribute}", f"{module}.{attribute}"
    else:
        found_op = _OPS.get(op)
        if found_op is None:
            raise _no_op(op)
        return found_op.name, found_op.target
    found_overload = operator_named(namespace, name, overload)
    if found_overload is None:
        raise InputError(f"there is no operator {op} of one overload{_overloads(namespace, name)}{_hint()}")
    schema = operators.schema_of(found_overload)
    label = schema.overload_name or "default"
    tail = f".{label}" if overload and label != "default" else ""
    return f"{namespace}.{name}{tail}", f"torch.ops.{namespace}.{name}.{label}"


def _overloads(namespace: str, name: str) -> str:
    import torch

    packet: Any = getattr(getattr(torch.ops, namespace), name, None)
    names = list(packet.overloads()) if isinstance(packet, operators.OpOverloadPacket) else []
    return f"; it has {', '.join(f'{namespace}::{name}.{overload}' for overload in names)}" if names else ""


def _no_op(op: Any) -> InputError:
    return InputError(f"{op!r} names no op: give mylib::op, or package.module:attribute")


def loaded_ops() -> Iterator[CustomOp]:
    """The ops of this process, in the order of their names."""
    return (op for _, op in sorted(_OPS.items()))
