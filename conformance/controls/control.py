"""What a control is: a right backend that computes otherwise than eager, and the rule that makes it right."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name, functional_form, overload_name, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves, tree_map_only
from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.backends.protocol import Availability, counted

Kernel: TypeAlias = Callable[..., Any]
"""Takes what an operator takes, and returns fresh results or ``NotImplemented``, for what is left to eager."""

Find: TypeAlias = Callable[[Any], "Kernel | None"]
"""From an operator to the kernel that replaces it."""

Compile: TypeAlias = Callable[[Callable[..., Any], list[str]], Callable[..., Any]]
"""From a program to what computes it otherwise. The list is told the name of each thing that is done otherwise."""

REPLACED, EAGER = "control", "eager"


@dataclass(frozen=True)
class Control:
    """A backend: a program is run as eager runs it, but for some ops, or for what it is given and gives.

    ``claim`` says which documented rule makes it right. ``concerns`` says of the operators of a program, as a dispatch
    mode sees them, whether the control does anything otherwise in it.
    """

    name: str
    claim: str
    build: Compile
    concerns: Callable[[Iterable[Any]], bool]
    random_numbers: str | None = None

    executors = (REPLACED, EAGER)
    uses_eager_kernels = True

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("torch", "numpy", "scipy")}

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        ran: list[str] = []
        compiled = self.build(fn, ran)

        def run(*tensors: Tensor) -> Any:
            ran.clear()
            out = compiled(*tensors)
            run.__dict__["evidence"] = {"ran": {REPLACED: counted(ran), EAGER: counted(_calls(fn))}}
            return out

        return run

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        return self.compile(fn, args)


def _calls(fn: Any) -> list[str]:
    return [call.target for call in getattr(fn, "calls", ())]


def replacing(name: str, claim: str, table: Mapping[str, Kernel]) -> Control:
    """A control that has kernels of its own for some operators: ``exp``, ``sum.dim_IntList``.

    What writes (``exp_``, ``exp.out``) is computed by the same kernel, and copied to where it is to be.
    """
    return finding(name, claim, {operator(op): kernel for op, kernel in table.items()}.get)


def finding(name: str, claim: str, find: Find, *, within: bool = False) -> Control:
    """A control that looks for the kernel of each operator; ``within`` kernels too, as decompositions want it."""

    def build(fn: Callable[..., Any], ran: list[str]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            with Replaced(find, ran, within):
                return fn(*tensors)

        return run

    def concerns(ops: Iterable[Any]) -> bool:
        return any(find(op) is not None or find(functional_form(op)) is not None for op in ops)

    return Control(name, claim, build, concerns)


def operator(name: str) -> Any:
    """The overload of an operator of ATen: ``sum.dim_IntList``; ``exp`` for ``exp.default``."""
    name, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


class Replaced(ComputingMode):
    """Runs the operators inside it by other kernels, where there is one that takes the operands.

    Views, and operands that are no plain tensors, are eager's.
    """

    def __init__(self, find: Find, ran: list[str], within: bool = False) -> None:
        super().__init__()
        self.find = find
        self.ran = ran
        self.within = within

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        form = functional_form(func)
        kernel = None if form is None else self.find(form)
        if form is None or kernel is None or not all(map(_plain, tree_leaves((args, kwargs)))):
            if self.within and form is func:
                args, kwargs = tree_map_only(Tensor, resolved, (args, kwargs))
            return func(*args, **kwargs)
        written = _written(func, args, kwargs)
        given = {name: kwargs[name] for name in kwargs if name not in _out_names(func)}
        with torch.random.fork_rng(devices=[]):  # what eager refuses, no control takes; some write and do not say so
            checked, named = tree_map_only(Tensor, torch.clone, (args, given))
            eager = form(*checked, **named)
        out = self._run(kernel, *tree_map_only(Tensor, resolved, (args, given)))
        if out is NotImplemented or not _fits(out, written):
            return func(*args, **kwargs)
        if self.within and _outline(out) != _outline(eager):
            return func(*args, **kwargs)  # a decomposition that promotes otherwise is no right answer
        self.ran.append(base_name(func))
        if not written:
            return tree_map_only(Tensor, functools.partial(_fresh, operands=tree_leaves((args, kwargs))), out)
        for target, value in zip(written, _results(out), strict=True):
            if target.shape != value.shape:
                target.resize_(value.shape)
            target.copy_(value)
        return written[0] if len(written) == 1 else tuple(written)

    def _run(self, kernel: Kernel, args: Any, kwargs: dict[str, Any]) -> Any:
        if not self.within:
            return kernel(*args, **kwargs)
        with self:
            return kernel(*args, **kwargs)


def described(func: Any) -> str:
    """The name of an overload as tables of controls have it."""
    overload = overload_name(func)
    return base_name(func) + (f".{overload}" if overload not in ("", "default") else "")


@functools.cache
def _out_names(func: Any) -> frozenset[str]:
    return frozenset(argument.name for argument in schema_of(func).arguments if argument.is_out)


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operator writes its results to, in the order of its results."""
    if not schema_of(func).is_mutable:
        return []
    names = [argument.name for argument in schema_of(func).arguments if argument.is_out]
    return [kwargs[name] for name in names] if names else [args[0]]


def _outline(out: Any) -> list[Any]:
    return [(leaf.dtype, leaf.shape) if isinstance(leaf, Tensor) else type(leaf) for leaf in tree_leaves(out)]


def _results(out: Any) -> list[Tensor]:
    return list(out) if isinstance(out, tuple | list) else [out]


def _fits(out: Any, written: list[Tensor]) -> bool:
    """Whether results may be written where they are to be; what eager refuses is for eager to refuse."""
    if not written:
        return True
    pairs = zip(written, _results(out), strict=True)
    return all(
        torch.can_cast(value.dtype, target.dtype) and (target.shape == value.shape or not target.numel())
        for target, value in pairs
    )


def resolved(tensor: Tensor) -> Tensor:
    """The tensor without lazy bits. Below the dispatcher's key for them no operator would see to them, so kernels do
    not use ``conj()`` either, which sets one, but ``conj_physical()``."""
    return tensor.resolve_conj().resolve_neg()


def _plain(leaf: Any) -> bool:
    """Whether a leaf of the operands is no tensor, or one in memory, strided, of numbers."""
    if not isinstance(leaf, Tensor):
        return True
    return (
        type(leaf) in (Tensor, torch.nn.Parameter)
        and leaf.layout is torch.strided
        and leaf.device.type == "cpu"
        and not leaf.is_quantized
    )


def _fresh(value: Tensor, operands: Iterable[Any]) -> Tensor:
    """A result in memory of its own, each element in a place of its own; a sparse one is."""
    if value.layout is not torch.strided:
        return value
    shared = any(isinstance(leaf, Tensor) and storage_key(leaf) == storage_key(value) for leaf in operands)
    folded = any(not step and size > 1 for size, step in zip(value.shape, value.stride(), strict=True))
    value = resolved(value)
    return value.clone(memory_format=torch.contiguous_format) if shared or folded else value
