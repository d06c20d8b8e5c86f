"""A program in the making: the values it has so far, each with the tensor eager computes for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.generator import values
from torchstone.fuzz.generator.choices import Choices

LIMIT = 1e4
"""Magnitude above which a result is refused: what follows it would overflow a half or drown in rounding."""
NUMEL = 4096
KNOWN = {dtype for dtype, _ in values.DTYPES} | {torch.complex128}


@dataclass(frozen=True)
class DraftValue:
    """A tensor of the program. ``exact``: no rounding went into it, so every backend must have its very bits."""

    ref: Ref
    tensor: Tensor
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dim(self) -> int:
        return self.tensor.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


@dataclass(frozen=True)
class Arguments:
    """Drawn arguments of a call: Values and literals, in lists, tuples and dicts."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class CallRejected(Exception):
    """A drawn call does not do: eager rejects it, or its result would not be worth comparing."""


class Draft:
    """A program under construction. Rules draw operands from it and hand it the call they chose.

    ``needs_exact`` holds while a rule draws for an op that jumps (floor, argmax, ``==``): its operands must be exact,
    or a last-bit difference that is nobody's fault becomes a difference of one. ``dtypes`` are what the op takes.
    ``specials`` puts infinities, nans and negative zeros into new inputs, and lets them into results.
    """

    def __init__(self, choices: Choices, specials: bool = False) -> None:
        self.choices = choices
        self.specials = specials
        self.inputs: dict[str, Tensor] = {}
        self.values: list[DraftValue] = []
        self.calls: list[Call] = []
        self.used: set[str] = set()
        self.drawn: set[Ref] = set()
        self.base = choices.weighted(values.DTYPES)
        self.needs_exact = False
        self.dtypes: frozenset[torch.dtype] = frozenset()

    # What rules draw

    def tensor(
        self,
        *,
        where: Callable[[DraftValue], bool] = lambda value: True,
        shape: Sequence[int] | None = None,
        ranks: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        bounds: tuple[float, float] = (-4.0, 4.0),
        distinct: bool = False,
    ) -> DraftValue:
        """Draw an operand: mostly a value the program already has, if one fits, otherwise a new input.

        ``shape`` or ``ranks`` and ``dtype`` say what is asked for; ``bounds`` is the op's open domain, within which
        every element must lie; ``distinct`` asks for no ties. ``where`` filters the values at hand.
        """

        def fits(value: DraftValue) -> bool:
            return (
                (shape is None or value.shape == tuple(shape))
                and (ranks is None or value.dim in ranks)
                and (value.dtype == dtype if dtype else not self.dtypes or value.dtype in self.dtypes)
                and (value.exact or not self.needs_exact)
                and _inside(value.tensor, *bounds)
                and (not distinct or value.tensor.unique().numel() == value.tensor.numel())
                and where(value)
            )

        fitting = [value for value in reversed(self.values) if fits(value)]
        if self.choices.chance(90):  # x - x shows less than x - y
            fitting = [value for value in fitting if value.ref not in self.drawn]
        # Results that nothing takes yet come first: a program of five calls should be a chain more often than a heap.
        waiting = [v for v in fitting if v.ref.name not in self.used and v.ref.name not in self.inputs]
        if waiting and self.choices.chance(75):
            chosen = self.choices.pick(waiting)
        elif fitting and not self.choices.chance(20):
            chosen = self.choices.pick(fitting)
        else:
            wanted = tuple(shape) if shape is not None else values.draw_shape(self.choices, ranks)
            chosen = self.fresh(wanted, dtype or self.dtype(), bounds, distinct)
        self.drawn.add(chosen.ref)
        return chosen

    def dtype(self) -> torch.dtype:
        """Draw a dtype the op takes: mostly the program's own, so that promotion is there but does not take over."""
        allowed = [(dtype, weight) for dtype, weight in values.DTYPES if not self.dtypes or dtype in self.dtypes]
        if not allowed:
            raise CallRejected("no dtype of ours is taken")
        if self.base in dict(allowed) and not self.choices.chance(20):
            return self.base
        return self.choices.weighted(allowed)

    def fresh(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        bounds: tuple[float, float] = (-4.0, 4.0),
        distinct: bool = False,
    ) -> DraftValue:
        """Add an input."""
        if distinct and torch.Size(shape).numel() > (2 if dtype == torch.bool else 100):
            raise CallRejected(f"no {torch.Size(shape).numel()} distinct {dtype} are near zero")
        drawn = values.draw_contents(self.choices, shape, dtype, *bounds, distinct=distinct)
        if self.specials and not distinct:
            drawn = values.insert_specials(self.choices, drawn)
        return self.given(values.draw_layout(self.choices, drawn, expand=not distinct))

    def given(self, tensor: Tensor) -> DraftValue:
        """Add this very tensor as an input."""
        _check("an input", tensor, self.specials)
        name = f"x{len(self.inputs)}"
        self.inputs[name] = tensor
        self.values.append(DraftValue(Ref(name), tensor, exact=True))
        return self.values[-1]

    def broadcast(self, value: DraftValue, dtypes: Iterable[torch.dtype] | None = None, **wanted: Any) -> DraftValue:
        """Draw an operand that broadcasts with ``value``: one at hand, or a new input of a broadcast shape."""
        allowed = None if dtypes is None else set(dtypes)

        def fits(other: DraftValue) -> bool:
            return _broadcasts(value.shape, other.shape) and (allowed is None or other.dtype in allowed)

        keep = self.choices.integer(0, value.dim) if self.choices.chance(30) else 0
        size = [1 if self.choices.chance(20) else length for length in value.shape[keep:]]
        dtype = None
        if allowed is not None:
            dtype = value.dtype if value.dtype in allowed else self.choices.pick(sorted(allowed, key=str))
        fitting = [v for v in reversed(self.values) if fits(v)]
        if fitting and self.choices.chance(50):
            return (
                self.tensor(where=fits, **wanted) if dtype is None else self.tensor(where=fits, dtype=dtype, **wanted)
            )
        return self.tensor(shape=size, where=fits, dtype=dtype, **wanted)

    def axis(self, value: DraftValue) -> int:
        """Draw a dim of ``value``, counted from the front or from the back; 0 for a 0-d tensor."""
        if value.dim == 0:
            return 0
        dim = self.choices.integer(0, value.dim - 1)
        return dim - value.dim if self.choices.chance(30) else dim

    def axes(self, value: DraftValue) -> list[int]:
        """Draw at least one dim of ``value``, none twice; empty for a 0-d tensor."""
        if value.dim == 0:
            return []
        dims = self.choices.shuffled(range(value.dim))[: self.choices.integer(1, value.dim)]
        return [dim - value.dim if self.choices.chance(20) else dim for dim in dims]

    def scalar(self, dtype: torch.dtype) -> bool | int | float:
        """Draw a Python number of the kind ``dtype`` is, or of a lower one."""
        if dtype == torch.bool:
            return self.choices.chance(50)
        if (dtype.is_floating_point or dtype.is_complex) and not self.choices.chance(30):
            return self.choices.integer(-8, 8) / 4
        return self.choices.integer(0 if dtype == torch.uint8 else -3, 5)

    # What becomes of a drawn call

    def call(self, target: str, arguments: Arguments, exact: bool, cuts: bool) -> None:
        """Append a call if eager runs it and its results are worth comparing; raises Refused otherwise."""
        name = f"v{len(self.calls)}"
        both = (arguments.args, arguments.kwargs)
        operands = [leaf for leaf in leaves(both) if isinstance(leaf, DraftValue)]
        args, kwargs = map_leaves(both, lambda leaf: leaf.tensor if isinstance(leaf, DraftValue) else leaf)
        try:
            result = resolve(target)(*args, **kwargs)
        except Exception as error:
            raise CallRejected(f"{target}: {error}") from None
        found = list(_results(result))
        if not found:
            raise CallRejected(f"{target}: no tensor among its results")
        for _, tensor in found:
            _check(target, tensor, self.specials)
        blurred = not all(operand.exact for operand in operands)
        if blurred and not all(t.dtype.is_floating_point or t.dtype.is_complex for _, t in found):
            raise CallRejected(f"{target}: integers from rounded operands, where a last bit makes a difference of one")
        if cuts and any(operand.dtype.is_complex and not operand.exact for operand in operands):
            raise CallRejected(f"{target}: a rounded zero would choose the side of a branch cut")
        all_exact = exact and not blurred
        args, kwargs = map_leaves(both, lambda leaf: leaf.ref if isinstance(leaf, DraftValue) else leaf)
        self.calls.append(Call(target, args, kwargs, name))
        for path, tensor in found:
            rounds = tensor.dtype.is_floating_point or tensor.dtype.is_complex
            self.values.append(DraftValue(Ref(name, path), tensor, all_exact or not rounds))
        self.used |= {operand.ref.name for operand in operands}

    def attempt(self, draw: Callable[[Draft], None]) -> bool:
        """Run ``draw`` and keep what it added to the program, unless it is refused."""
        before = (dict(self.inputs), list(self.values), list(self.calls), set(self.used))
        self.drawn = set()
        try:
            draw(self)
        except CallRejected:
            self.inputs, self.values, self.calls, self.used = before
            return False
        return True

    def program(self) -> Program:
        """Return the program; its outputs are every value no later call takes, so that no call is dead."""
        results = [value.ref for value in self.values if value.ref.name not in self.inputs]
        leaves = [ref for ref in results if ref.name not in self.used]
        outputs = leaves[0] if len(leaves) == 1 else tuple(leaves)
        taken = [name for name in self.inputs if name in self.used]
        return Program(tuple(taken), tuple(self.calls), outputs)


def _inside(tensor: Tensor, low: float, high: float) -> bool:
    if (low, high) == (-4.0, 4.0) or tensor.numel() == 0 or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        return True
    return low < float(tensor.min()) and float(tensor.max()) < high


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def _check(target: str, tensor: Tensor, specials: bool) -> None:
    if tensor.layout != torch.strided or tensor.dtype not in KNOWN:
        raise CallRejected(f"{target}: a {tensor.layout} {tensor.dtype} result")
    if tensor.numel() > NUMEL:
        raise CallRejected(f"{target}: a result of {tensor.numel()} elements")
    if tensor.numel() and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        sizes = tensor.detach().abs()
        largest = float(sizes[sizes.isfinite()].amax() if specials and sizes.isfinite().any() else sizes.amax())
        if specials and not math.isfinite(largest):
            return
        if not math.isfinite(largest) or largest > LIMIT:
            raise CallRejected(f"{target}: a result as large as {largest}")


def _results(result: Any, path: tuple[int, ...] = ()) -> Iterable[tuple[tuple[int, ...], Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, list | tuple):
        for at, part in enumerate(result):
            yield from _results(part, (*path, at))
