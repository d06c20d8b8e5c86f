"""Other programs that compute the same: what each rewrite changes, and whether it changes a rounding.

===============  ==================================================================  ==========
rewrite          each call                                                           roundings
===============  ==================================================================  ==========
``copied``       is given contiguous copies of its operands                          the same
``transposed``   is given operands that lie transposed, and are transposed back      the same
``commuted``     of a commutative op has its two operands exchanged                  the same
``padded``       of a pointwise op is given one row more, which is cut off after it  the same
``split``        is done in two halves along dim 0: pointwise, or reducing others    the same
``folded``       that reduces everything is done in two halves, which are combined   others
``decomposed``   is replaced by PyTorch's own decomposition to core ATen             others
===============  ==================================================================  ==========

Only programs that write to nothing, draw no random numbers, take no gradients and do not read how their operands lie in
memory are rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.compiler._torch.tensors import known_version
from torchstone.conformance.controls.decomposed import LEFT_OUT, core_table
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.op_traits.execution import READS_THE_LAYOUT
from torchstone.conformance.oracle.op_traits.order_of_terms import COMBINED, COMMUTES
from torchstone.conformance.program.call_targets import name_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.sources.tracing import Inputs, NotExpressible
from torchstone.conformance.variants.protocol import NotApplicable


@dataclass
class Writer:
    """The calls of a rewritten program so far, and what eager gave for each name of the original."""

    values: dict[str, Any]
    calls: list[Call] = field(default_factory=list)

    def add(self, target: str, *args: Any, **kwargs: Any) -> Ref:
        """Append a call and return its result."""
        name = f"w{len(self.calls)}"
        while name in self.values:
            name += "_"
        self.calls.append(Call(target, args, kwargs, name))
        return Ref(name)

    def value(self, ref: Ref) -> Any:
        """What a reference stands for in eager."""
        found = self.values[ref.name]
        for step in ref.path:
            found = found[step]
        return found

    def tensors(self, call: Call) -> list[Tensor]:
        """The tensors that a call is given."""
        return [value for ref in call.refs() if isinstance(value := self.value(ref), Tensor)]

    def given(self, call: Call, change: Callable[[Ref, Tensor], Ref]) -> Call:
        """The call with its tensors replaced."""

        def leaf(value: Any) -> Any:
            tensor = self.value(value) if isinstance(value, Ref) else None
            return change(value, tensor) if isinstance(tensor, Tensor) else value

        return call.map_arguments(leaf)


Step = Callable[[Writer, Call], "Call | Ref | None"]
"""Writes what a call becomes: the call to make in its place, its result if that is made already, None if unchanged."""


@dataclass(frozen=True)
class Rewrite:
    """A way to rewrite programs. ``rounds_alike``: it changes no rounding, only where numbers lie and when."""

    name: str
    rounds_alike: bool
    apply: Callable[[Case, dict[str, Any]], Program]


def values_of(case: Case) -> dict[str, Any]:
    """What eager gives for every input and call of a case. Raises NotApplicable for a program that none rewrites."""
    program = case.program
    if program.differentiates or any(READS_THE_LAYOUT.has(call.operator) for call in program.every_call):
        raise NotApplicable("it takes gradients, or reads how its operands lie in memory")
    args = case.fresh_args()
    values: dict[str, Any] = dict(zip(program.inputs, args, strict=True))
    state = torch.default_generator.get_state()

    def perform(index: int, function: Any, given: Any, named: Any) -> Any:
        tensors = [leaf for leaf in leaves([given, named]) if isinstance(leaf, Tensor)]
        versions = [known_version(tensor) for tensor in tensors]
        values[program.calls[index].result] = out = function(*given, **named)
        if versions != [known_version(tensor) for tensor in tensors]:
            raise NotApplicable("it writes to memory")
        return out

    program.run(args, perform)
    if not torch.equal(state, torch.default_generator.get_state()):
        raise NotApplicable("it draws random numbers")
    if not all(map(same_bits, args, case.args)):
        raise NotApplicable("it writes to memory")
    return values


def _by_step(step: Step) -> Callable[[Case, dict[str, Any]], Program]:
    def apply(case: Case, values: dict[str, Any]) -> Program:
        writer, names, changed = Writer(values), {}, False

        def renamed(leaf: Any) -> Any:
            found = names.get(leaf.name) if isinstance(leaf, Ref) else None
            return leaf if found is None else Ref(found.name, (*found.path, *leaf.path))

        for call in case.program.calls:
            known = len(writer.calls)
            made = step(writer, call)
            changed |= made is not None
            writer.calls[known:] = [one.map_arguments(renamed) for one in writer.calls[known:]]
            if isinstance(made, Ref):
                names[call.result] = made
            else:
                writer.calls.append((made or call).map_arguments(renamed))
        if not changed:
            raise NotApplicable("no call of it is one that the rewrite is about")
        return Program(case.program.inputs, tuple(writer.calls), map_leaves(case.program.outputs, renamed))

    return apply


def _copied(writer: Writer, call: Call) -> Call | None:
    if not writer.tensors(call):
        return None
    options = {"memory_format": torch.contiguous_format}
    return writer.given(call, lambda ref, tensor: writer.add("torch.clone", ref, **options))


def _transposed(writer: Writer, call: Call) -> Call | None:
    if not any(tensor.dim() > 1 for tensor in writer.tensors(call)):
        return None

    def turned(ref: Ref, tensor: Tensor) -> Ref:
        if tensor.dim() < 2:
            return ref
        there = writer.add("torch.transpose", ref, 0, -1)
        return writer.add("torch.transpose", writer.add("torch.Tensor.contiguous", there), 0, -1)

    return writer.given(call, turned)


def _commuted(writer: Writer, call: Call) -> Call | None:
    if not COMMUTES.has(call.operator) or len(call.args) != 2 or call.kwargs or call.target.endswith("_"):
        return None
    one, other = (writer.value(arg) if isinstance(arg, Ref) else None for arg in call.args)
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)) or one.dtype != other.dtype:
        return None
    return replace(call, args=call.args[::-1])


def _padded(writer: Writer, call: Call) -> Ref | None:
    rows = _rows(writer, call)
    if rows is None or not rows:
        return None
    longer = writer.given(
        call, lambda ref, _: writer.add("torch.cat", [ref, writer.add("torch.narrow", ref, 0, 0, 1)], 0)
    )
    return writer.add("torch.narrow", writer.add(longer.target, *longer.args, **longer.kwargs), 0, 0, rows)


def _split(writer: Writer, call: Call) -> Ref | None:
    rows = _rows(writer, call) or _kept_rows(writer, call)
    if rows is None or rows < 2:
        return None
    middle = rows // 2
    parts = []
    for start, length in ((0, middle), (middle, rows - middle)):
        part = writer.given(call, lambda ref, _, s=start, n=length: writer.add("torch.narrow", ref, 0, s, n))
        parts.append(writer.add(part.target, *part.args, **part.kwargs))
    return writer.add("torch.cat", parts, 0)


def _folded(writer: Writer, call: Call) -> Ref | None:
    tensors = writer.tensors(call)
    if not _reduces(call) or len(call.args) != 1 or call.kwargs or len(tensors) != 1:
        return None
    (tensor,) = tensors
    if not tensor.dim() or tensor.shape[0] < 2 or not tensor.numel():
        return None
    middle = tensor.shape[0] // 2
    parts = [
        writer.add(call.target, writer.add("torch.narrow", call.args[0], 0, start, length))
        for start, length in ((0, middle), (middle, tensor.shape[0] - middle))
    ]
    return writer.add(f"torch.{COMBINED.ops[call.operator]}", *parts)


def _reduces(call: Call) -> bool:
    return COMBINED.has(call.operator) and call.target == f"torch.{call.operator}"


def _rows(writer: Writer, call: Call) -> int | None:
    """The length of dim 0 of a pointwise call, whose tensors are all of its result's shape; None for other calls."""
    result, tensors = writer.values[call.result], writer.tensors(call)
    if not isinstance(result, Tensor) or not tensors or not is_pointwise(call.operator) or call.target.endswith("_"):
        return None
    if result.dim() == 0 or any(tensor.shape != result.shape for tensor in tensors):
        return None
    return result.shape[0] if result.numel() else None


def _kept_rows(writer: Writer, call: Call) -> int | None:
    """The length of dim 0 of a reduction along others; None for other calls."""
    tensors, result = writer.tensors(call), writer.values[call.result]
    if not _reduces(call) or len(call.args) != 2 or len(tensors) != 1 or not isinstance(result, Tensor):
        return None
    (tensor,), dims = tensors, call.args[1]
    dims = [dims] if isinstance(dims, int) else dims
    if not isinstance(dims, Sequence) or not dims or not all(type(dim) is int for dim in dims):
        return None
    if tensor.dim() < 2 or any(dim % tensor.dim() == 0 for dim in dims) or not tensor.numel():
        return None
    return tensor.shape[0]


def is_pointwise(operator: str) -> bool:
    """Whether PyTorch marks an op as one that computes each element from those at its place."""
    packet = getattr(torch.ops.aten, operator, None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def _decomposed(case: Case, values: dict[str, Any]) -> Program:
    inputs = Inputs()
    args = case.fresh_args()
    for tensor in args:
        if tensor.is_conj() or tensor.is_neg():
            raise NotApplicable("an input is lazily conjugated or negated")
        inputs.literal(tensor)
    names = tuple(inputs.tensors)
    steps = _Steps(inputs)
    try:
        with torch.no_grad(), steps:
            outputs = case.program(*args)
        if tuple(inputs.tensors) != names or not steps.decomposed or len(names) != len(case.program.inputs):
            raise NotApplicable(
                "PyTorch has no decomposition of any of its calls, or one that makes tensors of its own"
            )
        program = Program(names, tuple(steps.calls), inputs.literal(outputs))
    except NotExpressible as error:
        raise NotApplicable(f"decomposed, it cannot be written down: {error}") from error
    return program.rename(dict(zip(names, case.program.inputs, strict=True)))


class _Steps(ComputingMode):
    """Writes down the core ATen ops that are dispatched, and decomposes all others."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.calls: list[Call] = []
        self.decomposed = 0
        self.table = core_table()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = self.table.get(func)
        if rule is not None and base_name(func) not in LEFT_OUT:
            with self:
                out = rule(*args, **kwargs)
            if out is not NotImplemented:
                self.decomposed += 1
                return out
        target = name_of(func)
        if target is None:
            raise NotExpressible(f"{func} has no public name")
        call = Call(target, self.inputs.literal(tuple(args)), self.inputs.literal(dict(kwargs)), f"d{len(self.calls)}")
        out = func(*args, **kwargs)
        self.calls.append(call)
        for at, leaf in enumerate([out] if isinstance(out, Tensor) else out if isinstance(out, tuple | list) else []):
            if isinstance(leaf, Tensor) and self.inputs.find(leaf) is None:
                self.inputs.bind(leaf, Ref(call.result) if isinstance(out, Tensor) else Ref(call.result, (at,)))
        return out


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("copied", True, _by_step(_copied)),
    Rewrite("transposed", True, _by_step(_transposed)),
    Rewrite("commuted", True, _by_step(_commuted)),
    Rewrite("padded", True, _by_step(_padded)),
    Rewrite("split", True, _by_step(_split)),
    Rewrite("folded", False, _by_step(_folded)),
    Rewrite("decomposed", False, _decomposed),
)
"""Every rewrite, as in the table above."""
